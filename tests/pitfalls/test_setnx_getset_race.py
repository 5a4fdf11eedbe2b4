"""Two clients find an expired lock at the same moment: the race of locks whose value is a timestamp.

The old recipe keeps the time of expiry in the value (SETNX) and takes an expired lock over with GETSET, or with DEL and
SETNX. Whoever does that decides by what it read earlier, and between the two steps somebody else may have decided
the same. The cure is to let the server expire the key and decide in one step.
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
    """SETNX + GETSET: the loser overwrites the winner's timestamp, and the winner can no longer release its lock."""
    peer.set("x", "1.0")  # of a holder that died long ago

    seen_by_a = float(peer.get("x"))
    seen_by_b = float(peer.get("x"))
    assert max(seen_by_a, seen_by_b) < time.time()
    stamp_a, stamp_b = in_future(), in_future()
    assert float(peer.getset("x", stamp_a)) == seen_by_a, "a holds the lock: it found the expired value"
    assert float(peer.getset("x", stamp_b)) != seen_by_b, "b came second, and knows"

    # a releases only what is its own, as it should: and leaves the lock locked, since b's try changed the value.
    assert peer.get("x") == stamp_b.encode() != stamp_a.encode()
    if peer.get("x") == stamp_a.encode():
        peer.delete("x")
    assert peer.exists("x"), "nobody holds it, and nobody can get it"


def test_naive_delete_and_setnx_lets_two_in(peer: redis.Redis) -> None:
    """DEL + SETNX: both saw the dead holder's lock, and the second one deletes the first one's."""
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
    """A dozen clients in three processes wait, or try without a pause, when the key of a killed holder expires."""
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
