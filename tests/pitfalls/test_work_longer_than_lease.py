"""Pitfall: the work takes longer than the lease, a second owner gets the lock, and the first does not notice.

A guessed ttl is wrong some day. A renewed lease needs no guess. A fixed lease must report its end before another owner
can get the lock. Any process can be stopped between a check and a write, so the resource must be able to refuse the
late write: that is the purpose of the fencing token.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

import redlock
from tools import eventually, process
from workers import DONE, GO, HELD, fenced_write, hear, tell, write_late

if TYPE_CHECKING:
    import redis

    from servers import Server


def test_naive_lets_a_second_one_in_silently(peer: redis.Redis) -> None:
    """SET NX PX with a ttl that is too short: two owners are inside."""
    assert peer.set("x", "a", nx=True, px=50)
    inside = ["a"]
    # Owner a works on and is not notified.
    if eventually(lambda: peer.set("x", "b", nx=True, px=50)):
        inside.append("b")
    assert inside == ["a", "b"]


def test_the_watchdog_keeps_the_lock_for_as_long_as_the_work_takes(
    client: redlock.Redlock, other: redlock.Redlock, peer: redis.Redis
) -> None:
    """The work takes four times the lease, and no other owner gets the lock."""
    with client.lock("x") as lease:
        end = time.monotonic() + 4.0
        while time.monotonic() < end:
            assert other.lock("x").acquire(timeout=0.1) is None
            assert lease.held
            assert 0 < peer.pttl("x") <= 1000
    assert other.lock("x").acquire(blocking=False) is not None


def test_a_fixed_lease_ends_for_its_holder_before_others_can_get_it(client: redlock.Redlock, peer: redis.Redis) -> None:
    """`held` turns false before the key expires, the loss has the reason "expired", and the block raises `LockLost`."""
    with pytest.raises(redlock.LockLost) as caught, client.lock("x", ttl=2) as lease:
        # `remaining` is read first, so a delay between the two readings only makes the margin smaller. One reading
        # with a margin therefore proves that the lease ends before the key by at least that margin.
        margins = (peer_pttl - remaining for remaining, peer_pttl in readings(lease, peer))
        assert any(margin > 0.1 for margin in margins), "ends a tenth of its ttl earlier"
        while peer.exists("x"):
            pass
        assert not lease.held, "the key is gone, so the lease must be, too"
        assert lease.remaining() == 0
        assert lease.lost.is_set()
        assert lease.lost.reason == "expired"
        with pytest.raises(redlock.LockLost):
            lease.check()
    assert caught.value.reason == "expired"


def readings(lease: redlock.Lease, peer: redis.Redis) -> list[tuple[float, float]]:
    """Fifty pairs of the seconds that are left: of the lease by the holder's clock, and of the key by the server's."""
    return [(lease.remaining(), peer.pttl("x") / 1000) for _ in range(50)]


def test_the_loss_does_not_mask_the_bodys_own_error(client: redlock.Redlock) -> None:
    """An error in the block reaches the caller even if the lock was lost before."""
    with pytest.raises(ZeroDivisionError), client.lock("x", ttl=0.1) as lease:
        eventually(lease.lost.is_set)
        _ = 1 / 0


def test_an_extension_does_not_bring_back_what_ended(client: redlock.Redlock, peer: redis.Redis) -> None:
    """`extend` after the end of the lease raises `LockLost` and does not write the key.

    Some libraries extend by writing the key anew, although another owner may have held the lock since.
    """
    lease = client.lock("x", ttl=0.1).acquire()
    assert lease is not None
    eventually(lambda: not peer.exists("x"))
    with pytest.raises(redlock.LockLost):
        lease.extend(10)
    assert not peer.exists("x")


def test_a_nested_acquire_after_the_loss_does_not_take_the_lock_anew(
    client: redlock.Redlock, peer: redis.Redis
) -> None:
    """A nested acquire after the loss raises `LockLost`.

    If it acquired the lock again, the outer block would go on without noticing the loss.
    """
    with pytest.raises(redlock.LockLost), client.lock("x", ttl=0.1):
        eventually(lambda: not peer.exists("x"))
        with pytest.raises(redlock.LockLost):
            client.lock("x", ttl=10).acquire()
        assert not peer.exists("x")


def test_the_token_stops_a_write_that_comes_too_late(
    server: Server, peer: redis.Redis, client: redlock.Redlock
) -> None:
    """The holder is stopped between check and write for longer than its lease: the resource refuses the late write.

    No lock can prevent such a stop.
    """
    with process(write_late, server.url, "x") as late:
        first = int(hear(peer, HELD))
        assert late.pid is not None
        os.kill(late.pid, signal.SIGSTOP)
        with client.lock("x") as second:
            assert second.token > first
            assert fenced_write(peer, "from the second holder", second.token) == "written"
            peer.set("naive", "from the second holder")
            tell(peer, GO)
            os.kill(late.pid, signal.SIGCONT)
            assert hear(peer, DONE) == "refused"
            assert second.held
    assert peer.get("naive") == b"from the first holder", "without the token, the late write wins"
    assert peer.get("fenced") == b"from the second holder"
