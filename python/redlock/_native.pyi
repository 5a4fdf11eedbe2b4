"""The core, as the package uses it.

`Lease`, `Lost`, `LockInfo` and `NodeStatus` are public as they are; the rest changes without notice.
"""

from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextvars import Context
from types import TracebackType
from typing import Any, ClassVar, Literal, final

from typing_extensions import Self, Unpack, disjoint_base

from redlock._options import ClientOptions, LockOptions, Seconds

__all__ = [
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
        **options: Unpack[LockOptions],
    ) -> Lock: ...
    @property
    def name(self) -> str:
        """The name, without the client's prefix."""

    def acquire(self, blocking: bool = True, timeout: Seconds | None = None) -> Lease | None:
        """Take the lock, blocking the calling thread or greenlet.

        `timeout`, in seconds or as a `timedelta`: None waits as long as the lock's own `wait`, -1 for ever, 0 tries
        once, as `blocking=False` does. Returns a `Lease`, or None when somebody else holds the lock to the end.

        Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (another task of this thread holds it, or this owner does
        and the lock is not re-entrant), `LockLost` (this owner held it and lost it), `InvalidArgument` and `Closed`.
        """

    def release(self) -> str:
        """Release the newest lease of the calling thread, greenlet or task.

        Returns "released", "lost" or "unconfirmed", as `Lease.release()` does. A lock with an explicit owner and no
        lease in this process ends that owner's tenures wherever they were taken. Raises `NotHeld` when there is
        nothing to release.
        """

    def owned(self) -> bool:
        """Whether the calling thread, greenlet or task holds the lock. Asks nobody."""

    def locked(self) -> bool:
        """Whether anybody holds the lock. Raises `Unavailable` when too few nodes answer."""

    def inspect(self) -> LockInfo | None:
        """Who holds the lock; None when nobody does. Raises `Unavailable` when too few nodes answer."""

    def _available(self) -> int: ...
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def request(self, blocking: bool | None = None, timeout: Seconds | None = None) -> Request: ...
    def entered(self, request: Request, lease: Lease) -> None: ...
    def left(self) -> Lease | None: ...

@final
class Lease:
    """A held lock."""

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
        """The slots that it has of a semaphore; empty for a lock."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The fencing tokens of its slots, in their order; empty for a lock."""

    @property
    def held(self) -> bool:
        """Whether the lock is held, right now. Reads a clock and nothing else; once False it stays False."""

    @property
    def lost(self) -> Lost:
        """Tells of a loss; used like a `threading.Event`."""

    def remaining(self) -> float:
        """Seconds for which it is held unless it is renewed; 0 once it is not."""

    def check(self) -> None:
        """Raise `LockLost` after a loss, `NotHeld` after a release or `detach()`."""

    def extend(self, ttl: Seconds) -> None:
        """Let the lock end `ttl` (seconds or a `timedelta`) from now, never earlier than it would have.

        A renewed lease is renewed on. Raises `LockLost` after a loss, and `Unavailable`, nothing changed, in an outage.
        """

    def downgrade(self) -> None:
        """Make a reader of a writer of a read/write lock, without anybody else writing in between.

        Readers that wait come in, and the token becomes a reader's. Does nothing for one that reads. Raises `LockLost`
        after a loss, `Unavailable` while too few nodes answer (it reads then, and others may be kept out until it is
        called again), and `InvalidArgument` for a lease of another lock.
        """

    def try_upgrade(self) -> bool:
        """Make a writer of a reader of a read/write lock if nobody else reads, and tell whether it is one now.

        Then it has a new token. Never waits. Raises as `downgrade()` does.
        """

    def release(self) -> str:
        """End this lease; the last one of its owner frees the lock.

        Returns "released", "lost" (it had been lost before) or "unconfirmed" (too few nodes answered; they are asked
        again until the lease ends by itself), and the same when called again. Raises `NotHeld` after `detach()`.
        """

    def detach(self) -> str:
        """Stop renewing and let go of the lock without releasing it.

        The text is a bearer secret: `attach` of a client with the same nodes takes the lock over from it, once, in
        this process or another.
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
    """Tells whether, and when, a lease is lost; used like a `threading.Event`. A released lease is not lost."""

    @property
    def reason(self) -> str | None:
        """Why it was lost, or None."""

    def is_set(self) -> bool:
        """Whether the lock was lost."""

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the lease ends, for `timeout` at most (None: for as long as it takes).

        True when it was lost, False when it was released, or still is held.
        """

    def __bool__(self) -> bool: ...

@final
class LockInfo:
    """Who holds a lock, as a quorum of nodes saw it."""

    __match_args__: ClassVar[tuple[str, ...]]

    def __new__(
        cls, owner: str, ttl: float | None, token: int, kind: str = ..., owners: Iterable[str] | None = None
    ) -> Self: ...
    @property
    def owner(self) -> str:
        """The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. Of several readers the first."""

    @property
    def ttl(self) -> float | None:
        """Seconds until the key ends unless it is renewed; None when a peer gave it no time to live."""

    @property
    def token(self) -> int:
        """The last fencing token; 0 when the holder draws none."""

    @property
    def kind(self) -> str:
        """How it is held: "lock", "read" or "write" for a read/write lock, or "semaphore"."""

    @property
    def owners(self) -> tuple[str, ...]:
        """All owners: several only if they read, or have permits of a semaphore."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]: ...

@final
class NodeStatus:
    """What a node says of itself."""

    __match_args__: ClassVar[tuple[str, ...]]

    def __new__(
        cls, node: str, ok: bool, run: str | None = None, version: str | None = None, cause: str | None = None
    ) -> Self: ...
    @property
    def node(self) -> str:
        """Its address, without credentials."""

    @property
    def ok(self) -> bool:
        """Whether it answered as it should."""

    @property
    def run(self) -> str | None:
        """The run of the server, which changes with each restart."""

    @property
    def version(self) -> str | None:
        """The version of the server."""

    @property
    def cause(self) -> str | None:
        """Why it did not answer, when it did not."""

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
    def release_newest(lock: Lock) -> Pending: ...
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
