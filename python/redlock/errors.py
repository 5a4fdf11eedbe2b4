"""The exceptions: what went wrong, as coarse as a caller can act on it.

They are declared in Python because some derive from two exceptions; the native layer picks one by its code, which is
the same in every language.
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
    """Every error of this library."""

    code: ClassVar[str] = "error"
    """What went wrong, in a word that all languages share."""


class LockTimeout(LockError, TimeoutError):
    """Somebody else holds the lock: try later."""

    code = "timeout"


class LockLost(LockError):
    """The lock was lost: stop touching what it protects."""

    code = "lost"

    reason: str
    """Why: "expired", "taken", "released", "deleted", "unreachable", "closed", "forked" or "max_hold"."""

    def __init__(self, message: str = "", reason: str = "expired") -> None:
        super().__init__(message)
        self.reason = reason


class NotHeld(LockError):
    """A bug of the caller: it releases, extends or checks what it does not hold."""

    code = "not_held"


class Unavailable(LockError):
    """Too few nodes answered: an outage, not contention."""

    code = "unavailable"

    causes: dict[str, str]
    """Why, for each node that did not help."""

    def __init__(self, message: str = "", causes: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.causes = causes or {}


class KeyConflict(LockError):
    """The key holds something that is no lock; it was left untouched."""

    code = "conflict"


class WouldDeadlock(LockError):
    """Waiting would wait for the caller itself."""

    code = "deadlock"


class InvalidArgument(LockError, ValueError):
    """A name, a time, a URL or an option is wrong; the message names it, and nothing was sent."""

    code = "invalid"


class NoEventLoop(LockError, RuntimeError):
    """`redlock.asyncio` was used where no event loop of asyncio runs; nothing was sent."""

    code = "invalid"


class Closed(LockError):
    """The client was closed."""

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
