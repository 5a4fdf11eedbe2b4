"""Locks for asyncio: the names of `redlock`, to be used with `await` and `async with`.

A lock is held by the task that calls `acquire()`. The event loop itself watches the connection to a single server;
what else the core's threads have to tell comes the same way, so that none of them ever takes the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import functools
import os
import weakref

from redlock import _native
from redlock._client import BaseClient, BaseReadWriteLock, BaseSemaphore, configure
from redlock._native import LockInfo, NodeStatus
from redlock._sync import is_any
from redlock.errors import (
    Closed,
    InvalidArgument,
    KeyConflict,
    LockError,
    LockLost,
    LockTimeout,
    NoEventLoop,
    NotHeld,
    Unavailable,
    WouldDeadlock,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import TracebackType
    from typing import Any, Literal, ParamSpec, TypeVar

    from typing_extensions import Self, Unpack

    from redlock._options import LockOptions, ReadWriteOptions, Seconds, SemaphoreOptions

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "Closed",
    "InvalidArgument",
    "KeyConflict",
    "Lease",
    "Lock",
    "LockError",
    "LockInfo",
    "LockLost",
    "LockTimeout",
    "Lost",
    "NoEventLoop",
    "NodeStatus",
    "NotHeld",
    "ReadWriteLock",
    "Redlock",
    "Semaphore",
    "Unavailable",
    "WouldDeadlock",
    "configure",
    "lock",
    "read_write_lock",
    "semaphore",
]


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that runs. Raises `NoEventLoop`."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise NoEventLoop(
            "redlock.asyncio needs an event loop of asyncio, and none runs in this thread; elsewhere, such as under "
            "trio, use redlock itself in a thread (trio.to_thread.run_sync)"
        ) from None


def _begin(loop: asyncio.AbstractEventLoop) -> _native.Loop:
    """Make what a loop's calls begin with. The loop owns it: what is waited for there must not outlive the loop."""
    calls = _native.Loop(hosted=True)
    try:
        loop.add_reader(calls.fileno(), calls.drain, False)
    except NotImplementedError:
        # Loops that cannot watch a descriptor, as on Windows, get a thread that does, for as long as they live.
        from redlock import _process

        calls = _native.Loop(hosted=False)
        pipe = calls.pipe
        assert pipe
        _process.run("redlock-loop", functools.partial(_watch, weakref.ref(loop), weakref.ref(calls), pipe), pipe.stop)
        weakref.finalize(calls, pipe.stop).atexit = False
    else:
        os.set_blocking(calls.fileno(), False)
    loop._redlock_calls = calls  # type: ignore[attr-defined]
    return calls


def _watch(
    loop: weakref.ref[asyncio.AbstractEventLoop], calls: weakref.ref[_native.Loop], pipe: _native.Pipe, /
) -> None:
    while pipe.wait():
        known_loop, known_calls = loop(), calls()
        if known_loop is None or known_calls is None:
            return
        try:
            known_loop.call_soon_threadsafe(known_calls.drain, True)
        except RuntimeError:
            # The loop was closed.
            return
        del known_loop, known_calls


class Lost:
    """Tells whether, and when, a lease is lost; used like an `asyncio.Event`. A released lease is not lost."""

    __slots__ = ("_lease",)

    def __init__(self, lease: _native.Lease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._lease.lost.is_set()

    @property
    def reason(self) -> str | None:
        """Why it was lost, or None."""
        return self._lease.lost.reason

    async def wait(self) -> bool:
        """Wait until the lease ends. Return True when it was lost, False when it was released."""
        lost: bool = await _native.Calls.lost(self._lease)
        return lost

    def __bool__(self) -> bool:
        return self.is_set()

    def __repr__(self) -> str:
        return repr(self._lease.lost)


class Lease:
    """A held lock."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.Lease) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The lock's name, without the client's prefix."""
        return self._native.name

    @property
    def owner(self) -> str:
        """The explicit owner, or `uuid:tenure`."""
        return self._native.owner

    @property
    def token(self) -> int:
        """The fencing token, in µs: larger than that of every earlier holder. Needs 64 bits."""
        return self._native.token

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it has of a semaphore; empty for a lock."""
        return self._native.slots

    @property
    def tokens(self) -> tuple[int, ...]:
        """The fencing tokens of its slots, in their order; empty for a lock."""
        return self._native.tokens

    @property
    def held(self) -> bool:
        """Whether the lock is held, right now. Reads a clock and nothing else; once False it stays False."""
        return self._native.held

    @property
    def lost(self) -> Lost:
        """Tells of a loss."""
        return Lost(self._native)

    def remaining(self) -> float:
        """Return the seconds for which it is held unless it is renewed; 0 once it is not."""
        return self._native.remaining()

    def check(self) -> None:
        """Raise `LockLost` after a loss, `NotHeld` after a release or `detach()`."""
        self._native.check()

    def detach(self) -> str:
        """Stop renewing and let go of the lock without releasing it.

        The text is a bearer secret: `attach` of a client with the same nodes takes the lock over from it, once, in
        this process or another.
        """
        return self._native.detach()

    async def extend(self, ttl: Seconds) -> None:
        """Let the lock end `ttl` (seconds or a `timedelta`) from now, never earlier than it would have.

        A renewed lease is renewed on. Raises `LockLost` after a loss, and `Unavailable`, nothing changed, in an outage.
        """
        await _native.Calls.extend(self._native, ttl)

    async def downgrade(self) -> None:
        """Make a reader of a writer of a read/write lock, without anybody else writing in between.

        Readers that wait come in, and the token becomes a reader's. Does nothing for one that reads. Raises `LockLost`
        after a loss, `Unavailable` while too few nodes answer (it reads then, and others may be kept out until it is
        called again), and `InvalidArgument` for a lease of another lock.
        """
        await _native.Calls.downgrade(self._native)

    async def try_upgrade(self) -> bool:
        """Make a writer of a reader of a read/write lock if nobody else reads, and tell whether it is one now.

        Then it has a new token. Never waits. Raises as `downgrade()` does.
        """
        upgraded: bool = await _native.Calls.try_upgrade(self._native)
        return upgraded

    async def release(self) -> str:
        """End this lease; the last one of its owner frees the lock.

        Returns "released", "lost" (it had been lost before) or "unconfirmed" (too few nodes answered; they are asked
        again until the lease ends by itself), and the same when called again. Raises `NotHeld` after `detach()`.
        """
        outcome: str = await _native.Calls.release(self._native)
        return outcome

    async def wait_lost(self) -> bool:
        """Wait until the lease ends. Return True when it was lost, False when it was released."""
        return await self.lost.wait()

    def __repr__(self) -> str:
        return repr(self._native).replace("<redlock.", "<redlock.asyncio.", 1)

    def __reduce__(self) -> Any:
        return self._native.__reduce__()


class Lock:
    """A lock by name, held by the task that takes it.

    Use it in an `async with` statement, which raises `LockTimeout` when the lock is not obtained in time and yields
    the `Lease`; await `acquire()` and `release()`; or decorate an `async def` with it, which then runs with the lock
    held. A loss does not cancel the body: see `Lease.wait_lost`.
    """

    __slots__ = ("__weakref__", "_client", "_native", "_options", "_part")

    def __init__(
        self,
        client: Redlock | None,
        name: str,
        _part: Literal["read", "write"] | tuple[int, int] | None = None,
        **options: Unpack[LockOptions],
    ) -> None:
        self._client = client
        self._options = options
        self._part: Literal["read", "write"] | tuple[int, int] | None = _part
        self._native = _native.Lock(None if client is None else client._native, name, _part, **options)

    @property
    def name(self) -> str:
        """The name, without the client's prefix."""
        return self._native.name

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None) -> Coroutine[Any, Any, Lease | None]:
        """Take the lock for the task that makes this call, whichever awaits it.

        `timeout`, in seconds or as a `timedelta`: None waits as long as the lock's own `wait`, -1 for ever, 0 tries
        once, as `blocking=False` does. Returns a `Lease`, or None when somebody else holds the lock to the end. A
        cancelled call leaves nothing behind.

        Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (this owner holds it and the lock is not re-entrant),
        `LockLost` (this owner held it and lost it), `InvalidArgument` (at once) and `Closed`.
        """
        return self._acquire(self._native.request(blocking, timeout))

    async def _acquire(self, request: _native.Request) -> Lease | None:
        try:
            return Lease(await _native.Calls.acquire(self._native, request))
        except LockTimeout:
            return None

    async def release(self) -> str:
        """Release the newest lease of the current task; as `Lease.release()`.

        A lock with an explicit owner and no lease in this process ends that owner's tenures wherever they were taken.
        Raises `NotHeld` when there is nothing to release.
        """
        outcome: str = await _native.Calls.release_newest(self._native)
        return outcome

    def owned(self) -> bool:
        """Whether the current task holds the lock. Asks nobody."""
        return self._native.owned()

    async def locked(self) -> bool:
        """Whether anybody holds the lock. Raises `Unavailable` when too few nodes answer."""
        locked: bool = await _native.Calls.locked(self._native)
        return locked

    async def inspect(self) -> LockInfo | None:
        """Who holds the lock; None when nobody does. Raises `Unavailable` when too few nodes answer."""
        info: LockInfo | None = await _native.Calls.inspect(self._native)
        return info

    async def __aenter__(self) -> Lease:
        request = self._native.request()
        lease: _native.Lease = await _native.Calls.acquire(self._native, request)
        self._native.entered(request, lease)
        return Lease(lease)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        lease = self._native.left()
        if lease is None:
            return
        try:
            await _native.Calls.leave(lease)
        except LockError:
            # The body's own error is what the caller has to see.
            if kind is None:
                raise

    def __call__(self, function: Callable[_P, Awaitable[_R]], /) -> Callable[_P, Coroutine[Any, Any, _R]]:
        """Decorate an `async def`: each call takes the lock first and releases it after."""
        import inspect

        if not is_any(inspect.iscoroutinefunction, function):
            raise InvalidArgument(f"function: must be an async def, not {function!r}; redlock.lock is for others")

        @functools.wraps(function)
        async def locked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            async with self:
                return await function(*args, **kwargs)

        return locked

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore_lock, (self._client, self.name, self._part, self._options))

    def __repr__(self) -> str:
        part = "" if self._part is None else f" to {self._part}"
        return f"<redlock.asyncio.Lock {self.name!r}{part} of {self._client or 'the default client'}>"


def _restore_lock(
    client: Redlock | None, name: str, part: Literal["read", "write"] | tuple[int, int] | None, options: LockOptions
) -> Lock:
    return Lock(client, name, part, **options)


class ReadWriteLock(BaseReadWriteLock):
    """A read/write lock by name: many tasks may read at once, or one may write.

    On one server a writer that waits lets the readers inside finish and keeps new ones behind it; when it ends, all
    readers that wait come in, and then the next writer: nobody starves. On a quorum no order is promised.
    """

    __slots__ = ()

    _read: Lock
    _write: Lock

    def __init__(self, client: Redlock | None, name: str, **options: Unpack[ReadWriteOptions]) -> None:
        self._read = Lock(client, name, "read", **options)
        self._write = Lock(client, name, "write", **options)

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
    `slots` and `tokens`; whoever has one may take more, and any task may release it. Needs one server, cluster or
    Sentinel service.
    """

    __slots__ = ()

    _one: Lock
    _several: dict[int, Lock]

    def __init__(self, client: Redlock | None, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> None:
        self.permits = permits
        self._one = Lock(client, name, (1, permits), **options)
        self._several = {1: self._one}

    def acquire(
        self, blocking: bool = True, timeout: Seconds | None = None, *, n: int = 1
    ) -> Coroutine[Any, Any, Lease | None]:
        """Take `n` slots at once for the task that makes this call, whichever awaits it.

        `timeout`, in seconds or as a `timedelta`: None waits as long as the semaphore's own `wait`, -1 for ever, 0
        tries once, as `blocking=False` does. Returns a `Lease`, or None when too few are free to the end. A
        cancelled call leaves nothing behind.

        Raises `Unavailable`, `KeyConflict`, `InvalidArgument` (at once) and `Closed`.
        """
        return self._taking(n).acquire(blocking, timeout)

    def _taking(self, n: int) -> Lock:
        known = self._several.get(n)
        if known is None:
            known = Lock(self._one._client, self.name, (n, self.permits), **self._one._options)
            self._several[n] = known
        return known

    async def release(self) -> str:
        """Release the newest permit of the current task, as `Lease.release()` does.

        Raises `NotHeld` when it has none.
        """
        return await self._one.release()

    async def available(self) -> int:
        """Return how many slots are free; others may wait for them. Raises `Unavailable` and `KeyConflict`."""
        free: int = await _native.Calls.available(self._one._native)
        return free

    async def locked(self) -> bool:
        """Whether no slot is free. Raises `Unavailable` and `KeyConflict`."""
        return await self.available() == 0

    async def __aenter__(self) -> Lease:
        return await self._one.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        await self._one.__aexit__(kind, error, traceback)


class Redlock(BaseClient):
    """A client of one Redis node, or of several that vote. It works in every event loop, one after another.

    `urls` is one URL or a list: `redis://[user:password@]host[:port][/db]`, `rediss://…` (TLS), `unix://path`,
    `redis+cluster://host[:port],…`, `redis+sentinel://host[:port],…/name[/db]` (both also with TLS, as `rediss+…`) or
    `memory://[name]` (inside this process, for tests). See `ClientOptions` for the options. The constructor sends
    nothing and raises `InvalidArgument`. In an `async with` statement the client is closed at the end.
    """

    __slots__ = ()

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Return the lock of this name, 1 to 1024 bytes of UTF-8 with the client's prefix.

        See `LockOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return Lock(self, name, **options)

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

    async def attach(self, text: str) -> Lease:
        """Take over a lease from the text of its `detach()`, once.

        Raises `LockLost` when it ended or was attached before, `Unavailable`, and `InvalidArgument` for another text.
        """
        return Lease(await _native.Calls.attach(self._native, text))

    async def force_release(self, name: str) -> bool:
        """Free a lock whoever holds it, and tell whether anybody did.

        Its holder learns of it at its next renewal: only fencing tokens protect a resource until then.
        Raises `Unavailable` and `KeyConflict`.
        """
        released: bool = await _native.Calls.force_release(self._native, name)
        return released

    async def ping(self) -> list[NodeStatus]:
        """Ask every node for a sign of life. Raises only `Closed`."""
        nodes: list[NodeStatus] = await _native.Calls.ping(self._native)
        return nodes

    async def init_nodes(self) -> None:
        """Let all nodes of a quorum vote at once, also those that restarted: right only while no lock can be held.

        Raises `Unavailable`.
        """
        await _native.Calls.init_nodes(self._native)

    async def close(self) -> None:
        """Release what this client holds, within a second, and disconnect. Later calls raise `Closed`.

        Detached leases, and fixed leases of explicit owners, live on.
        """
        await _native.Calls.close(self._native)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        await self.close()


def lock(name: str, **options: Unpack[LockOptions]) -> Lock:
    """Return the lock of this name on the default client, which `configure()` sets.

    The client is found at the first use of the lock. See `LockOptions` for the options. Raises `InvalidArgument`.
    """
    return Lock(None, name, **options)


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
