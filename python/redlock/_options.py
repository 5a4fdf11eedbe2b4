"""The options of clients and locks: names and types. The core has the defaults and validates the values.

`scripts/options` of the repository writes the lists in the docstrings, from docs/options.json.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias, TypedDict

Seconds: TypeAlias = float | timedelta
"""A duration: a number of seconds, or a `timedelta`. Each argument states its own range."""


class ClientOptions(TypedDict, total=False):
    """Options of a client. Times are seconds or a `timedelta`, 10 years at most.

    Options, as keyword arguments; a time is a number of seconds or a `timedelta`, and None means the default:

    - `watchdog`: the ttl of the leases that the watchdog renews. Default: 30 s.
    - `drift`: how much faster a server's clock may run than the clock of this process, as a share. Default: 0.1.
    - `patience`: how long a waiting acquire tries again while fewer nodes than the quorum answer. Default: 5 s.
    - `connect_timeout`: the time limit for opening a connection, with TLS and login. Default: 2 s.
    - `reply_timeout`: the time limit for a reply of a node. Default: 2 s.
    - `quorum`: how many nodes must agree. Default: a majority.
    - `max_ttl`: the longest ttl of a lease on a quorum. Default: 60 s.
    - `strict`: whether a new deployment of a quorum needs `init_nodes()`. Default: False.
    - `quarantine`: whether a node that lost its keys does not vote until all earlier leases are over. Default: True.
    - `min_replicas`: how many replicas of a node must acknowledge a lock (`WAIT`). Default: 0.
    - `prefix`: a text that the client puts before the name of every lock. Default: empty.
    - `wire`: the format in which an exclusive lock is written on the server. Default: "redisson".
    - `token_key`: the key of a lock's token counter. Default: "redlock".
    - `token_ttl`: how long a token counter is kept after its last use. Default: an hour, or the quarantine if longer.
    - `identify`: whether the client names its connections (`CLIENT SETNAME`) and reads the names of others (`CLIENT
      LIST`). Default: True.
    - `app`: the name of the program that other processes see, such as that of the service. Default: `REDLOCK_APP`.
    - `username`: the user of the server, for each node whose URL names none. Default: none.
    - `password`: the password of the server, for each node whose URL has none. Default: none.
    - `ca`: the CA certificates to trust: PEM text, or the path of a PEM file. Default: those of the system.
    - `cert`: the certificate of this client: PEM text, or the path of a PEM file. Default: none.
    - `key`: the private key of `cert`: PEM text, or the path of a PEM file. Default: none.
    """

    quorum: int | None
    """The number of nodes that must agree, from a majority to all. Default: a majority."""

    watchdog: Seconds | None
    """The ttl of leases that the watchdog renews until release: 0.3 s or more, and on a quorum at most `max_ttl`.

    Default: 30 s, or on a quorum `max_ttl` if that is shorter.
    """

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
    """How long a token counter is kept after its last use: 60 s or more, and on a quorum at least the quarantine.

    Tokens still increase if a node's clock is set back by up to this time. The quarantine is the time for which a
    restarted node does not vote. Default: an hour, or the quarantine if that is longer.
    """

    max_ttl: Seconds | None
    """The longest ttl on a quorum, 0.05 s or more, on a quorum 0.3 s or more.

    A restarted node does not vote for this time plus drift.

    Default: 60 s.
    """

    min_replicas: int | None
    """The number of replicas, 0 to 1000, that must acknowledge a lock before their node's vote counts. Default: 0."""

    patience: Seconds | None
    """How long too few nodes may answer before a waiting acquire raises `Unavailable`: 1 ms or more. Default: 5 s."""

    connect_timeout: Seconds | None
    """The time-out of connecting to a server: 1 ms or more. Default: 2 s."""

    reply_timeout: Seconds | None
    """The time-out of a reply: 1 ms or more. Default: 2 s."""

    strict: bool | None
    """Whether the nodes of a quorum need `init_nodes()` before their first vote. Default: False."""

    quarantine: bool | None
    """Whether a restarted node of a quorum does not vote for `max_ttl` plus drift. Default: True; False for tests."""

    identify: bool | None
    """Whether the client names its connections and reads those of others, to tell who holds a lock. Default: True."""

    app: str | None
    """The name of the program that other processes see; 1 to 64 bytes.

    Default: the environment variable `REDLOCK_APP`, else `OTEL_SERVICE_NAME`, else the name of the script.
    """

    username: str | None
    """The user name for URLs that have none. Default: none."""

    password: str | None
    """The password for URLs that have none. Default: none."""

    ca: str | None
    """The certificates to trust, for `rediss://`: PEM text, or the path of a PEM file. Default: those of the system."""

    cert: str | None
    """This client's certificate: PEM text, or the path of a PEM file; needs `key`. Default: none."""

    key: str | None
    """This client's private key: PEM text, or the path of a PEM file; needs `cert`. Default: none."""


class SemaphoreOptions(TypedDict, total=False):
    """Options of a semaphore. Times are seconds or a `timedelta`, 10 years at most.

    Options, as keyword arguments; a time is a number of seconds or a `timedelta`, and None means the default:

    - `ttl`: the ttl of a lease, and whether the watchdog renews it. Default: the client's `watchdog`, renewed until
      release.
    - `wait`: how long an acquire waits for the lock. Default: without limit.
    - `max_hold`: the longest time for which the watchdog keeps the lock. Default: without limit.
    """

    ttl: Seconds | Literal["adaptive"] | None
    """The length of a lease. Default: the client's `watchdog`, renewed until release.

    A time of 50 ms or more is fixed and never renewed; on a quorum it is at most `max_ttl`. "adaptive" is renewed; its
    length is four times the average hold of the lock, from 2 s to `watchdog`.
    """

    wait: Seconds | None
    """How long an acquire waits for the lock. 0: one try. Default: without limit."""

    max_hold: Seconds | None
    """The longest time for which a lease is renewed: 50 ms or more, not with a fixed ttl. Default: without limit."""


class ReadWriteOptions(SemaphoreOptions, total=False):
    """Options of a read/write lock. Times are seconds or a `timedelta`, 10 years at most.

    Options, as keyword arguments; a time is a number of seconds or a `timedelta`, and None means the default:

    - `ttl`: the ttl of a lease, and whether the watchdog renews it. Default: the client's `watchdog`, renewed until
      release.
    - `wait`: how long an acquire waits for the lock. Default: without limit.
    - `max_hold`: the longest time for which the watchdog keeps the lock. Default: without limit.
    - `min_hold`: for how long the lock stays taken at least, counted from its grant, however early it is released.
      Default: a release frees the lock.
    - `reentrant`: whether the owner may acquire the lock again while it holds it. Default: True.
    """

    min_hold: Seconds | None
    """The least time for which the lock stays taken, from its grant, however early it is released: 50 ms or more.

    After the release nobody holds the lock, and everybody waits for the rest. On a quorum at most `max_ttl`; at most
    `max_hold` or a fixed ttl; not with an `owner`. Default: a release frees the lock. Readers have none.
    """

    reentrant: bool | None
    """Whether its owner may acquire it again. Default: True. With False that raises `WouldDeadlock`."""


class LockOptions(ReadWriteOptions, total=False):
    """Options of a lock. Times are seconds or a `timedelta`, 10 years at most.

    Options, as keyword arguments; a time is a number of seconds or a `timedelta`, and None means the default:

    - `ttl`: the ttl of a lease, and whether the watchdog renews it. Default: the client's `watchdog`, renewed until
      release.
    - `wait`: how long an acquire waits for the lock. Default: without limit.
    - `max_hold`: the longest time for which the watchdog keeps the lock. Default: without limit.
    - `min_hold`: for how long the lock stays taken at least, counted from its grant, however early it is released.
      Default: a release frees the lock.
    - `reentrant`: whether the owner may acquire the lock again while it holds it. Default: True.
    - `owner`: an explicit owner, which is the same owner in every process and language. Default: the thread, greenlet
      or task.
    - `fair`: whether waiters get the lock in the order of their acquires, in all processes. Default: False.
    """

    owner: str | None
    """An explicit owner, the same in all processes; 1 to 256 bytes. Default: the thread, greenlet or task."""

    fair: bool | None
    """Whether waiters get the lock in the order in which they asked. Default: False.

    Needs one server, cluster or Sentinel service, and the same setting wherever the name is used.
    """
