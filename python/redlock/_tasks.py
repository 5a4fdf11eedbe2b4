"""Tasks of event loops that take no attributes, as owners of locks. Imported with the package, as `_process` is."""

from __future__ import annotations

from redlock._native import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any
    from weakref import WeakKeyDictionary

# Under the only key, once there is such a task.
_identities: dict[str, WeakKeyDictionary[asyncio.Task[Any], Identity]] = {}


def identify(task: asyncio.Task[Any]) -> Identity:
    """Return the identity of a task."""
    identity = _identities[""].get(task) if _identities else None
    if identity is None:
        # asyncio has imported it.
        from weakref import WeakKeyDictionary

        # Of several threads, all get the first one's.
        identity = _identities.setdefault("", WeakKeyDictionary())[task] = Identity()
        # A task that ended owns nothing, even while somebody keeps it for its result.
        task.add_done_callback(_forget)
    return identity


def _forget(task: asyncio.Task[Any]) -> None:
    del _identities[""][task]
