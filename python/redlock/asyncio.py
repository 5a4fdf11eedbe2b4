"""Locks for asyncio: the names of `redlock`, to be used with `await` and `async with`.

```python
import asyncio

import redlock.asyncio


async def main() -> None:
    async with redlock.asyncio.lock("report", wait=5) as lease:
        print("building under token", lease.token)


asyncio.run(main())
```

The owner of a lock is the task that calls `acquire()`. The event loop watches one descriptor, which is readable when
the server of a client with one node has replied or, for other calls, when a thread of the core has a result. So no
thread of the core ever takes the GIL.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
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
    from types import FrameType, TracebackType
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
    """Return the running event loop. Raises `NoEventLoop`."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise NoEventLoop(
            "redlock.asyncio needs an event loop of asyncio, and none runs in this thread; elsewhere, such as under "
            "trio, use redlock itself in a thread (trio.to_thread.run_sync)"
        ) from None


def _begin(loop: asyncio.AbstractEventLoop) -> _native.Loop:
    """Make the object that starts a loop's calls. The loop owns it: its pending calls must not outlive the loop."""
    calls = _native.Loop(hosted=True)
    try:
        loop.add_reader(calls.fileno(), calls.drain, False)
    except NotImplementedError:
        # The loop cannot watch a descriptor, as on Windows. A thread waits in its place, for as long as the loop lives.
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
    """An event that is set when a lease is lost; used like an `asyncio.Event`. A release does not set it."""

    __slots__ = ("_lease",)

    def __init__(self, lease: _native.Lease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._lease.lost.is_set()

    @property
    def reason(self) -> str | None:
        """The reason, as in `LockLost.reason`, or None."""
        return self._lease.lost.reason

    async def wait(self) -> bool:
        """Wait until the lease ends. Return True if it was lost, False if it was released or detached."""
        lost: bool = await _native.Calls.lost(self._lease)
        return lost

    def __bool__(self) -> bool:
        return self.is_set()

    def __repr__(self) -> str:
        return repr(self._lease.lost)


class Lease:
    """A held lock, or the permit of a semaphore, as an acquire returns it.

    It ends with its release, or at its deadline unless it is renewed or extended.

    ```python
    async with client.lock("import") as lease:
        for batch in ([1, 2], [3]):
            lease.check()  # raises LockLost once the lock is lost
            await load(batch, fence=lease.token)
    ```
    """

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
        """The numbers of its semaphore slots; empty for a lock."""
        return self._native.slots

    @property
    def tokens(self) -> tuple[int, ...]:
        """The fencing tokens of its slots, in the same order; empty for a lock."""
        return self._native.tokens

    @property
    def held(self) -> bool:
        """Whether the lock is held now. Reads a clock and sends nothing; once False it stays False."""
        return self._native.held

    @property
    def lost(self) -> Lost:
        """The event that is set when this lease is lost; used like an `asyncio.Event`."""
        return Lost(self._native)

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0 once it has ended."""
        return self._native.remaining()

    def check(self) -> None:
        """Raise `LockLost` after a loss, `NotHeld` after a release or `detach()`. Sends nothing."""
        self._native.check()

    def detach(self) -> str:
        """End this lease without releasing the lock. Return a text for `attach()`.

        A client with the same nodes, in this process or another, can attach the text once, before the ttl ends. Nobody
        renews the lock until then. The text is a secret: whoever has it can take the lock. Raises as `check()` does,
        and `InvalidArgument` for a lease with nested leases.
        """
        return self._native.detach()

    async def extend(self, ttl: Seconds) -> None:
        """Let the lease end `ttl` (seconds or a `timedelta`) from now. Never shortens it.

        `ttl` is from 0.05 s to 10 years, and on a quorum at most the client's `max_ttl`. The watchdog keeps renewing a
        renewed lease. Raises `LockLost` after a loss, `NotHeld` after a release or `detach()`, `InvalidArgument`,
        `KeyConflict` if the key holds a value that is not a lock, and `Unavailable` if too few nodes answer; the lease
        is unchanged then.

        ```python
        async with client.lock("import", ttl=10) as lease:
            await lease.extend(60)  # it ends 60 s from now
        ```
        """
        await _native.Calls.extend(self._native, ttl)

    async def downgrade(self) -> None:
        """Change a writer's lease of a read/write lock into a reader's. No other writer gets in between.

        Waiting readers acquire the lock, and the token becomes a reader's. Does nothing for a reader's lease. Raises
        `LockLost` after a loss, `NotHeld` after a release or `detach()`, `InvalidArgument` for a lease of another kind
        of lock, and `KeyConflict` if the key holds a value that is not a lock. Raises `Unavailable` if too few nodes
        answer: the lease is a reader's then, but others may be kept out until `downgrade()` is called again.
        """
        await _native.Calls.downgrade(self._native)

    async def try_upgrade(self) -> bool:
        """Change a reader's lease of a read/write lock into a writer's if nobody else reads.

        Returns whether it is a writer's lease now; if so it has a new token. Never waits. Raises as `downgrade()` does.
        """
        upgraded: bool = await _native.Calls.try_upgrade(self._native)
        return upgraded

    async def release(self) -> str:
        """Release this lease. The last lease of its owner frees the lock.

        Returns "released", "lost" (it had been lost before) or "unconfirmed" (too few nodes answered; the release is
        sent again in the background until the lease would have ended). A second call returns the same. Raises `NotHeld`
        after `detach()`.
        """
        outcome: str = await _native.Calls.release(self._native)
        return outcome

    async def wait_lost(self) -> bool:
        """Wait until the lease ends. Return True if it was lost, False if it was released or detached.

        ```python
        lease = await client.lock("report").acquire()
        watcher = asyncio.create_task(lease.wait_lost())
        await lease.release()
        if await watcher:
            print("lost:", lease.lost.reason)
        ```
        """
        return await self.lost.wait()

    def __repr__(self) -> str:
        return repr(self._native).replace("<redlock.", "<redlock.asyncio.", 1)

    def __reduce__(self) -> Any:
        return self._native.__reduce__()


class Lock:
    """A lock by name. Its owner is the task that acquires it.

    Use it in an `async with` statement, which yields the `Lease` and raises `LockTimeout` if the lock is not free in
    time. Or await `acquire()` and `release()`. Or decorate an `async def`, which then runs with the lock held. A loss
    does not cancel the body: see `Lease.wait_lost`.

    ```python
    lock = client.lock("report", wait=5)

    async with lock as lease:
        await build_report(fence=lease.token)


    @lock
    async def rebuild() -> None:
        print("held while this runs")


    await rebuild()
    ```
    """

    __slots__ = ("__weakref__", "_client", "_native", "_options", "_part")

    def __init__(
        self,
        client: Redlock | None,
        name: str,
        _part: Literal["read", "write"] | tuple[int, int] | None = None,
        _sibling: Lock | None = None,
        **options: Unpack[LockOptions],
    ) -> None:
        self._client = client
        self._options = options
        self._part: Literal["read", "write"] | tuple[int, int] | None = _part
        native = None if client is None else client._native
        sibling = None if _sibling is None else _sibling._native
        self._native: _native.Lock = _native.Lock(native, name, _part, sibling, **options)

    @property
    def name(self) -> str:
        """The name, without the client's prefix."""
        return self._native.name

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None) -> Coroutine[Any, Any, Lease | None]:
        """Acquire the lock. The owner is the task that makes this call, whichever task awaits it.

        `timeout` is in seconds or a `timedelta`: None, the default, waits for the lock's own `wait`, -1 without limit,
        0 tries once, as `blocking=False` does, which allows no `timeout`. Returns a `Lease`, or None if another owner
        still holds the lock by then. A cancelled call leaves no lock behind.

        Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (this owner holds it and the lock is not re-entrant),
        `LockLost` (this owner held it and lost it), `InvalidArgument` (before the await) and `Closed`.

        ```python
        if lease := await client.lock("report").acquire(timeout=2.5):
            await lease.release()
        ```
        """
        return self._acquire(self._native.request(blocking, timeout))

    async def _acquire(self, request: _native.Request) -> Lease | None:
        try:
            return Lease(await _native.Calls.acquire(self._native, request))
        except LockTimeout:
            return None

    def release(self) -> Coroutine[Any, Any, str]:
        """Release the newest lease of the task that makes this call, as `Lease.release()` does.

        If the lock has an explicit owner and this process has no lease of it, the release ends all tenures of that
        owner, in every process; only then it raises `Unavailable` if too few nodes answer. Raises `NotHeld` if there is
        nothing to release, and `Closed`.
        """
        return self._release(self._native.request())

    async def _release(self, request: _native.Request) -> str:
        outcome: str = await _native.Calls.release_newest(self._native, request)
        return outcome

    def owned(self) -> bool:
        """Whether the current task holds the lock. Sends nothing."""
        return self._native.owned()

    async def locked(self) -> bool:
        """Whether anybody holds the lock, in any process.

        Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.
        """
        locked: bool = await _native.Calls.locked(self._native)
        return locked

    async def inspect(self) -> LockInfo | None:
        """Return who holds the lock, or None if it is free.

        Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.

        ```python
        if info := await client.lock("report").inspect():
            print(info.app, info.pid, info.host, info.since)
        ```
        """
        info: LockInfo | None = await _native.Calls.inspect(self._native)
        return info

    # The frame that calls `__aenter__` and `__aexit__` identifies the block, so neither is an `async def`.

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        return self._enter(self._native.request(), sys._getframe(1))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]:
        return self._leave(self._native.end_block(sys._getframe(1)), kind)

    async def _enter(self, request: _native.Request, frame: FrameType) -> Lease:
        lease: _native.Lease = await _native.Calls.acquire(self._native, request)
        self._native.begin_block(request, frame, lease)
        return Lease(lease)

    async def _leave(self, lease: _native.Lease | None, kind: type[BaseException] | None) -> None:
        if lease is None:
            return
        try:
            await _native.Calls.leave(lease)
        except LockError:
            # The body's own error must not be masked.
            if kind is None:
                raise

    def __call__(self, function: Callable[_P, Awaitable[_R]], /) -> Callable[_P, Coroutine[Any, Any, _R]]:
        """Decorate an `async def`: each call acquires the lock first and releases it at the end."""
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

    On one server readers and writers take turns, so that neither starves. A waiting writer keeps new readers out, and
    acquires the lock once the current readers have released. When the writer releases, all waiting readers acquire the
    lock, and then the next writer. On a quorum no order is promised.

    ```python
    config = client.read_write_lock("config")

    async with config.read() as lease:  # beside other readers
        if await lease.try_upgrade():  # nobody else reads
            await save_config(fence=lease.token)

    async with config.write() as lease:  # alone
        await save_config(fence=lease.token)
        await lease.downgrade()  # a reader from here on
    ```
    """

    __slots__ = ()

    _read: Lock
    _write: Lock

    def __init__(self, client: Redlock | None, name: str, **options: Unpack[ReadWriteOptions]) -> None:
        self._read = Lock(client, name, "read", **options)
        self._write = Lock(client, name, "write", self._read, **options)

    def read(self) -> Lock:
        """Return the lock for readers. The holder of the write lock acquires it without a round trip."""
        return self._read

    def write(self) -> Lock:
        """Return the lock for writers. A reader that acquires it gets `WouldDeadlock`: see `Lease.try_upgrade()`."""
        return self._write


class Semaphore(BaseSemaphore):
    """A semaphore by name: all processes together hold at most `permits` slots at once.

    Slots are numbered from 0, and each has one holder at a time. Waiters get slots in the order in which they asked. An
    acquire of several slots gets them all at once, and is not overtaken. On a quorum that holds for the waiters of one
    client only. A permit is a `Lease`, with `slots` and `tokens`. Its holder may acquire more permits, and any task may
    release it.

    ```python
    gpus = client.semaphore("gpu", permits=4)

    async with gpus as permit:  # one slot
        await run(device=permit.slots[0], fence=permit.tokens[0])

    if permit := await gpus.acquire(timeout=5, n=2):  # two slots at once
        await permit.release()
    ```
    """

    __slots__ = ("__weakref__", "_one", "_permits", "_several")

    _one: Lock
    _several: dict[int, Lock]

    def __init__(self, client: Redlock | None, name: str, permits: int, **options: Unpack[SemaphoreOptions]) -> None:
        self._permits = permits
        self._one = Lock(client, name, (1, permits), **options)
        self._several = {1: self._one}

    def acquire(
        self, blocking: bool = True, timeout: Seconds | None = None, *, n: int = 1
    ) -> Coroutine[Any, Any, Lease | None]:
        """Acquire `n` slots at once. The owner is the task that makes this call, whichever task awaits it.

        `timeout` is in seconds or a `timedelta`: None, the default, waits for the semaphore's own `wait`, -1 without
        limit, 0 tries once, as `blocking=False` does, which allows no `timeout`. Returns a `Lease`, or None if too few
        slots are free by then. A cancelled call leaves no permit behind.

        `n` is from 1 to `permits`. Raises `Unavailable`, `KeyConflict`, `InvalidArgument` (before the await) and
        `Closed`.
        """
        lock: Lock = self._taking(n)
        return lock.acquire(blocking, timeout)

    def _make(self, n: int) -> Lock:
        return Lock(self._one._client, self.name, (n, self._permits), self._one, **self._one._options)

    def release(self) -> Coroutine[Any, Any, str]:
        """Release the newest permit of the task that makes this call, as `Lease.release()` does.

        Raises `NotHeld` if it has none, and `Closed`.
        """
        return self._one.release()

    async def available(self) -> int:
        """Return the number of free slots; waiters may be queued for them.

        Raises `Unavailable`, `KeyConflict` and `Closed`.
        """
        free: int = await _native.Calls.available(self._one._native)
        return free

    async def locked(self) -> bool:
        """Whether no slot is free. Raises `Unavailable`, `KeyConflict` and `Closed`."""
        return await self.available() == 0

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        return self._one._enter(self._one._native.request(), sys._getframe(1))

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]:
        return self._one._leave(self._one._native.end_block(sys._getframe(1)), kind)


class Redlock(BaseClient):
    """A client of one Redis node, or of several that vote. Event loops may use it one after another.

    `urls` is one URL or a list: `redis://[user:password@]host[:port][/db]`, `rediss://…` (TLS), `unix://path`,
    `redis+cluster://host[:port],…`, `redis+sentinel://host[:port],…/name[/db]` (both also with TLS, as `rediss+…`) or
    `memory://[name]` (inside this process, for tests). The constructor sends nothing and raises `InvalidArgument`. An
    `async with` statement closes the client at its end.

    ```python
    async with redlock.asyncio.Redlock("redis://10.0.0.4:6379", watchdog=10) as client:
        async with client.lock("report") as lease:
            await build_report(fence=lease.token)
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

    __slots__ = ()

    def lock(self, name: str, **options: Unpack[LockOptions]) -> Lock:
        """Return the lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together.

        See `LockOptions` for the options. Sends nothing. Raises `InvalidArgument`.
        """
        return Lock(self, name, **options)

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

    async def attach(self, text: str) -> Lease:
        """Take over a detached lease. `text` is what its `detach()` returned; it works once.

        Raises `LockLost` if the lease has ended or was attached before, `Unavailable` and `Closed`, after which the
        text still works, and `InvalidArgument` for any other text.

        ```python
        lease = await client.lock("order:42", ttl=600).acquire()
        text = lease.detach()
        lease = await client.attach(text)  # in another process, too
        await lease.release()
        ```
        """
        return Lease(await _native.Calls.attach(self._native, text))

    async def force_release(self, name: str) -> bool:
        """Free a lock, whoever holds it. Return whether it was held.

        The holder notices at its next renewal; until then only fencing tokens protect the resource.
        Raises `Unavailable`, `KeyConflict`, `InvalidArgument` and `Closed`.

        ```python
        was_held = await client.force_release("report")
        ```
        """
        released: bool = await _native.Calls.force_release(self._native, name)
        return released

    async def ping(self) -> list[NodeStatus]:
        """Ping every node, for `reply_timeout` at most, and return the status of each. Raises only `Closed`.

        ```python
        down = [node for node in await client.ping() if not node.ok]
        ```
        """
        nodes: list[NodeStatus] = await _native.Calls.ping(self._native)
        return nodes

    async def init_nodes(self) -> None:
        """Let all nodes of a quorum vote at once, including restarted ones.

        Safe only while no lock can be held, as in a new deployment. Raises `Unavailable` if any node does not answer,
        and `Closed`.
        """
        await _native.Calls.init_nodes(self._native)

    async def close(self) -> None:
        """Release all locks of this client, within a second, and disconnect. Later calls raise `Closed`.

        Detached leases, and fixed leases of explicit owners, are not released.
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

    Prefix and name have 1 to 1024 bytes of UTF-8 together. See `LockOptions` for the options. The lock takes the
    default client of its first use. Sends nothing. Raises `InvalidArgument`.
    """
    return Lock(None, name, **options)


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
