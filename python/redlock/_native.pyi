"""The native module: the core, as the package uses it.

`Lease`, `Lost`, `LockInfo` and `NodeStatus` are public. The rest is private and changes without notice.
"""

from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextvars import Context
from types import FrameType, TracebackType
from typing import Any, ClassVar, Literal, final

from typing_extensions import Self, Unpack, disjoint_base

from redlock._options import ClientOptions, LockOptions, Seconds

__all__ = [
    "Blocks",
    "Calls",
    "Client",
    "HeldValue",
    "Identity",
    "Lease",
    "Lock",
    "LockInfo",
    "Loop",
    "Lost",
    "NodeStatus",
    "Pending",
    "Pipe",
    "Request",
    "__version__",
    "close_all",
    "end_events",
    "is_main_interpreter",
    "next_events",
]

__version__: str

@final
class Client:
    def __new__(cls, urls: str | Iterable[str], **options: Unpack[ClientOptions]) -> Client: ...
    @staticmethod
    def from_env(**options: Unpack[ClientOptions]) -> Client: ...
    @property
    def urls(self) -> list[str]: ...
    @property
    def nodes(self) -> list[str]: ...
    def ping(self) -> list[NodeStatus]: ...
    def shim_lock(self, name: str, value: str, ttl: int | None) -> Lock: ...
    def value(self, name: str, value: str) -> HeldValue: ...
    def force_release(self, name: str) -> bool: ...
    def init_nodes(self) -> None: ...
    def attach(self, text: str) -> Lease: ...
    def close(self) -> None: ...

@disjoint_base
class Lock:
    def __new__(
        cls,
        client: Client | None,
        name: str,
        part: Literal["read", "write"] | tuple[int, int] | None = None,
        sibling: Lock | None = None,
        **options: Unpack[LockOptions],
    ) -> Lock: ...
    @property
    def name(self) -> str:
        """The name, without the client's prefix."""

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None) -> Lease | None:
        """Acquire the lock, blocking the calling thread or greenlet.

        `timeout` is in seconds or a `timedelta`: None, the default, waits for the lock's own `wait`, -1 without limit,
        0 tries once, as `blocking=False` does, which allows no `timeout`. Returns a `Lease`, or None if another owner
        still holds the lock by then.

        Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (another owner in this thread holds it, such as a task, or
        this owner does and the lock is not re-entrant), `LockLost` (this owner held it and lost it), `InvalidArgument`
        and `Closed`.

        ```python
        if lease := client.lock("report").acquire(timeout=2.5):
            lease.release()
        ```
        """

    def release(self) -> str:
        """Release the newest lease of the calling thread, greenlet or task.

        Returns "released", "lost" or "unconfirmed", as `Lease.release()` does. If the lock has an explicit owner and
        this process has no lease of it, the release ends all tenures of that owner, in every process; only then it
        raises `Unavailable` if too few nodes answer. Raises `NotHeld` if there is nothing to release, and `Closed`.
        """

    def owned(self) -> bool:
        """Whether the calling thread, greenlet or task holds the lock. Sends nothing."""

    def locked(self) -> bool:
        """Whether anybody holds the lock, in any process.

        Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.
        """

    def inspect(self) -> LockInfo | None:
        """Return who holds the lock, or None if it is free.

        Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.

        ```python
        if info := client.lock("report").inspect():
            print(info.app, info.pid, info.host, info.since)
        ```
        """

    def _available(self) -> int: ...
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def request(self, blocking: bool | None = None, timeout: Seconds | None = None) -> Request: ...
    def begin_block(self, request: Request, frame: FrameType, lease: Lease) -> None: ...
    def end_block(self, frame: FrameType) -> Lease | None: ...

@disjoint_base
class Blocks:
    def __new__(cls, one: Lock) -> Self: ...
    @property
    def _one(self) -> Any: ...
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...

@final
class Lease:
    """A held lock, or the permit of a semaphore, as an acquire returns it.

    It ends with its release, or at its deadline unless it is renewed or extended.

    ```python
    with client.lock("import") as lease:
        for batch in ([1, 2], [3]):
            lease.check()  # raises LockLost once the lock is lost
            load(batch, fence=lease.token)
    ```
    """

    @property
    def name(self) -> str:
        """The lock's name, without the client's prefix."""

    @property
    def owner(self) -> str:
        """The explicit owner, or `uuid:tenure`."""

    @property
    def token(self) -> int:
        """The fencing token, in µs: larger than that of every earlier holder. Needs 64 bits."""

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of its semaphore slots; empty for a lock."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The fencing tokens of its slots, in the same order; empty for a lock."""

    @property
    def held(self) -> bool:
        """Whether the lock is held now. Reads a clock and sends nothing; once False it stays False."""

    @property
    def lost(self) -> Lost:
        """The event that is set when this lease is lost; used like a `threading.Event`."""

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0 once it has ended."""

    def check(self) -> None:
        """Raise `LockLost` after a loss, `NotHeld` after a release or `detach()`. Sends nothing."""

    def extend(self, ttl: Seconds) -> None:
        """Let the lease end `ttl` (seconds or a `timedelta`) from now. Never shortens it.

        `ttl` is from 0.05 s to 10 years, and on a quorum at most the client's `max_ttl`. The watchdog keeps renewing a
        renewed lease. Raises `LockLost` after a loss, `NotHeld` after a release or `detach()`, `InvalidArgument`,
        `KeyConflict` if the key holds a value that is not a lock, and `Unavailable` if too few nodes answer; the lease
        is unchanged then.

        ```python
        with client.lock("import", ttl=10) as lease:
            lease.extend(60)  # it ends 60 s from now
        ```
        """

    def downgrade(self) -> None:
        """Change a writer's lease of a read/write lock into a reader's. No other writer gets in between.

        Waiting readers acquire the lock, and the token becomes a reader's. Does nothing for a reader's lease. Raises
        `LockLost` after a loss, `NotHeld` after a release or `detach()`, `InvalidArgument` for a lease of another kind
        of lock, and `KeyConflict` if the key holds a value that is not a lock. Raises `Unavailable` if too few nodes
        answer: the lease is a reader's then, but others may be kept out until `downgrade()` is called again.
        """

    def try_upgrade(self) -> bool:
        """Change a reader's lease of a read/write lock into a writer's if nobody else reads.

        Returns whether it is a writer's lease now; if so it has a new token. Never waits. Raises as `downgrade()` does.
        """

    def release(self) -> str:
        """Release this lease. The last lease of its owner frees the lock.

        Returns "released", "lost" (it had been lost before) or "unconfirmed" (too few nodes answered; the release is
        sent again in the background until the lease would have ended). A second call returns the same. Raises `NotHeld`
        after `detach()`.
        """

    def detach(self) -> str:
        """End this lease without releasing the lock. Return a text for `attach()`.

        A client with the same nodes, in this process or another, can attach the text once, before the ttl ends. Nobody
        renews the lock until then. The text is a secret: whoever has it can take the lock. Raises as `check()` does,
        and `InvalidArgument` for a lease with nested leases.
        """

    def _let_go(self) -> None: ...
    def abandon(self) -> None: ...
    def __reduce__(self) -> tuple[object, ...]: ...

@final
class HeldValue:
    def release(self) -> bool: ...
    def retime(self, how: Literal["add", "replace", "set"], millis: int) -> bool: ...
    def is_there(self) -> bool: ...

@final
class Lost:
    """An event that is set when a lease is lost; used like a `threading.Event`. A release does not set it."""

    @property
    def reason(self) -> str | None:
        """The reason, as in `LockLost.reason`, or None."""

    def is_set(self) -> bool:
        """Whether the lock was lost."""

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the lease ends, for at most `timeout`.

        `timeout` is from 0 to 10 years, in seconds or a `timedelta`; None, the default, waits without limit. Returns
        True if it was lost, False if it was released or detached, or is still held. Raises `InvalidArgument`.

        ```python
        with client.lock("report") as lease:
            if lease.lost.wait(0.01):
                print("lost:", lease.lost.reason)
        ```
        """

    def __bool__(self) -> bool: ...

@final
class LockInfo:
    """The holders of a lock, as a quorum of nodes reported them."""

    __match_args__: ClassVar[tuple[str, ...]]

    def __new__(
        cls,
        owner: str,
        ttl: float | None,
        token: int,
        kind: str = ...,
        owners: Iterable[str] | None = None,
        host: str | None = None,
        pid: int | None = None,
        app: str | None = None,
        since: float | None = None,
    ) -> Self: ...
    @property
    def owner(self) -> str:
        """The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. The first one of several."""

    @property
    def ttl(self) -> float | None:
        """Seconds until the key expires unless it is renewed; None if the key has no ttl."""

    @property
    def token(self) -> int:
        """The last fencing token; 0 for a semaphore, and if the holder draws none or the counter has expired."""

    @property
    def kind(self) -> str:
        """The kind of hold: "lock", "read" or "write" for a read/write lock, "semaphore", or "rest"."""

    @property
    def owners(self) -> tuple[str, ...]:
        """All owners. There are several only for readers, and for permits of a semaphore."""

    @property
    def host(self) -> str | None:
        """The name of the holder's machine, or None.

        None for other libraries, for explicit owners, and if the holder's connections have no name or this client may
        not read it. Of a detached lease, the machine that detached it.
        """

    @property
    def pid(self) -> int | None:
        """The number of the holder's process; None if `host` is."""

    @property
    def app(self) -> str | None:
        """The name of the holder's program, its option `app`; None if `host` is."""

    @property
    def since(self) -> float | None:
        """Since when the holder has the lock, in seconds since the epoch, by the clock of a node.

        None for readers, for permits, for other libraries and if it is not known.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class NodeStatus:
    """The status of a node, as `ping()` returns it."""

    __match_args__: ClassVar[tuple[str, ...]]

    def __new__(
        cls, node: str, ok: bool, run: str | None = None, version: str | None = None, cause: str | None = None
    ) -> Self: ...
    @property
    def node(self) -> str:
        """Its address, without credentials."""

    @property
    def ok(self) -> bool:
        """Whether the ping succeeded."""

    @property
    def run(self) -> str | None:
        """The run id of the server, which changes with each restart."""

    @property
    def version(self) -> str | None:
        """The version of the server."""

    @property
    def cause(self) -> str | None:
        """The reason if the ping failed, else None."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class Request: ...

@final
class Identity:
    def __new__(cls) -> Identity: ...
    def __call__(self, task: Task[Any], /) -> None: ...

@final
class Pending(Awaitable[Any]):
    def __await__(self) -> Generator[Any, Any, Any]: ...
    def __next__(self) -> Self: ...
    _asyncio_future_blocking: bool
    def get_loop(self) -> AbstractEventLoop | None: ...
    def add_done_callback(self, function: Callable[[Self], object], *, context: Context) -> None: ...
    def result(self) -> None: ...
    def cancel(self, msg: object = None) -> bool: ...
    def close(self) -> None: ...

@disjoint_base
class Calls:
    @staticmethod
    def acquire(lock: Lock, request: Request) -> Pending: ...
    @staticmethod
    def release_newest(lock: Lock, request: Request) -> Pending: ...
    @staticmethod
    def locked(lock: Lock) -> Pending: ...
    @staticmethod
    def inspect(lock: Lock) -> Pending: ...
    @staticmethod
    def available(lock: Lock) -> Pending: ...
    @staticmethod
    def release(lease: Lease) -> Pending: ...
    @staticmethod
    def leave(lease: Lease) -> Pending: ...
    @staticmethod
    def extend(lease: Lease, ttl: Seconds) -> Pending: ...
    @staticmethod
    def downgrade(lease: Lease) -> Pending: ...
    @staticmethod
    def try_upgrade(lease: Lease) -> Pending: ...
    @staticmethod
    def lost(lease: Lease) -> Pending: ...
    @staticmethod
    def release_value(value: HeldValue) -> Pending: ...
    @staticmethod
    def retime_value(value: HeldValue, how: Literal["add", "replace", "set"], millis: int) -> Pending: ...
    @staticmethod
    def is_value_there(value: HeldValue) -> Pending: ...
    @staticmethod
    def ping(client: Client) -> Pending: ...
    @staticmethod
    def force_release(client: Client, name: str) -> Pending: ...
    @staticmethod
    def init_nodes(client: Client) -> Pending: ...
    @staticmethod
    def attach(client: Client, text: str) -> Pending: ...
    @staticmethod
    def close(client: Client) -> Pending: ...
    def flush(self) -> None: ...
    def go_on(self) -> None: ...

@final
class Loop(Calls):
    def __new__(cls, hosted: bool) -> Loop: ...
    @property
    def pipe(self) -> Pipe | None: ...
    def fileno(self) -> int: ...
    def drain(self, emptied: bool) -> None: ...
    def ended(self) -> list[int]: ...

@final
class Pipe:
    def wait(self) -> bool: ...
    def stop(self) -> None: ...

def next_events() -> list[tuple[bool, bool, str]]: ...
def end_events() -> None: ...
def is_main_interpreter() -> bool: ...
def close_all() -> None: ...
