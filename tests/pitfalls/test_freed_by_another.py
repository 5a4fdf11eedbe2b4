"""Pitfall: a former holder releases the lock of the next one, by a plain DEL or by a check in a request of its own.

The first holder was slow, its lease ended, and a second owner has the lock. Now the first one finishes and "releases".
A DEL frees the second owner's lock and lets a third in. Comparing the value first, in a separate request, only makes
the window smaller.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import redlock
from tools import eventually

if TYPE_CHECKING:
    import redis


def test_naive_delete_frees_the_next_holders_lock(peer: redis.Redis) -> None:
    """SET NX PX, then DEL without a check."""
    assert peer.set("x", "a", nx=True, px=50)
    eventually(lambda: not peer.exists("x"))
    assert peer.set("x", "b", nx=True, px=60_000)
    peer.delete("x")  # a releases
    assert peer.set("x", "c", nx=True, px=60_000), "c is inside, and b believes that it is alone"


def test_naive_check_then_delete_frees_the_next_holders_lock(peer: redis.Redis) -> None:
    """GET and compare, then DEL: the lease ends in between."""
    assert peer.set("x", "a", nx=True, px=50)
    still_mine = peer.get("x") == b"a"
    eventually(lambda: not peer.exists("x"))
    assert peer.set("x", "b", nx=True, px=60_000)
    if still_mine:
        peer.delete("x")
    assert peer.set("x", "c", nx=True, px=60_000), "c is inside, and b believes that it is alone"


def test_a_late_release_leaves_the_next_holder_alone(
    client: redlock.Redlock, other: redlock.Redlock, peer: redis.Redis
) -> None:
    """The late release returns "lost", and the second owner keeps the lock."""
    a = client.lock("x", ttl=0.2).acquire()
    assert a is not None
    eventually(lambda: not peer.exists("x"))
    b = other.lock("x").acquire()
    assert b is not None

    assert a.release() == "lost"
    assert a.release() == "lost", "the same again"
    assert b.held
    info = client.lock("x").inspect()
    assert info is not None
    assert info.owner == b.owner
    assert client.lock("x").acquire(blocking=False) is None, "no third one gets in"
    assert not b.lost.wait(1.5), "b is renewed as before"
    assert b.release() == "released"


def test_a_late_with_block_leaves_the_next_holder_alone(
    client: redlock.Redlock, other: redlock.Redlock, peer: redis.Redis
) -> None:
    """The end of a late `with` block raises `LockLost`, and the second owner keeps the lock."""
    block = client.lock("x", ttl=0.2)
    block.__enter__()
    eventually(lambda: not peer.exists("x"))
    with other.lock("x") as b:
        with pytest.raises(redlock.LockLost):
            block.__exit__(None, None, None)
        assert b.held
        assert peer.exists("x")


def test_a_thread_that_holds_nothing_cannot_release(client: redlock.Redlock, peer: redis.Redis) -> None:
    """A release of the same lock object in another thread raises `NotHeld`, and the holder keeps the lock."""
    lock = client.lock("x")
    errors: list[BaseException] = []

    def run() -> None:
        try:
            lock.release()
        except redlock.NotHeld as error:
            errors.append(error)

    with lock as lease:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert len(errors) == 1
        assert lease.held
        assert peer.exists("x")
