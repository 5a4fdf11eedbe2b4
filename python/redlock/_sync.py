"""Locks for threads."""

from __future__ import annotations

from redlock import _native
from redlock._client import BaseClient, BaseReadWriteLock, BaseSemaphore
from redlock.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Literal, ParamSpec, TypeVar

    from typing_extensions import Self, Unpack

    from redlock._options import LockOptions, ReadWriteOptions, Seconds, SemaphoreOptions

    _P = ParamSpec("_P")
    _R = TypeVar("_R")


class Lock(_native.Lock):
    """A lock by name. Its owner is the thread that acquires it (in an event loop: the task).

    Use it in a `with` statement, which yields the `Lease` and raises `LockTimeout` if the lock is not free in time. Or
    call `acquire()` and `release()`. Or decorate a function, which then runs with the lock held.

    ```python
    lock = client.lock("report", wait=5)

    with lock as lease:
        build_report(fence=lease.token)


    @lock
    def rebuild() -> None:
        print("held while this runs")


    rebuild()
    ```
    """

    __module__ = "redlock"
    __slots__ = ("_client", "_options", "_part")

    _client: Redlock | None
    _options: LockOptions | SemaphoreOptions
    _part: Literal["read", "write"] | tuple[int, int] | None

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Decorate a function: each call acquires the lock first and releases it at the end."""
        # Imported here: both are slower to import than the rest of the package, and only decorators need them.
        import functools
        import inspect

        if not callable(function):
            raise InvalidArgument(f"function: must be a function, not {function!r}")
        if is_any(inspect.iscoroutinefunction, function):
            raise InvalidArgument("function: is an async def; decorate it with a lock of redlock.asyncio")
        if is_any(inspect.isgeneratorfunction, function) or is_any(inspect.isasyncgenfunction, function):
            raise InvalidArgument("function: is a generator, which would run after the lock was released")

        @functools.wraps(function)
        def locked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self:
                return function(*args, **kwargs)

        return locked

    def __reduce__(self) -> tuple[Any, ...]:
        return (make_lock, (self._client, self.name, self._options, self._part))

    def __repr__(self) -> str:
        part = "" if self._part is None else f" to {self._part}"
        return f"<redlock.Lock {self.name!r}{part} of {self._client or 'the default client'}>"


def is_any(kind: Callable[[object], bool], function: Callable[..., Any]) -> bool:
    """Whether `kind` is true of a function, or of the `__call__` of a callable object."""
    return kind(function) or kind(type(function).__call__)


def make_lock(
    client: Redlock | None,
    name: str,
    options: LockOptions | SemaphoreOptions,
    part: Literal["read", "write"] | tuple[int, int] | None = None,
    sibling: Lock | None = None,
) -> Lock:
    """Make a lock of a client, or of the default client if `client` is None.

    `part`: "read" or "write" of a read/write lock, or `(n, permits)` for n slots of a semaphore. `sibling`: another
    lock of the same read/write lock or semaphore, which has the same default client.
    """
    lock = Lock(None if client is None else client._native, name, part, sibling, **options)
    lock._client = client
    lock._options = options
    lock._part = part
    return lock


class ReadWriteLock(BaseReadWriteLock):
    """A read/write lock by name: many threads may read at once, or one may write.

    On one server readers and writers take turns, so that neither starves. A waiting writer keeps new readers out, and
    acquires the lock once the current readers have released. When the writer releases, all waiting readers acquire the
    lock, and then the next writer. On a quorum no order is promised.

    ```python
    config = client.read_write_lock("config")

    with config.read() as lease:  # beside other readers
        if lease.try_upgrade():  # nobody else reads
            save_config(fence=lease.token)

    with config.write() as lease:  # alone
        save_config(fence=lease.token)
        lease.downgrade()  # a reader from here on
    ```
    """

    __module__ = "redlock"
    __slots__ = ()

    _read: Lock
    _write: Lock

    def __init__(self, client: Redlock | None, name: str, **options: Unpack[ReadWriteOptions]) -> None:
        self._read = make_lock(client, name, options, "read")
        self._write = make_lock(client, name, options, "write", self._read)

    def read(self) -> Lock:
        """Return the lock for readers. The holder of the write lock acquires it without a round trip."""
        return self._read

    def write(self) -> Lock:
        """Return the lock for writers. A reader that acquires it gets `WouldDeadlock`: see `Lease.try_upgrade()`."""
        return self._write


class Semaphore(BaseSemaphore, _native.Blocks):
    """A semaphore by name: all processes together hold at most `permits` slots at once.

    Slots are numbered from 0, and each has one holder at a time. Waiters get slots in the order in which they asked. An
    acquire of several slots gets them all at once, and is not overtaken. On a quorum that holds for the waiters of one
    client only. A permit is a `Lease`, with `slots` and `tokens`. Its holder may acquire more permits, and any thread
    may release it.

    ```python
    gpus = client.semaphore("gpu", permits=4)

    with gpus as permit:  # one slot
        run(device=permit.slots[0], fence=permit.tokens[0])

    if permit := gpus.acquire(timeout=5, n=2):  # two slots at once
        permit.release()
    ```
    """

    __module__ = "redlock"
    __slots__ = ("_permits", "_several")

    _several: dict[int, Lock]

    def __new__(cls, client: Redlock | None, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Self:
        """Make a semaphore of a client, or of the default client if `client` is None."""
        one = make_lock(client, name, options, (1, permits))
        semaphore = super().__new__(cls, one)
        semaphore._permits = permits
        semaphore._several = {1: one}
        return semaphore

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None, *, n: int = 1) -> _native.Lease | None:
        """Acquire `n` slots at once, blocking the calling thread or greenlet.

        `timeout` is in seconds or a `timedelta`: None, the default, waits for the semaphore's own `wait`, -1 without
        limit, 0 tries once, as `blocking=False` does, which allows no `timeout`. Returns a `Lease`, or None if too few
        slots are free by then.

        `n` is from 1 to `permits`. Raises `Unavailable`, `KeyConflict`, `InvalidArgument` and `Closed`.
        """
        lock: Lock = self._taking(n)
        return lock.acquire(blocking, timeout)

    def _make(self, n: int) -> Lock:
        return make_lock(self._one._client, self.name, self._one._options, (n, self._permits), self._one)

    def release(self) -> str:
        """Release the newest permit of the calling thread, greenlet or task, as `Lease.release()` does.

        Raises `NotHeld` if it has none, and `Closed`.
        """
        outcome: str = self._one.release()
        return outcome

    def available(self) -> int:
        """Return the number of free slots; waiters may be queued for them.

        Raises `Unavailable`, `KeyConflict` and `Closed`.
        """
        free: int = self._one._available()
        return free

    def locked(self) -> bool:
        """Whether no slot is free. Raises `Unavailable`, `KeyConflict` and `Closed`."""
        return self.available() == 0


class Redlock(BaseClient):
    """A client of one Redis node, or of several that vote.

    `urls` is one URL or a list: `redis://[user:password@]host[:port][/db]`, `rediss://…` (TLS), `unix://path`,
    `redis+cluster://host[:port],…`, `redis+sentinel://host[:port],…/name[/db]` (both also with TLS, as `rediss+…`) or
    `memory://[name]` (inside this process, for tests). The constructor sends nothing and raises `InvalidArgument`.
    Threads may share a client. A `with` statement closes it at its end.

    ```python
    client = redlock.Redlock(["redis://a", "redis://b", "redis://c"], watchdog=10)  # a quorum of three nodes
    with client.lock("report") as lease:
        build_report(fence=lease.token)
    ```

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

    __module__ = "redlock"
    __slots__ = ()

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Return the lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together.

        See `LockOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return make_lock(self, name, options)

    def read_write_lock(self, name: str, **options: Unpack[ReadWriteOptions]) -> ReadWriteLock:
        """Return the read/write lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together.

        See `ReadWriteOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return ReadWriteLock(self, name, **options)

    def semaphore(self, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Semaphore:
        """Return the semaphore of this name, with 1 to 65536 permits. Names are those of `lock()`.

        See `SemaphoreOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return Semaphore(self, name, permits, **options)

    def attach(self, text: str) -> _native.Lease:
        """Take over a detached lease. `text` is what its `detach()` returned; it works once.

        Raises `LockLost` if the lease has ended or was attached before, `Unavailable` and `Closed`, after which the
        text still works, and `InvalidArgument` for any other text.

        ```python
        lease = client.lock("order:42", ttl=600).acquire()
        text = lease.detach()
        lease = client.attach(text)  # in another process, too
        lease.release()
        ```
        """
        return self._native.attach(text)

    def force_release(self, name: str) -> bool:
        """Free a lock, whoever holds it. Return whether it was held.

        The holder notices at its next renewal; until then only fencing tokens protect the resource.
        Raises `Unavailable`, `KeyConflict`, `InvalidArgument` and `Closed`.

        ```python
        was_held = client.force_release("report")
        ```
        """
        return self._native.force_release(name)

    def ping(self) -> list[_native.NodeStatus]:
        """Ping every node, for `reply_timeout` at most, and return the status of each. Raises only `Closed`.

        ```python
        down = [node for node in client.ping() if not node.ok]
        ```
        """
        return self._native.ping()

    def init_nodes(self) -> None:
        """Let all nodes of a quorum vote at once, including restarted ones.

        Safe only while no lock can be held, as in a new deployment. Raises `Unavailable` if any node does not answer,
        and `Closed`.
        """
        self._native.init_nodes()

    def close(self) -> None:
        """Release all locks of this client, within a second, and disconnect. Later calls raise `Closed`.

        Detached leases, and fixed leases of explicit owners, are not released.
        """
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.close()


def lock(name: str, **options: Unpack[LockOptions]) -> Lock:
    """Return the lock of this name on the default client, which `configure()` sets.

    Prefix and name have 1 to 1024 bytes of UTF-8 together. See `LockOptions` for the options. The lock takes the
    default client of its first use. Sends nothing. Raises `InvalidArgument`.
    """
    return make_lock(None, name, options)


def read_write_lock(name: str, **options: Unpack[ReadWriteOptions]) -> ReadWriteLock:
    """Return the read/write lock of this name on the default client, which `configure()` sets.

    Prefix and name have 1 to 1024 bytes of UTF-8 together. See `ReadWriteOptions` for the options. The lock takes the
    default client of its first use. Sends nothing. Raises `InvalidArgument`.
    """
    return ReadWriteLock(None, name, **options)


def semaphore(name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Semaphore:
    """Return the semaphore of this name on the default client, which `configure()` sets.

    It has 1 to 65536 permits. Prefix and name have 1 to 1024 bytes of UTF-8 together. See `SemaphoreOptions` for the
    options. The semaphore takes the default client of its first use. Sends nothing. Raises `InvalidArgument`.
    """
    return Semaphore(None, name, permits, **options)
