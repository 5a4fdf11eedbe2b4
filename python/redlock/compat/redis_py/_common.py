"""Base class of both locks: settings, and the conversion of tokens, times and errors from and to redis-py's."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from redlock import _native
from redlock.compat.redis_py._clients import client_of
from redlock.errors import InvalidArgument, KeyConflict, Unavailable

if TYPE_CHECKING:
    from redlock import errors

logger = logging.getLogger("redlock.compat.redis_py")

# The longest wait that the core accepts, in seconds.
_FOR_EVER = 10 * 365 * 86_400.0


class Base:
    """A lock's settings, with the names and meanings of redis-py."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes | memoryview,
        timeout: float | None,
        sleep: float,
        blocking: bool,
        blocking_timeout: float | None,
        thread_local: bool,
        raise_on_release_error: bool,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._client = client_of(redis)
        self._native = self._client._native
        self._key = self._text("name", name)
        # Raises `InvalidArgument` for a name that the core does not accept.
        self._any = _native.Lock(self._native, self._key)

    def _bytes(self, value: object) -> bytes:
        """Encode a value as redis-py does."""
        encoded: bytes = self.redis.get_encoder().encode(value)
        return bytes(encoded)

    def _text(self, argument: str, value: object) -> str:
        try:
            return self._bytes(value).decode()
        except UnicodeDecodeError:
            raise InvalidArgument(f"{argument}: must be bytes of valid UTF-8, not {value!r}") from None

    def _new_token(self, token: object | None) -> bytes:
        return uuid.uuid4().hex.encode() if token is None else self._bytes(token)

    def _prepare(self, token: bytes) -> _native.Lock:
        ttl = self._timeout_millis() if self.timeout else None
        return self._native.shim_lock(self._key, self._text("token", token), ttl)

    def _value(self, token: bytes) -> _native.HeldValue:
        return self._native.value(self._key, self._text("token", token))

    def _wait(self, sleep: float, blocking: bool | None, blocking_timeout: float | None) -> float:
        """Return how long to wait, in seconds: 0 for one try, -1 without limit."""
        if not (self.blocking if blocking is None else blocking):
            return 0
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if limit is None or limit > _FOR_EVER:
            return -1
        # If `sleep` is longer, a second try would come too late.
        return limit if limit >= sleep else 0

    def _error(self, message: str) -> LockError:
        return self._named(LockError(message))

    def _not_owned(self, what: str) -> LockError:
        return self._named(LockNotOwnedError(f"Cannot {what} a lock that's no longer owned"))

    def _named(self, error: LockError) -> LockError:
        # Some versions of redis-py accept no name here.
        error.lock_name = self.name  # type: ignore[assignment, unused-ignore]
        return error

    def _check_timed(self, token: bytes | None, what: str) -> bytes:
        if token is None:
            raise self._error(f"Cannot {what} an unlocked lock")
        # `acquire` treats a timeout of 0 as none.
        if not self.timeout:
            raise self._error(f"Cannot {what} a lock with no timeout")
        return token

    def _timeout_millis(self) -> int:
        # A negative timeout becomes 0, which the core refuses as well.
        return max(int((self.timeout or 0) * 1000), 0)

    def _suppressed(self, error: BaseException, body_failed: bool) -> bool:
        """Whether to log an error of a block's release, and not to raise it: it must not mask the body's own error."""
        if not body_failed and (self.raise_on_release_error or not isinstance(error, LockError)):
            return False
        logger.warning("Lock was unlocked or no longer owned when exiting context manager.")
        return True


def reraise(error: errors.LockError) -> NoReturn:
    """Raise the error that redis-py raises in this case, with the core's error as its cause."""
    if isinstance(error, Unavailable):
        raise RedisConnectionError(str(error)) from error
    if isinstance(error, KeyConflict):
        raise ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value") from error
    raise error
