"""Tokens of a redis-py lock object, `lock.local.token`: one for each thread, greenlet or task that holds it.

A child of a fork has no tokens, so that it does not release its parent's locks. A program may give it one on purpose,
by assigning to `lock.local.token`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from redlock._client import after_fork, greenlets

_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1


after_fork(_forked)


class Local(Protocol):
    """The type of `lock.local`."""

    token: bytes | None


class Shared:
    """One token for all threads and tasks: `thread_local=False`."""

    _kept: tuple[int, bytes] | None = None

    @property
    def token(self) -> bytes | None:
        """The token, or None if nothing is held."""
        kept = self._kept
        return None if kept is None or kept[0] != _generation else kept[1]

    @token.setter
    def token(self, token: bytes | None) -> None:
        self._kept = None if token is None else (_generation, token)


class PerThread(threading.local):
    """One token for each thread and each greenlet, None if it has acquired nothing."""

    def __init__(self) -> None:
        self._of_thread = Shared()
        self._of: WeakKeyDictionary[Any, Shared] = WeakKeyDictionary()

    def _own(self) -> Shared:
        known = greenlets()
        greenlet = known and known.current()
        return self._of_thread if greenlet is None else self._of.setdefault(greenlet, Shared())

    @property
    def token(self) -> bytes | None:
        """The token of this thread or greenlet."""
        return self._own().token

    @token.setter
    def token(self, token: bytes | None) -> None:
        self._own().token = token


Task = asyncio.Task[Any]


def current_task() -> Task | None:
    """Return the running task, if there is one."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class PerTask(threading.local):
    """One token for each task that has used the lock object; every other task has the newest one.

    So a task never uses the token of a later task, and the lock object can still be handed to a task that releases it.
    """

    def __init__(self) -> None:
        self._newest = Shared()
        self._of: WeakKeyDictionary[Task, Shared] = WeakKeyDictionary()

    def of(self, task: Task | None) -> bytes | None:
        """Return the token of a task."""
        return (self._of.get(task, self._newest) if task is not None else self._newest).token

    def put(self, task: Task | None, token: bytes | None) -> None:
        """Set the token of a task; None removes it."""
        before = self.of(task)
        if token is not None or self._newest.token == before:
            self._newest.token = token
        if task is not None:
            self._of.setdefault(task, Shared()).token = token

    def drop(self, token: bytes) -> None:
        """Remove a token from all tasks."""
        for known in (self._newest, *self._of.values()):
            if known.token == token:
                known.token = None

    @property
    def token(self) -> bytes | None:
        """The token of the running task."""
        return self.of(current_task())

    @token.setter
    def token(self, token: bytes | None) -> None:
        self.put(current_task(), token)


class PerNobody(Shared):
    """`Shared` with the methods of `PerTask`."""

    def of(self, task: Task | None) -> bytes | None:
        """Return the token."""
        return self.token

    def put(self, task: Task | None, token: bytes | None) -> None:
        """Set the token."""
        self.token = token

    def drop(self, token: bytes) -> None:
        """Remove the token, if it is this one."""
        if self.token == token:
            self.token = None
