"""Locks for threads."""

from __future__ import annotations

from redlock import _native
from redlock._client import BaseClient
from redlock.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, ParamSpec, TypeVar

    from typing_extensions import Self, Unpack

    from redlock._options import LockOptions

    _P = ParamSpec("_P")
    _R = TypeVar("_R")


class Lock(_native.Lock):
    """A lock by name, held by the thread that takes it (in an event loop: by the task).

    Use it in a `with` statement, which raises `LockTimeout` when the lock is not obtained in time and yields the
    `Lease`; call `acquire()` and `release()`; or decorate a function with it, which then runs with the lock held.
    """

    __module__ = "redlock"
    __slots__ = ("_client", "_options")

    _client: Redlock | None
    _options: LockOptions

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
        return (make_lock, (self._client, self.name, self._options))

    def __repr__(self) -> str:
        return f"<redlock.Lock {self.name!r} of {self._client or 'the default client'}>"


def is_any(kind: Callable[[object], bool], function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called like one, is of this kind."""
    return kind(function) or kind(type(function).__call__)


def make_lock(client: Redlock | None, name: str, options: LockOptions) -> Lock:
    """Make a lock of a client, or of the default client."""
    lock = Lock(None if client is None else client._native, name, **options)
    lock._client = client
    lock._options = options
    return lock


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
