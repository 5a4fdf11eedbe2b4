"""One adapter for each Python library, which uses it as its documentation shows.

Each adapter has `connect`, `acquire`, `release`, `block` and `close`; in `ASYNC` they are coroutines. `reentrant` says
whether an owner can acquire a lock again. `acquire` and `release` keep lock objects for the next use of a name; `block`
makes a new one.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

import pottery
import redis
import redis.asyncio
import redis_lock
import redlock
import redlock.asyncio

TTL = 10
# How many slots a semaphore has.
PERMITS = 10
# The arguments that our client sends besides names: no explicit owner, ttl, the counter's ttl, no proposed token.
ARGUMENTS = ("", TTL * 1000, 3_600_000, 0)


class Unsupported(Exception):
    """The library cannot do this."""


def only(urls: list[str]) -> str:
    """Return the one URL, for a library without quorums."""
    if len(urls) > 1:
        raise Unsupported("one server only")
    return urls[0]


class Library:
    """The adapter of a library for threads."""

    package: ClassVar[str]
    reentrant = False

    def block(self, name: str) -> None:
        """Acquire and release a lock as users write it, with a lock object made for this use."""
        self.release(self.acquire(name))

    def acquire(self, name: str) -> Any:
        raise NotImplementedError

    def release(self, lease: Any) -> None:
        raise NotImplementedError


class AsyncLibrary:
    """The adapter of a library for asyncio."""

    package: ClassVar[str]
    reentrant = False

    async def block(self, name: str) -> None:
        await self.release(await self.acquire(name))

    async def acquire(self, name: str) -> Any:
        raise NotImplementedError

    async def acquire_kind(self, kind: str, name: str) -> Any:
        """Acquire a lock of another kind: `read` or `write` of a read/write lock, or a permit of a `semaphore`."""
        raise Unsupported("has plain locks only")

    async def release(self, lease: Any) -> None:
        raise NotImplementedError


class Kept:
    """Lock objects by name, kept for the next use. Each has one user at a time, since most remember their holder."""

    def __init__(self) -> None:
        self.free: defaultdict[str, list[Any]] = defaultdict(list)

    def take(self, name: str, make: Callable[[str], Any]) -> Any:
        try:
            return self.free[name].pop()
        except IndexError:
            return make(name)

    def give(self, name: str, lock: Any) -> None:
        self.free[name].append(lock)


def options() -> dict[str, Any]:
    """Return the options of our client that the harness sets."""
    token_ttl = os.environ.get("BENCH_TOKEN_TTL")
    return {"token_ttl": int(token_ttl)} if token_ttl else {}


class Redlock(Library):
    """Ours, for threads."""

    package = "redlock-core"
    reentrant = True
    fair = False

    def connect(self, urls: list[str]) -> None:
        self.client = redlock.Redlock(urls, **options())
        self.locks: dict[str, redlock.Lock] = {}

    def acquire(self, name: str) -> Any:
        lock = self.locks.get(name) or self.locks.setdefault(name, self.client.lock(name, fair=self.fair))
        return lock.acquire()

    def release(self, lease: Any) -> None:
        lease.release()

    def block(self, name: str) -> None:
        with self.client.lock(name, fair=self.fair):
            pass

    def close(self) -> None:
        self.client.close()


class RedlockFair(Redlock):
    """Ours, with fair locks."""

    fair = True

    def connect(self, urls: list[str]) -> None:
        if len(urls) > 1:
            raise Unsupported("needs one server")
        super().connect(urls)


class RedlockAsync(AsyncLibrary):
    """Ours, for asyncio."""

    package = "redlock-core"
    reentrant = True

    async def connect(self, urls: list[str]) -> None:
        self.client = redlock.asyncio.Redlock(urls, **options())
        self.locks: dict[str, redlock.asyncio.Lock] = {}
        self.kinds: dict[tuple[str, str], Any] = {}

    async def acquire(self, name: str) -> Any:
        lock = self.locks.get(name) or self.locks.setdefault(name, self.client.lock(name))
        return await lock.acquire()

    async def acquire_kind(self, kind: str, name: str) -> Any:
        lock = self.kinds.get((kind, name)) or self.kinds.setdefault((kind, name), self.make(kind, name))
        return await lock.acquire()

    def make(self, kind: str, name: str) -> Any:
        if kind == "semaphore":
            return self.client.semaphore(name, PERMITS)
        lock = self.client.read_write_lock(name)
        return {"read": lock.read, "write": lock.write}[kind]()

    async def release(self, lease: Any) -> None:
        await lease.release()

    async def block(self, name: str) -> None:
        async with self.client.lock(name):
            pass

    async def close(self) -> None:
        await self.client.close()


class Words:
    """The two scripts that ours sends, with their arguments, over redis-py."""

    def __init__(self, client: Any) -> None:
        self.id, self.numbers = str(uuid.uuid4()), itertools.count()
        scripts = json.loads(os.environ["BENCH_SCRIPTS"])
        self.loading = [client.script_load(scripts[name]) for name in ("acquire", "release")]

    def acquire(self, sha: str, name: str) -> tuple[str, tuple[Any, ...]]:
        field = f"{self.id}:{next(self.numbers)}"
        return field, (sha, 2, name, f"redlock_token:{{{name}}}", field, *ARGUMENTS)

    def release(self, sha: str, name: str, field: str) -> tuple[Any, ...]:
        return (sha, 1, name, field, f"redisson_lock__channel:{{{name}}}")


class Bare(Library):
    """No library: redis-py sends the two scripts that ours sends. The floor of this language."""

    package = "redis"

    def connect(self, urls: list[str]) -> None:
        self.client = redis.Redis.from_url(only(urls))
        self.words = Words(self.client)
        self.take, self.free = self.words.loading

    def acquire(self, name: str) -> Any:
        field, words = self.words.acquire(self.take, name)
        assert self.client.evalsha(*words).startswith(b"1 ")
        return name, field

    def release(self, lease: Any) -> None:
        assert self.client.evalsha(*self.words.release(self.free, *lease)) == 1

    def close(self) -> None:
        self.client.close()


class BareAsync(AsyncLibrary):
    """The same floor over redis-py's asyncio client."""

    package = "redis"

    async def connect(self, urls: list[str]) -> None:
        self.client = redis.asyncio.Redis.from_url(only(urls))
        self.words = Words(self.client)
        self.take, self.free = [await loading for loading in self.words.loading]

    async def acquire(self, name: str) -> Any:
        field, words = self.words.acquire(self.take, name)
        assert (await self.client.evalsha(*words)).startswith(b"1 ")
        return name, field

    async def release(self, lease: Any) -> None:
        assert await self.client.evalsha(*self.words.release(self.free, *lease)) == 1

    async def close(self) -> None:
        await self.client.aclose()


class RedisPy(Library):
    """redis-py's own Lock. Waiters poll every 0.1 s by default; without a timeout a lock would never expire."""

    package = "redis"

    def connect(self, urls: list[str]) -> None:
        self.client = redis.Redis.from_url(only(urls))
        self.kept = Kept()

    def make(self, name: str) -> Any:
        return self.client.lock(name, timeout=TTL)

    def acquire(self, name: str) -> Any:
        lock = self.kept.take(name, self.make)
        assert lock.acquire()
        return name, lock

    def release(self, lease: Any) -> None:
        name, lock = lease
        lock.release()
        self.kept.give(name, lock)

    def block(self, name: str) -> None:
        with self.make(name):
            pass

    def close(self) -> None:
        self.client.close()


class RedisPyAsync(AsyncLibrary):
    """redis-py's asyncio Lock."""

    package = "redis"

    async def connect(self, urls: list[str]) -> None:
        self.client = redis.asyncio.Redis.from_url(only(urls))
        self.kept = Kept()

    def make(self, name: str) -> Any:
        return self.client.lock(name, timeout=TTL)

    async def acquire(self, name: str) -> Any:
        lock = self.kept.take(name, self.make)
        assert await lock.acquire()
        return name, lock

    async def release(self, lease: Any) -> None:
        name, lock = lease
        await lock.release()
        self.kept.give(name, lock)

    async def block(self, name: str) -> None:
        async with self.make(name):
            pass

    async def close(self) -> None:
        await self.client.aclose()


class PythonRedisLock(RedisPy):
    """python-redis-lock, which waits with `BLPOP`; without `expire` a lock would never expire."""

    package = "python-redis-lock"

    def make(self, name: str) -> Any:
        return redis_lock.Lock(self.client, name, expire=TTL)


class Pottery(RedisPy):
    """pottery's Redlock."""

    package = "pottery"

    def connect(self, urls: list[str]) -> None:
        self.clients = [redis.Redis.from_url(url) for url in urls]
        self.kept = Kept()

    def make(self, name: str) -> Any:
        return pottery.Redlock(key=name, masters=set(self.clients))

    def close(self) -> None:
        for client in self.clients:
            client.close()


SYNC: dict[str, Any] = {
    "redlock-sync": Redlock,
    "redlock-fair": RedlockFair,
    "bare-sync": Bare,
    "redis-py-sync": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "pottery": Pottery,
}
ASYNC: dict[str, Any] = {"redlock-asyncio": RedlockAsync, "bare-asyncio": BareAsync, "redis-py-asyncio": RedisPyAsync}
