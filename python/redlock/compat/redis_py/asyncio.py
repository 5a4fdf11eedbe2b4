"""`redis.asyncio.lock.Lock` of redis-py on this library's core.

```python
import asyncio

import redis.asyncio

from redlock.compat.redis_py.asyncio import Lock  # was: from redis.asyncio.lock import Lock


async def main() -> None:
    async with redis.asyncio.Redis.from_url("redis://10.0.0.4") as client, Lock(client, "report", timeout=10) as lock:
        await lock.extend(5)


asyncio.run(main())
```

The differences that `redlock.compat.redis_py` lists exist here, too. Besides:

* A cancelled `acquire` leaves no key behind; redis-py's may leave a key that nobody owns.
* A cancelled `release` continues in the background, and the next call of `release` returns its result.
* With `thread_local=True`, the default, each task that uses a lock object has its own token in it. So a task whose lock
  expired does not release the lock of the next task. A task that has not used the object has the newest token: one task
  may hand the object to another.
* `lock_name` of an exception is always set.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from redlock import _native
from redlock.asyncio import running_loop
from redlock.compat.redis_py._common import Base, reraise
from redlock.compat.redis_py._tokens import Local, PerNobody, PerTask, current_task
from redlock.errors import LockError as CoreError
from redlock.errors import LockLost, LockTimeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from types import TracebackType

    from typing_extensions import Self

    from redlock.compat.redis_py._tokens import Task

__all__ = ["Lock"]


class Lock(Base):
    """A lock with the interface of `redis.asyncio.lock.Lock`; see there for its parameters."""

    __module__ = "redlock.compat.redis_py.asyncio"

    def __init__(
        self,
        redis: Any,
        name: str | bytes | memoryview,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        super().__init__(redis, name, timeout, sleep, blocking, blocking_timeout, thread_local, raise_on_release_error)
        self._tokens = PerTask() if self.thread_local else PerNobody()
        # The newest release. It continues if its caller is cancelled.
        self._releasing: tuple[bytes, asyncio.Future[bool]] | None = None

    @property
    def local(self) -> Local:
        """`local.token`: the token, as bytes, while this task holds the lock. Settable."""
        return self._tokens

    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Acquire the lock and return True, or False if another owner still holds it at the end of the wait.

        The owner is the task that makes this call, whichever task awaits it. See
        `redlock.compat.redis_py.Lock.acquire`.
        """
        return self._acquire(current_task(), self._wait(self.sleep, blocking, blocking_timeout), token)

    async def _acquire(self, task: Task | None, wait: float, token: str | bytes | None) -> bool:
        value = self._new_token(token)
        try:
            lock = self._prepare(value)
            lease: _native.Lease = await _native.Calls.acquire(lock, lock.request(timeout=wait))
            lease._let_go()
        except (LockTimeout, LockLost):
            # Another owner holds it; or it expired before it could be returned.
            return False
        except CoreError as error:
            reraise(error)
        self._tokens.put(task, value)
        return True

    async def locked(self) -> bool:
        """Whether anybody holds the lock.

        Raises `redis.exceptions.ConnectionError` in an outage, and `ResponseError` if the key is not a string.
        """
        try:
            locked: bool = await _native.Calls.locked(self._any)
        except CoreError as error:
            reraise(error)
        return locked

    def owned(self) -> Coroutine[Any, Any, bool]:
        """Whether the key holds the token of this task. Raises `redis.exceptions.ConnectionError` in an outage."""
        return self._owned(self.local.token)

    async def _owned(self, token: bytes | None) -> bool:
        if token is None:
            return False
        try:
            there: bool = await _native.Calls.is_value_there(self._value(token))
        except CoreError as error:
            reraise(error)
        return there

    def release(self) -> Coroutine[Any, Any, None]:
        """Release the lock.

        Raises `redis.exceptions.LockError` if this task holds nothing, `LockNotOwnedError` if it lost the lock, and
        `ConnectionError` if no server confirmed: the release is then sent again in the background, and the token stays.
        """
        return self._release(current_task())

    async def _release(self, task: Task | None) -> None:
        token = self._tokens.of(task)
        if token is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        loop = running_loop()
        known = self._releasing
        if known is not None and known[0] == token and known[1].get_loop() is loop:
            ending = known[1]
        else:
            ending = loop.create_task(_free(self._value(token)))
            ending.add_done_callback(_retrieve)
            self._releasing = (token, ending)
        try:
            released = await asyncio.shield(ending)
        except CoreError as error:
            self._releasing = None
            reraise(error)
        self._releasing = None
        self._tokens.drop(token)
        if not released:
            raise self._not_owned("release")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[Literal[True]]:
        """Add seconds to the lock's remaining time, or replace the remaining time. May shorten it.

        The call itself raises `redis.exceptions.LockError` if this task holds nothing or the lock has no timeout. The
        await raises `LockNotOwnedError` if it lost the lock, and `ConnectionError` in an outage.
        """
        token = self._check_timed(self.local.token, "extend")
        return self._retime(token, "extend", "replace" if replace_ttl else "add", int(additional_time * 1000))

    def reacquire(self) -> Awaitable[Literal[True]]:
        """Let the lock end `timeout` seconds from now, the constructor's argument. Raises as `extend` does."""
        return self._retime(
            self._check_timed(self.local.token, "reacquire"), "reacquire", "set", self._timeout_millis()
        )

    async def _retime(
        self, token: bytes, what: str, how: Literal["add", "replace", "set"], millis: int
    ) -> Literal[True]:
        try:
            done = await _native.Calls.retime_value(self._value(token), how, millis)
        except CoreError as error:
            reraise(error)
        if not done:
            raise self._not_owned(what)
        return True

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except Exception as failure:
            if not self._suppressed(failure, error is not None):
                raise


async def _free(value: _native.HeldValue) -> bool:
    released: bool = await _native.Calls.release_value(value)
    return released


def _retrieve(ending: asyncio.Future[bool]) -> None:
    """Retrieve the error of a release, so that asyncio does not warn about one that no caller retrieved."""
    if not ending.cancelled():
        ending.exception()
