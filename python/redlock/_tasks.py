"""The tasks of event loops as owners of locks. Imported by the native layer once a loop runs, not before."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from redlock._native import Identity

_identities: WeakKeyDictionary[asyncio.Task[Any], Identity] = WeakKeyDictionary()


def task_identity() -> Identity | None:
    """Return the identity of the current task; None outside of one, as in a callback of a loop."""
    task = asyncio.current_task()
    if task is None:
        return None
    identity = _identities.get(task)
    if identity is None:
        identity = _identities[task] = Identity()
        # A task that ended owns nothing, even while somebody keeps it for its result.
        task.add_done_callback(_forget)
    return identity


def _forget(task: asyncio.Task[Any]) -> None:
    _identities.pop(task, None)
