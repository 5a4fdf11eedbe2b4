"""Base classes that threads and asyncio share, and the default client."""

from __future__ import annotations

import os
import sys

from redlock import _native

# Type checkers treat it as true. Importing it from `typing` would be slow.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType
    from typing import Any

    from typing_extensions import Unpack

    from redlock._options import ClientOptions, ReadWriteOptions, SemaphoreOptions

# The default client, under the key "". `setdefault` stores it once without a lock: if the program monkey-patched
# `threading`, a lock would be one of greenlets.
_default: dict[str, _native.Client] = {}


def after_fork(function: Callable[[], object]) -> None:
    """Register a function that is called in each child after a fork. Does nothing on Windows, which has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def greenlets() -> ModuleType | None:
    """Return `redlock._greenlets` if the program may have greenlets, else None."""
    if "greenlet" not in sys.modules:
        return None
    from redlock import _greenlets

    return _greenlets


class BaseClient:
    """Base class of clients. A client pickles as its configuration, and connects when it is first used."""

    __slots__ = ("__weakref__", "_native", "_options")

    def __init__(self, urls: str | Iterable[str], **options: Unpack[ClientOptions]) -> None:
        self._native = _native.Client(urls, **options)
        self._options = options

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self), self._native.urls, self._options))

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}({self._native.nodes})"


class BaseReadWriteLock:
    """Base class of read/write locks: a lock for readers and one for writers. Pickles as its constructor arguments."""

    __slots__ = ("__weakref__", "_read", "_write")

    _read: Any
    _write: Any

    @property
    def name(self) -> str:
        """The name, without the client's prefix."""
        name: str = self._read.name
        return name

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore_read_write_lock, (type(self), self._read._client, self.name, self._read._options))

    def __repr__(self) -> str:
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{kind} {self.name!r} of {self._read._client or 'the default client'}>"


def _restore_read_write_lock(
    kind: type[Any], client: BaseClient | None, name: str, options: ReadWriteOptions
) -> BaseReadWriteLock:
    lock: BaseReadWriteLock = kind(client, name, **options)
    return lock


class BaseSemaphore:
    """Base class of semaphores. Pickles as its constructor arguments."""

    # The subclass for threads has a native base class, which no other base class with slots can be combined with.
    __slots__ = ()

    _one: Any
    _permits: int
    _several: dict[int, Any]

    @property
    def name(self) -> str:
        """The name, without the client's prefix."""
        name: str = self._one.name
        return name

    @property
    def permits(self) -> int:
        """The number of slots."""
        return self._permits

    def _taking(self, n: int) -> Any:
        # A bool or a float equals a known number, and a list is not hashable: the core refuses all of them.
        known = self._several.get(n) if type(n) is int else None
        if known is None:
            known = self._several[n] = self._make(n)
        return known

    def _make(self, n: int) -> Any:
        """Make the lock for n slots."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore_semaphore, (type(self), self._one._client, self.name, self.permits, self._one._options))

    def __repr__(self) -> str:
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{kind} {self.name!r} of {self.permits}, of {self._one._client or 'the default client'}>"


def _restore_semaphore(
    kind: type[Any], client: BaseClient | None, name: str, permits: int, options: SemaphoreOptions
) -> BaseSemaphore:
    semaphore: BaseSemaphore = kind(client, name, permits, **options)
    return semaphore


def _restore(kind: type[BaseClient], urls: list[str], options: ClientOptions) -> BaseClient:
    return kind(urls, **options)


def configure(urls: str | Iterable[str] | None = None, **options: Unpack[ClientOptions]) -> None:
    """Set the default client of `redlock.lock()` and `redlock.asyncio.lock()`, with the options of `Redlock`.

    Without `urls` its nodes are the URLs in the environment variable REDLOCK_URL, separated by commas, or else
    redis://127.0.0.1:6379. Locks that were used before keep their client. Raises `InvalidArgument`.

    ```python
    redlock.configure("redis://10.0.0.4:6379", watchdog=10)
    with redlock.lock("report") as lease:
        build_report(fence=lease.token)
    ```
    """
    _default[""] = _native.Client.from_env(**options) if urls is None else _native.Client(urls, **options)


def default_client() -> _native.Client:
    """Return the client that `configure()` set, or else one with the URLs of the environment."""
    known = _default.get("")
    # If several threads get here at once, all get the client that was stored first.
    return _default.setdefault("", _native.Client.from_env()) if known is None else known
