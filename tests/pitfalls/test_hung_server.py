"""The server hangs, and the holder is not told.

No error comes, no reply, nothing: whoever learns of a loss from the failure of a renewal learns of it too late, or
never (node-redlock's lease of 2 s was still "held" 8 s after the server had stopped). Whoever gives up at the first
renewal that fails, on the other hand, loses locks for nothing.
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
# When a lease ends for its holder, with the default drift: earlier than for the server.
SHARE = 0.9


def test_naive_holder_is_not_told(server: Server, peer: redis.Redis) -> None:
    """It believes until its renewal is answered, which is never."""
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
    assert believes, "with a lease that is over,"
    assert eventually(lambda: peer.set("x", "b", nx=True)), "while somebody else is inside"


@pytest.mark.parametrize("ttl", [TTL, None], ids=["fixed", "watchdog"])
def test_lost_before_the_key_can_expire(server: Server, other: redlock.Redlock, ttl: float | None) -> None:
    """The holder knows from its own clock, while nothing answers."""
    with redlock.Redlock(server.url, watchdog=TTL) as client:
        lease = client.lock("x", ttl=ttl).acquire()
        assert lease is not None
        server.freeze()
        # Nothing sent later than now can have been answered, so no honest deadline lies behind this one. The clock is
        # read before the lease is asked: however busy the machine is, an answer of "held" is then a wrong one.
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
    """A task that waits for the loss wakes up without a reply."""

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
    """A renewal that is late is tried again until the deadline; python-redis-lock's thread dies of the first one."""
    with redlock.Redlock(server.url, watchdog=3.0, reply_timeout=0.3) as client, client.lock("x") as lease:
        server.freeze()
        # Until a renewal is overdue: renewed every second, the lease has 1.7 s or more at any time.
        eventually(lambda: lease.remaining() < 1.2)
        server.thaw()
        eventually(lambda: lease.remaining() > 2.0)
        assert not lease.lost.is_set()
        assert peer.pttl("x") > 2000


def test_a_hung_server_is_an_outage_and_no_contention(server: Server, client: redlock.Redlock) -> None:
    """To say that somebody else holds it would be a guess, and a call that hangs for ever helps nobody."""
    with client.lock("before"):
        pass
    server.freeze()
    with pytest.raises(redlock.Unavailable):
        client.lock("x").acquire(blocking=False)
    server.thaw()


def test_a_quorum_does_not_wait_for_a_hung_minority() -> None:
    """Two of five hang, or are dead: no error, no key left behind, and no time-out waited for."""
    with ExitStack() as stack:
        servers = [stack.enter_context(running()) for _ in range(5)]
        # Time-outs so long that a single one would be seen.
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
