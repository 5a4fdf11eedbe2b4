"""The options of clients and locks: their names and types. The defaults, and the rules, are the core's."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

Seconds: TypeAlias = float | timedelta
"""A time: seconds as a number, or a `timedelta`."""


class ClientOptions(TypedDict, total=False):
    """How a client uses its nodes. None means the default."""

    quorum: int | None
    """How many nodes must agree, from a majority to all. Default: a majority."""

    watchdog: Seconds | None
    """The lease that is renewed until release, 0.3 s or more. Default: 30 s."""

    prefix: str | None
    """Put before every lock's name. Default: nothing."""

    wire: Literal["redisson", "token"] | None
    """How a lock is written: as Redisson does, or as `SET name value NX PX ttl` does (redis-py and others)."""

    drift: float | None
    """How much faster a node's clock may run, as a share from 0.01 to below 0.5. Default: 0.1."""

    token_key: Literal["redlock", "redisson"] | None
    """Where fencing tokens are counted: apart, or together with Redisson's `RFencedLock`."""

    token_ttl: Seconds | None
    """How long a token's counter is kept after its last use, and so how far a node's clock may be set back and tokens
    still increase: 60 s or more, on a quorum no less than a restarted node does not vote. Default: an hour."""

    max_ttl: Seconds | None
    """The longest ttl on a quorum, and so how long a restarted node does not vote. Default: 60 s."""

    min_replicas: int | None
    """How many replicas of a node must have acknowledged a lock before it counts there. Default: 0."""

    patience: Seconds | None
    """How long an outage may last before a waiting acquire raises `Unavailable`. Default: 5 s."""

    connect_timeout: Seconds | None
    """How long a connection may take. Default: 2 s."""

    reply_timeout: Seconds | None
    """How long a reply may take. Default: 2 s."""

    strict: bool | None
    """Whether a quorum's nodes need `init_nodes()` before their first vote. Default: False."""

    quarantine: bool | None
    """Whether a restarted node of a quorum stays away for `max_ttl`. Default: True; only tests turn it off."""

    username: str | None
    """The user, for URLs that name none."""

    password: str | None
    """The password, for URLs that have none."""

    ca: str | None
    """A PEM file of certificates to trust, for `rediss://`. Default: the system's."""

    cert: str | None
    """A PEM file with this client's certificate."""

    key: str | None
    """A PEM file with this client's private key."""


class SemaphoreOptions(TypedDict, total=False):
    """How permits of a semaphore are taken. None means the default."""

    ttl: Seconds | Literal["adaptive"] | None
    """The lease. None: the client's `watchdog`, renewed until release. A time, from 50 ms: fixed, never renewed.
    "adaptive": renewed, of a length learned from how long the lock is held."""

    wait: Seconds | None
    """How long to wait for the lock. None: for ever; 0: one try."""

    max_hold: Seconds | None
    """How long the lock is renewed at most. Default: for ever."""


class ReadWriteOptions(SemaphoreOptions, total=False):
    """How a read/write lock is taken. None means the default."""

    reentrant: bool | None
    """Whether its owner may take it again. Default: True; else that raises `WouldDeadlock`."""


class LockOptions(ReadWriteOptions, total=False):
    """How a lock is taken. None means the default."""

    owner: str | None
    """An owner across processes, 1 to 256 bytes. None: the thread, greenlet or task."""

    fair: bool | None
    """Whether those that want it get it in the order in which they asked. Needs one server, cluster or Sentinel
    service, and the same wherever the name is used. Default: False."""
