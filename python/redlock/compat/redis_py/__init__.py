"""`redis.lock.Lock` of redis-py on this library's core.

    from redlock.compat.redis_py import Lock             # was: from redis.lock import Lock

    with Lock(redis.Redis(), "report", timeout=10) as lock:
        lock.extend(5)

Or `client.lock("report", lock_class=Lock)`; and `redis.client.Lock = Lock`, once at the start, for every
`client.lock()` of a program (`redis.cluster.Lock`, `redis.asyncio.client.Lock` and `redis.asyncio.cluster.Lock` are the
others).

The redis-py client gives its connection settings and nothing else: host, port or unix socket, database, user and
password, TLS, time-outs, protocol, and those of a Sentinel pool or a `RedisCluster`. Nothing is sent through it.
Settings that cannot be taken over, such as a `credential_provider` or a `connection_class` of one's own, raise
`redlock.InvalidArgument`; retries, health checks and names of connections are redis-py's own matter. Clients with the
same settings share their connections.

A lock is a string with the token as its value, as redis-py writes it: processes with either library exclude each
other, and `lock.local.token` can be passed from one to the other. Signatures, results and exceptions are those of
redis-py. What differs, knowingly:

* It needs redis-py 6 or later (nothing else in this package needs it).
* A reply that is lost leaves no lock behind. redis-py sends SET NX again, finds its own token, and returns False while
  the lock stays taken; without a `timeout`, for ever. The same holds for a blocking call that Ctrl-C ends.
* A release by this library wakes waiters at once. Others are found by looking, every 0.1 to 0.2 s; `sleep` only
  decides, as in redis-py, whether a `blocking_timeout` leaves time for more than one try. Waiters of one process queue
  in order, and a call that does not block returns False while others wait.
* Without a `timeout` a lock stays until it is released, also when its process ends or dies: as in redis-py. It is not
  kept by a watchdog, and nobody is told of a loss: `redlock.Redlock.lock` does both.
* `acquire` never returns True for a lock that has expired by then.
* A thread that has taken nothing has the token None (redis-py has no attribute then). A child of a fork has None too:
  it does not release what its parent holds, unless it is given the token.
* A block's own error is never masked: what the release at its end finds is only logged then.
* An outage is `redis.exceptions.ConnectionError`, with the `redlock.Unavailable` that tells more as its cause, whatever
  the server's reason is. A blocking `acquire` raises it after 5 s of outage; an unconfirmed `release` goes on in the
  background.
* A key that is no string counts as held by somebody else, in `release` and `extend` too; `locked` raises
  `ResponseError`.
* A token is text in UTF-8, of up to 64 KiB, and must be new each time that it is given: a request without a reply is
  undone by it. Names have up to 1024 bytes. redis-py's own token is a UUID of version 1, here of version 4.
* `lock.reacquire()` with `timeout=0` is the `LockError` of a lock without a timeout; redis-py deletes the key.
* Locks have a second key for fencing tokens, `redlock_token:{name}`, which ends an hour after its last use, or with a
  longer timeout, and a channel. Rules of ACL users must allow both.
* It is no subclass of redis-py's, and attributes for subclasses (`do_acquire`, `lua_release`, `register_scripts` and
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
    """`local.token`: the token, as bytes, while this thread (`thread_local=False`: anybody) holds it. Settable."""

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
        """Take the lock and return True, or False when somebody else holds it to the end of the wait.

        None means what the constructor was given. `blocking_timeout` in seconds; `token`: the value to write, which
        must be new. Raises `redis.exceptions.ConnectionError` in an outage, and `redlock.InvalidArgument`.
        """
        wait = self._wait(self.sleep if sleep is None else sleep, blocking, blocking_timeout)
        value = self._new_token(token)
        try:
            lease = self._prepare(value).acquire(timeout=wait)
            if lease is None:
                return False
            lease._let_go()
        except LockLost:
            # It expired on the way here.
            return False
        except CoreError as error:
            reraise(error)
        self.local.token = value
        return True

    def locked(self) -> bool:
        """Whether anybody holds the lock."""
        try:
            return self._any.locked()
        except CoreError as error:
            reraise(error)

    def owned(self) -> bool:
        """Whether the token of this thread stands in the key."""
        token = self.local.token
        if token is None:
            return False
        try:
            return self._value(token).is_there()
        except CoreError as error:
            reraise(error)

    def release(self) -> None:
        """Release the lock.

        Raises `redis.exceptions.LockError` when this thread holds nothing, `LockNotOwnedError` when it lost the lock,
        and `ConnectionError` when no server confirmed; the release then goes on in the background.
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
        """Add seconds to what is left of the lock, or replace what is left; also to end it earlier.

        Raises `redis.exceptions.LockError` when this thread holds nothing or the lock has no timeout, and
        `LockNotOwnedError` when it lost the lock.
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
        """Let the lock end `timeout` from now. Raises as `extend` does."""
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
