"""The identities of tasks that accept no attributes. Imported with the package, for the same reason as `_process`."""

from __future__ import annotations

from redlock._native import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any
    from weakref import WeakKeyDictionary

# Under the key "", once there is such a task.
_identities: dict[str, WeakKeyDictionary[asyncio.Task[Any], Identity]] = {}


def identify(task: asyncio.Task[Any]) -> Identity:
    """Return the identity of a task."""
    identity = _identities[""].get(task) if _identities else None
    if identity is None:
        # asyncio has imported `weakref` already.
        from weakref import WeakKeyDictionary

        # If several threads get here at once, all get the dictionary that was stored first.
        identity = _identities.setdefault("", WeakKeyDictionary())[task] = Identity()
        # A task that has ended owns nothing, even while the program keeps it for its result.
        task.add_done_callback(_forget)
    return identity


def _forget(task: asyncio.Task[Any]) -> None:
    del _identities[""][task]
