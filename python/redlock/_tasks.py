"""The tasks of event loops as owners of locks. Imported with the package, as `_process` is."""

from __future__ import annotations

from redlock._native import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any
    from weakref import WeakKeyDictionary

# Those of tasks that take no attributes, under the only key, once there is such a task.
_identities: dict[str, WeakKeyDictionary[asyncio.Task[Any], Identity]] = {}


def identify(task: asyncio.Task[Any]) -> Identity:
    """Return the identity of a task that has none in its attribute."""
    identity = _identities[""].get(task) if _identities else None
    if identity is None:
        identity = Identity()
        try:
            task._redlock_identity = identity  # type: ignore[attr-defined]
        except AttributeError:
            # asyncio has imported it.
            from weakref import WeakKeyDictionary

            # Of several threads, all get the first one's.
            _identities.setdefault("", WeakKeyDictionary())[task] = identity
        # A task that ended owns nothing, even while somebody keeps it for its result.
        task.add_done_callback(_forget)
    return identity


def _forget(task: asyncio.Task[Any]) -> None:
    if not _identities or _identities[""].pop(task, None) is None:
        del task._redlock_identity  # type: ignore[attr-defined]
