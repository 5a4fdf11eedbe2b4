"""Pitfall: the server hangs, and the holder does not notice that its lease ends.

A hung server sends neither a reply nor an error. A client that detects a loss only by a failed renewal detects it too
late, or never: node-redlock's lease of 2 s was still "held" 8 s after the server had stopped. A client that gives up
after the first failed renewal, on the other hand, loses locks without need.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import redis

import redlock
import redlock.asyncio
from tools import eventually, running

if TYPE_CHECKING:
    from servers import Server

TTL = 2.0
# The share of the ttl after which a lease ends for its holder, with the default drift. The key expires later.
SHARE = 0.9


def test_naive_holder_is_not_told(server: Server, peer: redis.Redis) -> None:
    """The naive holder believes that it holds the lock until a renewal is answered, and none is."""
    believes = bool(peer.set("x", "a", nx=True, px=300))
    acquired = time.monotonic()
    impatient = redis.Redis.from_url(server.url, socket_timeout=0.5, retry=None)
    impatient.ping()
    server.freeze()
    try:
        impatient.pexpire("x", 300)
    except redis.RedisError:
        pass  # "perhaps it works next time"
    else:
        believes = False
    assert time.monotonic() - acquired > 0.3
    server.thaw()
    assert believes, "the naive holder has noticed that its lease is over"
    assert eventually(lambda: peer.set("x", "b", nx=True)), "a second owner gets the lock meanwhile"


@pytest.mark.parametrize("ttl", [TTL, None], ids=["fixed", "watchdog"])
def test_lost_before_the_key_can_expire(server: Server, other: redlock.Redlock, ttl: float | None) -> None:
    """The holder's own clock ends the lease while the server does not answer."""
    with redlock.Redlock(server.url, watchdog=TTL) as client:
        lease = client.lock("x", ttl=ttl).acquire()
        assert lease is not None
        server.freeze()
        # The frozen server answers no later request, so no correct deadline is later than this one. The loop reads the
        # clock before `held`: however busy the machine is, a `held` that is true after the deadline is an error.
        deadline = time.monotonic() + TTL * SHARE
        while True:
            now = time.monotonic()
            held = lease.held
            assert not (held and now >= deadline), "believes longer than the lease can last"
            if not held:
                break
        assert lease.lost.wait(10)
        assert lease.lost.reason == ("expired" if ttl else "unreachable")
        server.thaw()
        next_one = other.lock("x").acquire(timeout=10)
        assert next_one is not None
        assert next_one.token > lease.token
        assert not lease.held, "lost is final"
        assert lease.release() == "lost"
        assert next_one.held


def test_asyncio_is_told_too(server: Server) -> None:
    """A task that waits for the loss wakes up although the server does not answer."""

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url, watchdog=TTL) as client:
            lease = await client.lock("x").acquire()
            assert lease is not None
            server.freeze()
            try:
                assert await asyncio.wait_for(lease.wait_lost(), 20)
                assert not lease.held
                assert lease.lost.reason == "unreachable"
            finally:
                server.thaw()

    asyncio.run(main())


def test_a_hang_shorter_than_the_lease_loses_nothing(server: Server, peer: redis.Redis) -> None:
    """A failed renewal is retried until the deadline. In python-redis-lock, the first failure ends the thread."""
    with redlock.Redlock(server.url, watchdog=3.0, reply_timeout=0.3) as client, client.lock("x") as lease:
        server.freeze()
        # Below 1.2 s, a renewal is overdue: with a renewal every second, the lease has 1.7 s or more at any time.
        eventually(lambda: lease.remaining() < 1.2)
        server.thaw()
        eventually(lambda: lease.remaining() > 2.0)
        assert not lease.lost.is_set()
        assert peer.pttl("x") > 2000


def test_a_hung_server_is_an_outage_and_no_contention(server: Server, client: redlock.Redlock) -> None:
    """An acquire on a hung server raises `Unavailable`. It neither hangs nor reports that somebody holds the lock."""
    with client.lock("before"):
        pass
    server.freeze()
    with pytest.raises(redlock.Unavailable):
        client.lock("x").acquire(blocking=False)
    server.thaw()


def test_a_quorum_does_not_wait_for_a_hung_minority() -> None:
    """With one of five nodes hung and one dead, an acquire succeeds, waits for no time-out, and leaves no key."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running()) for _ in range(5)]
        # Time-outs so long that waiting for a single one would fail the test.
        options: redlock.ClientOptions = {"reply_timeout": 20, "connect_timeout": 20}
        client = stack.enter_context(redlock.Redlock([server.url for server in servers], **options))
        with client.lock("before"):
            pass
        servers[0].freeze()
        servers[1].kill()
        begun = time.monotonic()
        with client.lock("x") as lease:
            assert lease.held
        assert time.monotonic() - begun < 15
        for server in servers[2:]:
            with redis.Redis.from_url(server.url) as peer:
                eventually(lambda peer=peer: not peer.exists("x"))  # type: ignore[misc]
        servers[0].thaw()
