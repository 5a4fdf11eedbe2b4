"""Pitfall: a cancelled acquire leaves a lock that nobody holds or releases.

A task is cancelled (a time-out, a client that disconnected) while its request is under way. The server grants the lock,
and nobody reads the reply. Of 300 cancelled acquires, redis-py's asyncio lock left 18 such keys, without a ttl.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio

import redlock.asyncio
from tools import Proxy, eventually, lock_keys

if TYPE_CHECKING:
    from servers import Server

CANCELS = 200


def test_naive_acquire_leaves_an_orphan(server: Server, peer: redis.Redis) -> None:
    """SET NX is cancelled while its reply is under way: the key stays."""

    async def main(proxy: Proxy) -> None:
        # With a time-out redis-py writes inside `asyncio.wait_for`, which swallows a cancellation before Python 3.12.
        async with redis.asyncio.Redis.from_url(proxy.url, socket_timeout=None) as naive:
            await naive.ping()
            proxy.hold_replies()
            task = asyncio.ensure_future(naive.set("x", "me", nx=True, px=60_000))
            await asyncio.to_thread(eventually, lambda: peer.exists("x"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.let_replies_go()

    with Proxy(server.port) as proxy:
        asyncio.run(main(proxy))
    assert peer.pttl("x") > 1000, "locked for a minute, by nobody"


def test_acquire_cancelled_while_its_reply_is_on_its_way(server: Server, peer: redis.Redis) -> None:
    """An acquire is cancelled at that very moment: the client releases the lock that nobody collects."""

    async def main(proxy: Proxy) -> None:
        async with redlock.asyncio.Redlock(proxy.url) as client:
            async with client.lock("unrelated"):
                pass
            proxy.hold_replies()
            task = asyncio.create_task(client.lock("x").acquire())
            await asyncio.to_thread(eventually, lambda: peer.exists("x"))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            proxy.let_replies_go()
            # The ttl is 30 s: a key that is gone within 10 s was released and did not expire.
            await asyncio.to_thread(eventually, lambda: not peer.exists("x"), 10)

    with Proxy(server.port) as proxy:
        asyncio.run(main(proxy))


def test_two_hundred_cancelled_acquires_leave_nothing(server: Server, peer: redis.Redis) -> None:
    """The acquires are cancelled at random moments, from before the first byte to after the grant."""
    seed = random.randrange(2**32)
    print(f"REDLOCK_SEED={seed}")
    chance = random.Random(seed)

    async def main() -> int:
        granted = 0
        async with redlock.asyncio.Redlock(server.url) as client:
            async with client.lock("unrelated"):
                pass
            for number in range(CANCELS):
                task = asyncio.create_task(client.lock(f"cancelled-{number}").acquire())
                await asyncio.sleep(chance.choice([0, chance.uniform(0, 0.002)]))
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    lease = await task
                except asyncio.CancelledError:
                    continue
                assert lease is not None
                granted += 1
                assert await lease.release() == "released"
            # Checked before the client closes, because closing releases what is left.
            await asyncio.to_thread(eventually, lambda: lock_keys(peer) == {}, 10)
        return granted

    granted = asyncio.run(main())
    assert granted < CANCELS, "every acquire was too fast to be cancelled: this shows nothing"


def test_waiters_that_are_cancelled_do_not_block_the_queue(
    server: Server, peer: redis.Redis, other: redlock.Redlock
) -> None:
    """A hundred tasks wait for one lock and ninety are cancelled: the other ten still acquire it, in order."""

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url) as client:
            lock = client.lock("x")

            async def work() -> int:
                async with lock as lease:
                    return lease.token

            held = other.lock("x").acquire()
            assert held is not None
            tasks = [asyncio.create_task(work()) for _ in range(100)]
            await asyncio.to_thread(eventually, lambda: peer.pubsub_numsub("redisson_lock__channel:{x}")[0][1] > 0)
            for task in tasks[:90]:
                task.cancel()
            held.release()
            tokens = await asyncio.wait_for(asyncio.gather(*tasks[90:]), 20)
            assert tokens == sorted(set(tokens))

    asyncio.run(main())
    assert lock_keys(peer) == {}
