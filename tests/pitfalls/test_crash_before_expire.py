"""A client dies between taking the lock and giving it a time to live: the lock is locked for ever.

SETNX (or INCR, or HSET) followed by EXPIRE is two requests, and a crash between them leaves a key that never ends.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from tools import eventually, lock_keys, process
from workers import HELD, hear, lock_for_ever, naive_crash

if TYPE_CHECKING:
    from typing import Literal

    import redis

    from servers import Server


def test_naive_lock_is_left_without_a_ttl(server: Server, peer: redis.Redis) -> None:
    """SETNX, then kill -9 before EXPIRE."""
    with process(naive_crash, server.url, "x") as holder:
        hear(peer, HELD)
        holder.kill()
        holder.join()
    assert peer.pttl("x") == -1, "locked for ever"
    assert not peer.setnx("x", "somebody else")


@pytest.mark.parametrize("wire", ["redisson", "token"])
def test_no_moment_of_an_acquire_leaves_a_lock_without_a_ttl(
    server: Server, peer: redis.Redis, wire: Literal["redisson", "token"]
) -> None:
    """Kill -9 at random moments of connecting, acquiring, renewing and releasing: every key that is left has a TTL."""
    seed = random.randrange(2**32)
    print(f"REDLOCK_SEED={seed}")
    chance = random.Random(seed)
    myself = peer.client_id()
    left = 0
    for number in range(12):
        with process(lock_for_ever, server.url, wire, number) as victim:
            eventually(lambda: len(peer.client_list()) > 1)
            time.sleep(chance.uniform(0, 0.15))  # no event is waited for: the moment of the kill is to be random
            victim.kill()
            victim.join()
        # The server runs what it has received before it sees that the connection is gone.
        eventually(lambda: [client for client in peer.client_list() if int(client["id"]) != myself] == [])
        keys = lock_keys(peer)
        left += len(keys)
        # -1 would be no ttl; the longest lease here is one second.
        assert all(0 <= pttl <= 1000 for pttl in keys.values()), keys
    assert left > 0, "no kill came while a lock was held: this shows nothing"
    # And so all of them end.
    eventually(lambda: lock_keys(peer) == {}, within=10)
