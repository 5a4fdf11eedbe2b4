"""Pitfall: two tasks share a lock object, and one releases the lock that the other holds.

A lock object that keeps its token in an attribute or in a `threading.local` knows only one holder, since tasks share
both. The second task's token overwrites the first one's, so the first task's release frees the second task's lock.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio

import redlock.asyncio
from tools import eventually

if TYPE_CHECKING:
    from servers import Server


class NaiveLock:
    """Keeps its token in an attribute, as most libraries do."""

    def __init__(self, url: str, name: str) -> None:
        self.redis, self.name, self.token = redis.asyncio.Redis.from_url(url), name, ""

    async def acquire(self, px: int) -> bool:
        token = os.urandom(8).hex()
        if await self.redis.set(self.name, token, nx=True, px=px):
            self.token = token
            return True
        return False

    async def release(self) -> None:
        if await self.redis.get(self.name) == self.token.encode():
            await self.redis.delete(self.name)


def test_naive_task_frees_the_other_tasks_lock(server: Server, peer: redis.Redis) -> None:
    """The first task's lease ends, the second task acquires the lock by the same object, and the first releases it."""

    async def main() -> None:
        lock = NaiveLock(server.url, "x")
        assert await lock.acquire(50)  # the first task
        await asyncio.to_thread(eventually, lambda: not peer.exists("x"))
        assert await lock.acquire(60_000)  # the second task
        await lock.release()  # the first task
        await lock.redis.aclose()

    asyncio.run(main())
    assert not peer.exists("x"), "the second task is inside, without a lock"


def test_each_task_releases_its_own(server: Server, peer: redis.Redis) -> None:
    """With one redlock object, the first task's release returns "lost" and changes nothing."""

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url, watchdog=1.0) as client:
            lock = client.lock("x", ttl=0.3)
            expired, taken = asyncio.Event(), asyncio.Event()

            async def first() -> str:
                assert await lock.acquire() is not None
                await asyncio.to_thread(eventually, lambda: not peer.exists("x"))
                expired.set()
                await taken.wait()
                return await lock.release()

            async def second() -> bool:
                await expired.wait()
                lease = await lock.acquire()
                assert lease is not None
                await lease.extend(30)
                taken.set()
                assert await one == "lost"
                assert lease.held
                assert peer.exists("x")
                return await lock.release() == "released"

            one = asyncio.create_task(first())
            assert await second()

    asyncio.run(main())


def test_tasks_and_their_children_exclude_each_other(server: Server) -> None:
    """A child task does not hold its parent's lock, although it inherits the parent's context variables."""

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url) as client:
            lock = client.lock("x")
            async with lock:
                assert lock.owned()
                async with lock:  # the same task: re-entrant

                    async def child() -> None:
                        assert not lock.owned()
                        assert await lock.acquire(blocking=False) is None
                        with pytest.raises(redlock.NotHeld):
                            await lock.release()

                    await asyncio.gather(child(), child(), child())
                assert lock.owned()

    asyncio.run(main())


def test_threads_that_share_a_lock_object_exclude_each_other(client: redlock.Redlock) -> None:
    """A try by another thread fails, and the holder can still release the lock afterwards."""
    lock = client.lock("x")
    tried: list[redlock.Lease | None] = []
    with lock as lease:
        thread = threading.Thread(target=lambda: tried.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert tried == [None]
        assert lease.held
    assert not lock.locked()
