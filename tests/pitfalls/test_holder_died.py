"""A lock that is never released because its holder died, in any of the ways in which holders die.

A lock without a ttl stays for ever. A watchdog must not keep a lock alive whose thread is gone.
"""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest

import redlock
from tools import eventually, process
from workers import HELD, forget, hear, hold, leave, naive_crash

if TYPE_CHECKING:
    import redis

    from servers import Server


def test_naive_lock_survives_its_holder(server: Server, peer: redis.Redis) -> None:
    """SETNX without a ttl, then kill -9: there is nobody left to delete the key."""
    with process(naive_crash, server.url, "x") as holder:
        hear(peer, HELD)
        holder.kill()
        holder.join()
    assert peer.pttl("x") == -1
    assert not peer.set("x", "next", nx=True)


@pytest.mark.parametrize("ttl", [None, 2.0], ids=["watchdog", "fixed"])
def test_killed_holder_frees_the_lock_within_one_lease(
    server: Server, peer: redis.Redis, client: redlock.Redlock, ttl: float | None
) -> None:
    """Kill -9: nothing runs any more in that process, and the key ends by itself."""
    with process(hold, server.url, "x", ttl, 2.0) as holder:
        token = int(hear(peer, HELD))
        holder.kill()
        killed = time.monotonic()
        assert 0 < peer.pttl("x") <= 2000, "at most one lease is left"
        lease = client.lock("x").acquire(timeout=10)
        assert lease is not None
        # One lease, and what a busy machine may need to notice.
        assert time.monotonic() - killed < 2.0 + 2.0
        assert lease.token > token
        lease.release()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("SystemExit in a block", 3),
        ("SystemExit", 3),
        ("unhandled error", 1),
        ("end of the program", 0),
        ("end of the program, its client collected", 0),
    ],
)
def test_a_process_that_ends_frees_the_lock(server: Server, peer: redis.Redis, how: str, code: int) -> None:
    """Whatever ends a program normally also ends its locks: at once, though each has a lease of 30 s."""
    with process(leave, server.url, "x", how) as holder:
        holder.join(20)
        assert holder.exitcode == code
        assert peer.exists("redlock_token:{x}"), "it held the lock"
        assert not peer.exists("x")


def test_a_thread_that_lives_holds_its_lock_whatever_it_keeps(server: Server, peer: redis.Redis) -> None:
    """The other way round: whoever calls `acquire()` and keeps nothing, not even the client, still holds the lock."""

    def work() -> None:
        lease = redlock.Redlock(server.url, watchdog=1.0).lock("x").acquire()
        assert lease is not None

    work()
    gc.collect()
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        assert peer.exists("x"), "freed by the garbage collector"


def test_an_error_in_the_body_frees_the_lock(client: redlock.Redlock, other: redlock.Redlock) -> None:
    """As with any `with` block."""
    with pytest.raises(ZeroDivisionError), client.lock("x"):
        _ = 1 / 0
    assert other.lock("x").acquire(blocking=False) is not None


def test_a_thread_that_ended_with_the_lock_is_no_holder(
    server: Server, peer: redis.Redis, client: redlock.Redlock, capfd: pytest.CaptureFixture[str]
) -> None:
    """A thread takes the lock and ends. Its process lives on, and with it the watchdog: which must let go, and warn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONWARNINGS", "always::ResourceWarning")
        with process(forget, server.url, "x") as forgetful:
            token = int(hear(peer, HELD))
            lease = client.lock("x").acquire(timeout=10)
            assert lease is not None, "renewed for nobody"
            assert lease.token > token
            assert forgetful.is_alive()
            printed = ""

            def warned() -> bool:
                nonlocal printed
                printed += capfd.readouterr().err
                return "ResourceWarning" in printed

            eventually(warned)
            lease.release()
