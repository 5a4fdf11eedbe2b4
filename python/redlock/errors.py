"""The exceptions: one class for each kind of failure that a caller handles differently.

They are declared in Python because some derive from two exceptions. The native layer picks the class by the error's
code, which is the same in every language.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

__all__ = [
    "Closed",
    "InvalidArgument",
    "KeyConflict",
    "LockError",
    "LockLost",
    "LockTimeout",
    "NoEventLoop",
    "NotHeld",
    "Unavailable",
    "WouldDeadlock",
]


class LockError(Exception):
    """Base class of all errors of this library."""

    code: ClassVar[str] = "error"
    """The kind of failure: the same word in every language.

    "timeout", "lost", "not_held", "unavailable", "conflict", "deadlock", "invalid" or "closed".
    """


class LockTimeout(LockError, TimeoutError):
    """The lock was not free in time, since another owner holds it: try later.

    Raised at the start of a block, such as `with lock:`. `acquire()` returns None instead.
    """

    code = "timeout"


class LockLost(LockError):
    """The lock was lost: stop touching what it protects.

    Raised by `check()` and `extend()` of a lost lease, by a nested acquire, by `attach()`, and at the end of a block
    whose body succeeded.
    """

    code = "lost"

    reason: str
    """The reason: "expired", "taken", "released", "deleted", "unreachable", "closed", "forked" or "max_hold"."""

    def __init__(self, message: str = "", reason: str = "expired") -> None:
        super().__init__(message)
        self.reason = reason


class NotHeld(LockError):
    """The caller releases, extends or checks a lock that it does not hold: fix the calling code."""

    code = "not_held"


class Unavailable(LockError):
    """Too few nodes answered: an outage, not contention.

    A try raises it at once. A waiting acquire tries again for the client's `patience` (default: 5 s), or for its own
    `wait` if that is shorter. With a cause that waiting does not change, such as a wrong password, it fails at once.
    """

    code = "unavailable"

    causes: dict[str, str]
    """The cause for each node that failed, for people, by the node's address without credentials."""

    def __init__(self, message: str = "", causes: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.causes = causes or {}


class KeyConflict(LockError):
    """The key holds a value that is not a lock. It was left unchanged: choose another name."""

    code = "conflict"


class WouldDeadlock(LockError):
    """The acquire would wait for its own caller: fix the calling code."""

    code = "deadlock"


class InvalidArgument(LockError, ValueError):
    """A name, a time, a URL or an option is invalid. The message names it; nothing was sent."""

    code = "invalid"


class NoEventLoop(LockError, RuntimeError):
    """`redlock.asyncio` was called without a running event loop of asyncio; nothing was sent."""

    code = "invalid"


class Closed(LockError):
    """The client was closed, or the process is ending."""

    code = "closed"


BY_CODE: dict[str, type[LockError]] = {
    error.code: error
    for error in (
        LockTimeout,
        LockLost,
        NotHeld,
        Unavailable,
        KeyConflict,
        WouldDeadlock,
        InvalidArgument,
        Closed,
    )
}
