"""Pitfall: two clients find an expired lock at the same moment, where the lock's value is a timestamp.

The old recipe keeps the time of expiry in the value (SETNX) and takes an expired lock over with GETSET, or with DEL and
SETNX. A client then acts on an earlier read, and another client may have acted on the same read meanwhile. The cure is
that the server expires the key and decides in one step.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tools import eventually, process
from workers import DONE, GO, HELD, contend, hear, hold

if TYPE_CHECKING:
    import redis

    from servers import Server


def in_future() -> str:
    return str(time.time() + 60)


def test_naive_getset_loses_the_holders_own_expiry(peer: redis.Redis) -> None:
    """SETNX + GETSET: the loser overwrites the winner's timestamp, so the winner can no longer release its lock."""
    peer.set("x", "1.0")  # left by a holder that died long ago

    seen_by_a = float(peer.get("x"))
    seen_by_b = float(peer.get("x"))
    assert max(seen_by_a, seen_by_b) < time.time()
    stamp_a, stamp_b = in_future(), in_future()
    assert float(peer.getset("x", stamp_a)) == seen_by_a, "a holds the lock: it found the expired value"
    assert float(peer.getset("x", stamp_b)) != seen_by_b, "b came second, and knows"

    # As it should, a releases the lock only if the value is its own. The value is b's, so the lock stays locked.
    assert peer.get("x") == stamp_b.encode() != stamp_a.encode()
    if peer.get("x") == stamp_a.encode():
        peer.delete("x")
    assert peer.exists("x"), "nobody holds it, and nobody can get it"


def test_naive_delete_and_setnx_lets_two_in(peer: redis.Redis) -> None:
    """DEL + SETNX: both clients saw the dead holder's lock, and the second one deletes the first one's lock."""
    peer.set("x", "1.0")
    a_saw_it_expired = float(peer.get("x")) < time.time()
    b_saw_it_expired = float(peer.get("x")) < time.time()

    assert a_saw_it_expired
    peer.delete("x")
    a_inside = peer.setnx("x", in_future())
    assert b_saw_it_expired
    peer.delete("x")
    b_inside = peer.setnx("x", in_future())
    assert a_inside, "a is inside"
    assert b_inside, "and so is b"


def test_one_grant_at_a_time_when_a_dead_holders_key_expires(server: Server, peer: redis.Redis) -> None:
    """Twelve clients in three processes wait, or try without a pause, while the key of a killed holder expires."""
    processes, threads, rounds = 3, 4, 10
    with ExitStack() as stack:
        for _ in range(processes):
            stack.enter_context(process(contend, server.url, "x", threads, rounds))
        eventually(lambda: peer.llen("told:ready") == processes * threads)
        holder = stack.enter_context(process(hold, server.url, "x", 1.5))
        first = int(hear(peer, HELD))
        holder.kill()
        peer.rpush(GO, *range(processes * threads))
        for _ in range(processes * threads):
            hear(peer, DONE)

    tokens = [int(token) for token in peer.lrange("tokens", 0, -1)]
    assert len(tokens) == processes * threads * rounds
    assert peer.lrange("overlaps", 0, -1) == []
    assert first < tokens[0], "the first one had to wait for the end of the dead holder's lease"
    assert all(earlier < later for earlier, later in itertools.pairwise(tokens))
    assert not peer.exists("x")
