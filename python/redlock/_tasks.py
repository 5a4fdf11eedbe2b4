"""The tasks of event loops as owners of locks. Imported by the native layer once a loop runs, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redlock._native import Identity

if TYPE_CHECKING:
    import asyncio

# Of tasks that take no attributes.
_identities: WeakKeyDictionary[asyncio.Task[Any], Identity] = WeakKeyDictionary()


def identify(task: asyncio.Task[Any]) -> Identity:
    """Return the identity of a task that has none in its attribute."""
    identity = _identities.get(task)
    if identity is None:
        identity = Identity()
        try:
            task._redlock_identity = identity  # type: ignore[attr-defined]
        except AttributeError:
            _identities[task] = identity
        # A task that ended owns nothing, even while somebody keeps it for its result.
        task.add_done_callback(_forget)
    return identity


def _forget(task: asyncio.Task[Any]) -> None:
    if _identities.pop(task, None) is None:
        del task._redlock_identity  # type: ignore[attr-defined]
