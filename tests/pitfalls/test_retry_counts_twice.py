"""Pitfall: a reply is lost, the client resends the request, and the server counts it twice.

The server granted the lock, and the reply was lost. If the client resends the acquire, a re-entrant lock counts a
second hold, and a SET NX lock is denied because of its own key. Either way a lock stays that nobody releases. A resent
release is worse: the same owner may have acquired the lock again, and loses it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import redlock
import redlock.asyncio
from tools import Proxy, eventually, lock_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

# Redisson and similar libraries count like this: the owner is a client and a thread, and each acquire adds one.
COUNTING_ACQUIRE = """
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
"""
COUNTING_RELEASE = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end
return redis.call('DEL', KEYS[1])
"""


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """The network that loses replies."""
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def client(server: Server, proxy: Proxy) -> Iterator[redlock.Redlock]:
    """A client behind that network. The server already knows the scripts, so only the reply under test is lost."""
    with redlock.Redlock(server.url) as warm, warm.lock("warm"):
        pass
    with redlock.Redlock(proxy.url, watchdog=1.0) as client:
        yield client


def test_naive_counting_lock_stays_locked(peer: redis.Redis, proxy: Proxy) -> None:
    """After one acquire whose reply was lost and one release, the lock is still locked."""
    retrying = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 1))
    retrying.ping()
    proxy.lose_reply(b"uuid:thread-1")
    assert retrying.eval(COUNTING_ACQUIRE, 1, "x", "uuid:thread-1", 60_000) == 1
    assert proxy.lost.is_set()
    assert peer.hget("x", "uuid:thread-1") == b"2", "acquired once, counted twice"
    retrying.eval(COUNTING_RELEASE, 1, "x", "uuid:thread-1")
    assert peer.exists("x"), "nobody holds it, and nobody can get it"


def test_naive_set_nx_is_refused_by_itself(peer: redis.Redis, proxy: Proxy) -> None:
    """A client resends a SET NX whose reply was lost, and is denied because of its own key."""
    retrying = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 1))
    retrying.ping()
    proxy.lose_reply(b"my-token")
    assert retrying.set("x", "my-token", nx=True, px=60_000) is None
    assert peer.get("x") == b"my-token"


def test_naive_release_repeated_frees_the_next_hold(peer: redis.Redis, proxy: Proxy) -> None:
    """A client resends a release whose reply was lost, after the same owner has acquired the lock again."""
    fragile = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
    fragile.eval(COUNTING_ACQUIRE, 1, "x", "uuid:thread-1", 60_000)
    proxy.lose_reply(b"uuid:thread-1")
    with pytest.raises(redis.ConnectionError):
        fragile.eval(COUNTING_RELEASE, 1, "x", "uuid:thread-1")
    assert fragile.eval(COUNTING_ACQUIRE, 1, "x", "uuid:thread-1", 60_000) == 1, "the next hold of this thread"
    fragile.eval(COUNTING_RELEASE, 1, "x", "uuid:thread-1")  # the release, once more
    assert not peer.exists("x"), "the thread is inside without a lock"


@pytest.mark.parametrize("wire", ["redisson", "token"])
@pytest.mark.parametrize("wait", [0, 10])
def test_acquire_whose_reply_was_lost(server: Server, peer: redis.Redis, proxy: Proxy, wire: str, wait: float) -> None:
    """The acquire succeeds once, or fails and is released in the background. The lock never stays locked."""
    with (
        redlock.Redlock(server.url, wire=wire) as warm,  # type: ignore[arg-type]
        warm.lock("warm"),
    ):
        pass
    with redlock.Redlock(proxy.url, wire=wire) as client:  # type: ignore[arg-type]
        with client.lock("unrelated"):
            pass
        proxy.lose_reply(b"lost-reply")
        lease = None
        with contextlib.suppress(redlock.Unavailable):
            lease = client.lock("lost-reply").acquire(timeout=wait)
        assert proxy.lost.is_set(), "the reply was lost"
        if lease is not None:
            assert lease.held
            if wire == "redisson":
                assert peer.hgetall("lost-reply") == {lease.owner.encode(): b"1"}
            assert lease.release() == "released"
        # The ttl is 30 s: a key that is gone within 10 s was released and did not expire.
        eventually(lambda: not peer.exists("lost-reply"), within=10)
        with client.lock("lost-reply", wait=5) as again:
            assert again.held


def test_acquire_whose_reply_was_lost_and_whose_client_went_away(
    peer: redis.Redis, proxy: Proxy, client: redlock.Redlock
) -> None:
    """The reply is lost and no further connection succeeds, so the key expires after its ttl."""
    lock = client.lock("lost-reply", ttl=2)
    with client.lock("unrelated"):
        pass
    proxy.lose_reply(b"lost-reply")
    proxy.refuse()
    with pytest.raises(redlock.Unavailable):
        lock.acquire(blocking=False)
    assert proxy.lost.is_set()
    assert peer.pttl("lost-reply") <= 2000
    eventually(lambda: not peer.exists("lost-reply"), within=10)


def test_nested_acquires_are_counted_by_the_client(peer: redis.Redis, client: redlock.Redlock) -> None:
    """The client counts nested acquires; the field in Redis stays 1, so a resent request cannot count twice."""
    with client.lock("x") as outer, client.lock("x"), client.lock("x"):
        assert peer.hgetall("x") == {outer.owner.encode(): b"1"}
    assert not peer.exists("x")


def test_release_whose_reply_was_lost_spares_the_next_hold(
    peer: redis.Redis, proxy: Proxy, client: redlock.Redlock
) -> None:
    """A release is resent after the same thread has acquired the lock again: the new tenure has another field."""
    lock = client.lock("x")
    first = lock.acquire()
    assert first is not None
    proxy.lose_reply(first.owner.encode())
    assert first.release() in ("released", "unconfirmed")
    assert proxy.lost.is_set()
    second = lock.acquire(timeout=10)
    assert second is not None
    assert second.owner != first.owner
    assert second.token > first.token

    # The test sends the first release once more, as a delayed packet would arrive.
    release = [piece for piece in proxy.requests if first.owner.encode() in piece][-1]
    assert b"EVALSHA" in release.upper()
    raw = peer.connection_pool.get_connection()
    raw.send_packed_command([release])
    assert raw.read_response() == 0, "it finds nothing of its own"
    peer.connection_pool.release(raw)
    assert not second.lost.wait(1.5), "longer than the lease: it is renewed"
    assert second.held
    assert peer.hgetall("x") == {second.owner.encode(): b"1"}
    assert second.release() == "released"
    assert lock_keys(peer) == {}
