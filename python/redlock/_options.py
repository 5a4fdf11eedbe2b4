"""The options of clients and locks: names and types. The core has the defaults and validates the values."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a `timedelta`."""


class ClientOptions(TypedDict, total=False):
    """Options of a client. None means the default."""

    quorum: int | None
    """The number of nodes that must agree, from a majority to all. Default: a majority."""

    watchdog: Seconds | None
    """The ttl of leases that the watchdog renews until release, 0.3 s or more. Default: 30 s."""

    prefix: str | None
    """A text put before the name of every lock. Default: empty."""

    wire: Literal["redisson", "token"] | None
    """The format of locks: as Redisson writes them, or as `SET name value NX PX ttl` does (redis-py and others).

    Default: "redisson".
    """

    drift: float | None
    """How much faster a node's clock may run than this process's: a fraction from 0.01 to below 0.5. Default: 0.1."""

    token_key: Literal["redlock", "redisson"] | None
    """The counter of fencing tokens: this library's own, or the one of Redisson's `RFencedLock`. Default: "redlock"."""

    token_ttl: Seconds | None
    """How long a token counter is kept after its last use. Default: an hour, or the minimum if that is longer.

    Tokens still increase if a node's clock is set back by up to this time. Minimum: 60 s, and on a quorum the time for
    which a restarted node does not vote.
    """

    max_ttl: Seconds | None
    """The longest ttl on a quorum. A restarted node does not vote for this time plus drift. Default: 60 s."""

    min_replicas: int | None
    """The number of replicas that must acknowledge a lock before their node's vote counts. Default: 0."""

    patience: Seconds | None
    """How long too few nodes may answer before a waiting acquire raises `Unavailable`. Default: 5 s."""

    connect_timeout: Seconds | None
    """The time-out of connecting to a server. Default: 2 s."""

    reply_timeout: Seconds | None
    """The time-out of a reply. Default: 2 s."""

    strict: bool | None
    """Whether the nodes of a quorum need `init_nodes()` before their first vote. Default: False."""

    quarantine: bool | None
    """Whether a restarted node of a quorum does not vote for `max_ttl` plus drift. Default: True; False for tests."""

    username: str | None
    """The user name for URLs that have none."""

    password: str | None
    """The password for URLs that have none."""

    ca: str | None
    """A PEM file with the trusted certificates, for `rediss://`. Default: those of the system."""

    cert: str | None
    """A PEM file with this client's certificate."""

    key: str | None
    """A PEM file with this client's private key."""


class SemaphoreOptions(TypedDict, total=False):
    """Options of a semaphore. None means the default."""

    ttl: Seconds | Literal["adaptive"] | None
    """The length of a lease. Default: the client's `watchdog`, renewed until release.

    A time of 50 ms or more is fixed and never renewed. "adaptive" is renewed; its length is learned from how long the
    lock is held.
    """

    wait: Seconds | None
    """How long an acquire waits for the lock. 0: one try. Default: without limit."""

    max_hold: Seconds | None
    """The longest time for which a lease is renewed. Default: without limit."""


class ReadWriteOptions(SemaphoreOptions, total=False):
    """Options of a read/write lock. None means the default."""

    reentrant: bool | None
    """Whether its owner may acquire it again. Default: True. With False that raises `WouldDeadlock`."""


class LockOptions(ReadWriteOptions, total=False):
    """Options of a lock. None means the default."""

    owner: str | None
    """An explicit owner, the same in all processes; 1 to 256 bytes. Default: the thread, greenlet or task."""

    fair: bool | None
    """Whether waiters get the lock in the order in which they asked. Default: False.

    Needs one server, cluster or Sentinel service, and the same setting wherever the name is used.
    """
