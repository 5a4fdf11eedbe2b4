"""Pitfall: a client dies between setting the key and setting its time to live, and the lock stays locked for ever.

SETNX (or INCR, or HSET) followed by EXPIRE is two requests. A crash between them leaves a key that never expires.
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
    """The process is killed (kill -9) after SETNX and before EXPIRE: the key never expires."""
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
    """Processes are killed (kill -9) at random moments of connecting, acquiring, renewing and releasing.

    Every key that is left has a TTL.
    """
    seed = random.randrange(2**32)
    print(f"REDLOCK_SEED={seed}")
    chance = random.Random(seed)
    myself = peer.client_id()
    left = 0
    for number in range(12):
        with process(lock_for_ever, server.url, wire, number) as victim:
            eventually(lambda: len(peer.client_list()) > 1)
            time.sleep(chance.uniform(0, 0.15))  # the only purpose: to kill at a random moment
            victim.kill()
            victim.join()
        # Before the server notices that a connection is gone, it runs the requests that it has received.
        eventually(lambda: [client for client in peer.client_list() if int(client["id"]) != myself] == [])
        keys = lock_keys(peer)
        left += len(keys)
        # -1 would be a key without a ttl; the longest ttl here is one second.
        assert all(0 <= pttl <= 1000 for pttl in keys.values()), keys
    assert left > 0, "no kill came while a lock was held: this shows nothing"
    # All of them expire.
    eventually(lambda: lock_keys(peer) == {}, within=10)
