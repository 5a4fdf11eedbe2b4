"""`redis.lock.Lock` of redis-py on this library's core.

```python
import redis

from redlock.compat.redis_py import Lock  # was: from redis.lock import Lock

with Lock(redis.Redis.from_url("redis://10.0.0.4"), "report", timeout=10) as lock:
    lock.extend(5)
```

`client.lock("report", lock_class=Lock)` works, too. To replace the lock of every `client.lock()` of a program, assign
`redis.client.Lock = Lock` once at its start. `redis.cluster.Lock`, `redis.asyncio.client.Lock` and
`redis.asyncio.cluster.Lock` can be replaced in the same way.

Only the connection settings of the redis-py client are used: host, port or unix socket, database, user and password,
TLS, time-outs, protocol, and those of a Sentinel pool or a `RedisCluster`. Nothing is sent through the client. Settings
that cannot be taken over, such as a `credential_provider` or a custom `connection_class`, raise
`redlock.InvalidArgument`. Retries, health checks and names of connections are ignored. Clients with the same settings
share their connections.

A lock is a string key with the token as its value, as redis-py writes it. So processes with either library exclude each
other, and `lock.local.token` can be passed from one to the other. Signatures, results and exceptions are those of
redis-py. The deliberate differences are:

* It needs redis-py 6 or later (nothing else in this package needs it).
* A lost reply leaves no lock behind. redis-py sends SET NX again, finds its own token and returns False; the lock stays
  held, without a `timeout` for ever. Nor does a blocking call that Ctrl-C interrupts leave a lock behind.
* A release by this library wakes waiters at once. A release by redis-py is noticed by polling, every 0.1 to 0.2 s.
  `sleep` does not change that: it only decides, as in redis-py, whether a `blocking_timeout` leaves time for more than
  one try. Waiters of one process queue in order, and a call that does not block returns False while others wait.
* As in redis-py, a lock without a `timeout` stays held until it is released, even when its process ends or dies. No
  watchdog renews a lock, and no loss is reported: `redlock.Redlock.lock` does both.
* `acquire` never returns True for a lock that has already expired.
* In a thread that has acquired nothing the token is None (redis-py has no attribute then). In a child of a fork it is
  None, too: the child does not release its parent's lock, unless it is given the token.
* The error of a block's body is never masked: an error of the release at its end is only logged then.
* An outage raises `redis.exceptions.ConnectionError`, whatever the server's reason is. Its cause is a
  `redlock.Unavailable` with the details. A blocking `acquire` raises it after 5 s of outage. An unconfirmed `release`
  is sent again in the background.
* A key that is not a string counts as held by another owner, in `release` and `extend` too; `locked` raises
  `ResponseError`.
* A token is UTF-8 text of up to 64 KiB. A token passed to `acquire` must be new each time: a request without a reply is
  undone by its token. Names have up to 1024 bytes. redis-py generates tokens as UUIDs of version 1, this library of
  version 4.
* `lock.reacquire()` with `timeout=0` raises the `LockError` of a lock without a timeout; redis-py deletes the key.
* A lock has a second key for fencing tokens, `redlock_token:{name}`, and a channel. The key expires an hour after its
  last use, or with a longer `timeout`. The rules of ACL users must allow both.
* The class is no subclass of redis-py's. Attributes for subclasses (`do_acquire`, `lua_release`, `register_scripts` and
  the like) do not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from redlock.compat.redis_py._common import Base, reraise
from redlock.compat.redis_py._tokens import Local, PerThread, Shared
from redlock.errors import LockError as CoreError
from redlock.errors import LockLost

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Lock"]


class Lock(Base):
    """A lock with the interface of `redis.lock.Lock`; see there for its parameters, and the module for differences."""

    __module__ = "redlock.compat.redis_py"

    local: Local
    """`local.token`: the token, as bytes, while this thread (`thread_local=False`: any thread) holds it. Settable."""

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
        self.local = PerThread() if self.thread_local else Shared()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Acquire the lock and return True, or False if another owner still holds it at the end of the wait.

        None means the constructor's argument. `blocking_timeout` is in seconds. `token` is the value to write, and must
        be new. Raises `redis.exceptions.ConnectionError` in an outage, and `redlock.InvalidArgument`.
        """
        wait = self._wait(self.sleep if sleep is None else sleep, blocking, blocking_timeout)
        value = self._new_token(token)
        try:
            lease = self._prepare(value).acquire(timeout=wait)
            if lease is None:
                return False
            lease._let_go()
        except LockLost:
            # It expired before it could be returned.
            return False
        except CoreError as error:
            reraise(error)
        self.local.token = value
        return True

    def locked(self) -> bool:
        """Whether anybody holds the lock.

        Raises `redis.exceptions.ConnectionError` in an outage, and `ResponseError` if the key is not a string.
        """
        try:
            return self._any.locked()
        except CoreError as error:
            reraise(error)

    def owned(self) -> bool:
        """Whether the key holds the token of this thread. Raises `redis.exceptions.ConnectionError` in an outage."""
        token = self.local.token
        if token is None:
            return False
        try:
            return self._value(token).is_there()
        except CoreError as error:
            reraise(error)

    def release(self) -> None:
        """Release the lock.

        Raises `redis.exceptions.LockError` if this thread holds nothing, `LockNotOwnedError` if it lost the lock, and
        `ConnectionError` if no server confirmed: the release is then sent again in the background.
        """
        token = self.local.token
        if token is None:
            raise self._error("Cannot release a lock that's not owned or is already unlocked.")
        self.local.token = None
        try:
            released = self._value(token).release()
        except CoreError as error:
            reraise(error)
        if not released:
            raise self._not_owned("release")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add seconds to the lock's remaining time, or replace the remaining time. May shorten it.

        Raises `redis.exceptions.LockError` if this thread holds nothing or the lock has no timeout, `LockNotOwnedError`
        if it lost the lock, and `ConnectionError` in an outage.
        """
        token = self._check_timed(self.local.token, "extend")
        try:
            done = self._value(token).retime("replace" if replace_ttl else "add", int(additional_time * 1000))
        except CoreError as error:
            reraise(error)
        if not done:
            raise self._not_owned("extend")
        return True

    def reacquire(self) -> Literal[True]:
        """Let the lock end `timeout` seconds from now, the constructor's argument. Raises as `extend` does."""
        token = self._check_timed(self.local.token, "reacquire")
        try:
            done = self._value(token).retime("set", self._timeout_millis())
        except CoreError as error:
            reraise(error)
        if not done:
            raise self._not_owned("reacquire")
        return True

    def __enter__(self) -> Self:
        if self.acquire():
            return self
        raise self._error("Unable to acquire lock within the time specified")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.release()
        except Exception as failure:
            if not self._suppressed(failure, error is not None):
                raise
