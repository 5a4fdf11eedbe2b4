"""One adapter for each Python library: how its documentation says to take and release a lock.

Each has `connect`, `acquire`, `release` and `close`, coroutines in those of `ASYNC`, and says by `reentrant` whether an
owner can take a lock again. Lock objects are kept for each name where the library allows it.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from typing import Any, ClassVar

import redis
import redis.asyncio
import redlock
import redlock.asyncio

TTL = 10
# What our client sends beside names: no explicit owner, ttl, the counter's ttl, no proposed token.
ARGUMENTS = ("", TTL * 1000, 3_600_000, 0)


class Unsupported(Exception):
    """The library cannot do this."""


def only(urls: list[str]) -> str:
    """Return the one URL of a library without quorums."""
    if len(urls) > 1:
        raise Unsupported("one server only")
    return urls[0]


class Redlock:
    """Ours, for threads."""

    package: ClassVar[str] = "redlock-core"
    reentrant = True

    def connect(self, urls: list[str]) -> None:
        self.client = redlock.Redlock(urls)
        self.locks: dict[str, redlock.Lock] = {}

    def acquire(self, name: str) -> Any:
        lock = self.locks.get(name) or self.locks.setdefault(name, self.client.lock(name))
        return lock.acquire()

    def release(self, lease: Any) -> None:
        lease.release()

    def close(self) -> None:
        self.client.close()


class RedlockAsync:
    """Ours, for asyncio."""

    package: ClassVar[str] = "redlock-core"
    reentrant = True

    async def connect(self, urls: list[str]) -> None:
        self.client = redlock.asyncio.Redlock(urls)
        self.locks: dict[str, redlock.asyncio.Lock] = {}

    async def acquire(self, name: str) -> Any:
        lock = self.locks.get(name) or self.locks.setdefault(name, self.client.lock(name))
        return await lock.acquire()

    async def release(self, lease: Any) -> None:
        await lease.release()

    async def close(self) -> None:
        await self.client.close()


class Bare:
    """No library: redis-py that sends the two scripts that ours sends. The floor of this language."""

    package: ClassVar[str] = "redis"
    reentrant = False
    client_class: ClassVar[Any] = redis.Redis

    def prepare(self, urls: list[str]) -> tuple[Any, Any]:
        self.client = self.client_class.from_url(only(urls))
        self.id, self.numbers = str(uuid.uuid4()), itertools.count()
        scripts = json.loads(os.environ["BENCH_SCRIPTS"])
        return self.client.script_load(scripts["acquire"]), self.client.script_load(scripts["release"])

    def acquire_words(self, name: str) -> tuple[Any, ...]:
        field = f"{self.id}:{next(self.numbers)}"
        return field, (self.take, 2, name, f"redlock_token:{{{name}}}", field, *ARGUMENTS)

    def release_words(self, lease: tuple[str, str]) -> tuple[Any, ...]:
        name, field = lease
        return (self.free, 1, name, field, f"redisson_lock__channel:{{{name}}}")

    def connect(self, urls: list[str]) -> None:
        self.take, self.free = self.prepare(urls)

    def acquire(self, name: str) -> Any:
        field, words = self.acquire_words(name)
        assert self.client.evalsha(*words).startswith(b"1 ")
        return name, field

    def release(self, lease: Any) -> None:
        assert self.client.evalsha(*self.release_words(lease)) == 1

    def close(self) -> None:
        self.client.close()


class BareAsync(Bare):
    """The same over redis-py's asyncio client."""

    client_class = redis.asyncio.Redis

    async def connect(self, urls: list[str]) -> None:  # type: ignore[override]
        take, free = self.prepare(urls)
        self.take, self.free = await take, await free

    async def acquire(self, name: str) -> Any:
        field, words = self.acquire_words(name)
        assert (await self.client.evalsha(*words)).startswith(b"1 ")
        return name, field

    async def release(self, lease: Any) -> None:
        assert await self.client.evalsha(*self.release_words(lease)) == 1

    async def close(self) -> None:
        await self.client.aclose()


class RedisPy:
    """redis-py's own Lock. Waiters poll every 0.1 s, its default."""

    package: ClassVar[str] = "redis"
    reentrant = False

    def connect(self, urls: list[str]) -> None:
        self.client = redis.Redis.from_url(only(urls))

    def acquire(self, name: str) -> Any:
        lock = self.client.lock(name, timeout=TTL)
        assert lock.acquire()
        return lock

    def release(self, lease: Any) -> None:
        lease.release()

    def close(self) -> None:
        self.client.close()


class RedisPyAsync:
    """redis-py's asyncio Lock."""

    package: ClassVar[str] = "redis"
    reentrant = False

    async def connect(self, urls: list[str]) -> None:
        self.client = redis.asyncio.Redis.from_url(only(urls))

    async def acquire(self, name: str) -> Any:
        lock = self.client.lock(name, timeout=TTL)
        assert await lock.acquire()
        return lock

    async def release(self, lease: Any) -> None:
        await lease.release()

    async def close(self) -> None:
        await self.client.aclose()


class PythonRedisLock(RedisPy):
    """python-redis-lock, which waits with BLPOP."""

    package = "python-redis-lock"

    def acquire(self, name: str) -> Any:
        import redis_lock

        lock = redis_lock.Lock(self.client, name, expire=TTL)
        assert lock.acquire()
        return lock


class Pottery:
    """pottery's Redlock."""

    package: ClassVar[str] = "pottery"
    reentrant = False

    def connect(self, urls: list[str]) -> None:
        self.clients = [redis.Redis.from_url(url) for url in urls]

    def acquire(self, name: str) -> Any:
        from pottery import Redlock as PotteryLock

        lock = PotteryLock(key=name, masters=set(self.clients), auto_release_time=TTL)
        assert lock.acquire()
        return lock

    def release(self, lease: Any) -> None:
        lease.release()

    def close(self) -> None:
        for client in self.clients:
            client.close()


SYNC: dict[str, Any] = {
    "redlock-sync": Redlock,
    "bare-sync": Bare,
    "redis-py-sync": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
}
ASYNC: dict[str, Any] = {"redlock-asyncio": RedlockAsync, "bare-asyncio": BareAsync, "redis-py-asyncio": RedisPyAsync}
