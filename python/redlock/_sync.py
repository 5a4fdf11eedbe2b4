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
    """A lock by name, held by the thread that takes it (in an event loop: by the task).

    Use it in a `with` statement, which raises `LockTimeout` when the lock is not obtained in time and yields the
    `Lease`; call `acquire()` and `release()`; or decorate a function with it, which then runs with the lock held.
    """

    __module__ = "redlock"
    __slots__ = ("_client", "_options", "_part")

    _client: Redlock | None
    _options: LockOptions | SemaphoreOptions
    _part: Literal["read", "write"] | tuple[int, int] | None

    def __call__(self, function: Callable[_P, _R], /) -> Callable[_P, _R]:
        """Decorate a function: each call takes the lock first and releases it after."""
        # Both take longer to import than everything else here, and only decorators need them.
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
    """Whether a function, or an object that is called like one, is of this kind."""
    return kind(function) or kind(type(function).__call__)


def make_lock(
    client: Redlock | None,
    name: str,
    options: LockOptions | SemaphoreOptions,
    part: Literal["read", "write"] | tuple[int, int] | None = None,
) -> Lock:
    """Make a lock of a client, or of the default client; or a part of a read/write lock."""
    lock = Lock(None if client is None else client._native, name, part, **options)
    lock._client = client
    lock._options = options
    lock._part = part
    return lock


class ReadWriteLock(BaseReadWriteLock):
    """A read/write lock by name: many threads may read at once, or one may write.

    On one server a writer that waits lets the readers inside finish and keeps new ones behind it; when it ends, all
    readers that wait come in, and then the next writer: nobody starves. On a quorum no order is promised.
    """

    __module__ = "redlock"
    __slots__ = ()

    _read: Lock
    _write: Lock

    def __init__(self, client: Redlock | None, name: str, **options: Unpack[ReadWriteOptions]) -> None:
        self._read = make_lock(client, name, options, "read")
        self._write = make_lock(client, name, options, "write")

    def read(self) -> Lock:
        """Return what readers take. Whoever writes has this, too, without a round trip."""
        return self._read

    def write(self) -> Lock:
        """Return what a writer takes. For whoever reads that raises `WouldDeadlock`: see `Lease.try_upgrade()`."""
        return self._write


class Semaphore(BaseSemaphore):
    """A semaphore by name: at most `permits` slots of it are held at once, everywhere.

    Slots are numbered from 0: while a permit is held nobody else has its slots. They go to those who want them in the
    order in which they asked; what needs several gets them at once, and is not overtaken. A permit is a `Lease`, with
    `slots` and `tokens`; whoever has one may take more, and any thread may release it. Needs one server, cluster or
    Sentinel service.
    """

    __module__ = "redlock"
    __slots__ = ()

    _one: Lock
    _several: dict[int, Lock]

    def __init__(self, client: Redlock | None, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> None:
        self.permits = permits
        self._one = make_lock(client, name, options, (1, permits))
        self._several = {1: self._one}

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None, *, n: int = 1) -> _native.Lease | None:
        """Take `n` slots at once, blocking the calling thread or greenlet.

        `timeout`, in seconds or as a `timedelta`: None waits as long as the semaphore's own `wait`, -1 for ever, 0
        tries once, as `blocking=False` does. Returns a `Lease`, or None when too few are free to the end.

        Raises `Unavailable`, `KeyConflict`, `InvalidArgument` and `Closed`.
        """
        return self._taking(n).acquire(blocking, timeout)

    def _taking(self, n: int) -> Lock:
        known = self._several.get(n)
        if known is None:
            known = make_lock(self._one._client, self.name, self._one._options, (n, self.permits))
            self._several[n] = known
        return known

    def release(self) -> str:
        """Release the newest permit of the calling thread, greenlet or task, as `Lease.release()` does.

        Raises `NotHeld` when it has none.
        """
        return self._one.release()

    def available(self) -> int:
        """Return how many slots are free; others may wait for them. Raises `Unavailable` and `KeyConflict`."""
        return self._one._available()

    def locked(self) -> bool:
        """Whether no slot is free. Raises `Unavailable` and `KeyConflict`."""
        return self.available() == 0

    def __enter__(self) -> _native.Lease:
        return self._one.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self._one.__exit__(kind, error, traceback)


class Redlock(BaseClient):
    """A client of one Redis node, or of several that vote.

    `urls` is one URL or a list: `redis://[user:password@]host[:port][/db]`, `rediss://…` (TLS), `unix://path`,
    `redis+cluster://host[:port],…`, `redis+sentinel://host[:port],…/name[/db]` (both also with TLS, as `rediss+…`) or
    `memory://[name]` (inside this process, for tests). See `ClientOptions` for the options. The constructor sends
    nothing and raises `InvalidArgument`. Threads may share a client; in a `with` statement it is closed at the end.
    """

    __module__ = "redlock"
    __slots__ = ()

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Return the lock of this name, 1 to 1024 bytes of UTF-8 with the client's prefix.

        See `LockOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return make_lock(self, name, options)

    def read_write_lock(self, name: str, **options: Unpack[ReadWriteOptions]) -> ReadWriteLock:
        """Return the read/write lock of this name, 1 to 1024 bytes of UTF-8 with the client's prefix.

        See `ReadWriteOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return ReadWriteLock(self, name, **options)

    def semaphore(self, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Semaphore:
        """Return the semaphore of this name, with 1 to 65536 permits.

        See `SemaphoreOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return Semaphore(self, name, permits, **options)

    def attach(self, text: str) -> _native.Lease:
        """Take over a lease from the text of its `detach()`, once.

        Raises `LockLost` when it ended or was attached before, `Unavailable`, and `InvalidArgument` for another text.
        """
        return self._native.attach(text)

    def force_release(self, name: str) -> bool:
        """Free a lock whoever holds it, and tell whether anybody did.

        Its holder learns of it at its next renewal: only fencing tokens protect a resource until then.
        Raises `Unavailable` and `KeyConflict`.
        """
        return self._native.force_release(name)

    def ping(self) -> list[_native.NodeStatus]:
        """Ask every node for a sign of life. Raises only `Closed`."""
        return self._native.ping()

    def init_nodes(self) -> None:
        """Let all nodes of a quorum vote at once, also those that restarted: right only while no lock can be held.

        Raises `Unavailable`.
        """
        self._native.init_nodes()

    def close(self) -> None:
        """Release what this client holds, within a second, and disconnect. Later calls raise `Closed`.

        Detached leases, and fixed leases of explicit owners, live on.
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

    The client is found at the first use of the lock. See `LockOptions` for the options. Raises `InvalidArgument`.
    """
    return make_lock(None, name, options)


def read_write_lock(name: str, **options: Unpack[ReadWriteOptions]) -> ReadWriteLock:
    """Return the read/write lock of this name on the default client, which `configure()` sets.

    The client is found at the first use of the lock. See `ReadWriteOptions` for the options. Raises `InvalidArgument`.
    """
    return ReadWriteLock(None, name, **options)


def semaphore(name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> Semaphore:
    """Return the semaphore of this name on the default client, which `configure()` sets.

    The client is found at its first use. See `SemaphoreOptions` for the options. Raises `InvalidArgument`.
    """
    return Semaphore(None, name, permits, **options)
