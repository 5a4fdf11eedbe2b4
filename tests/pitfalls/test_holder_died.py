"""Pitfall: a lock is never released because its process or thread ended.

A lock without a ttl stays for ever. A watchdog must not renew a lock whose thread has ended.
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
    """SETNX without a ttl, then kill -9: nothing ever deletes the key."""
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
    """After kill -9 nothing runs in that process any more, and the key expires."""
    with process(hold, server.url, "x", ttl, 2.0) as holder:
        token = int(hear(peer, HELD))
        holder.kill()
        killed = time.monotonic()
        assert 0 < peer.pttl("x") <= 2000, "at most one lease is left"
        lease = client.lock("x").acquire(timeout=10)
        assert lease is not None
        # One lease of 2 s, and 2 s for a busy machine to notice.
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
    """A program that exits, even by an unhandled error, releases its locks at once and not only after their 30 s."""
    with process(leave, server.url, "x", how) as holder:
        holder.join(20)
        assert holder.exitcode == code
        assert peer.exists("redlock_token:{x}"), "it held the lock"
        assert not peer.exists("x")


def test_a_thread_that_lives_holds_its_lock_whatever_it_keeps(server: Server, peer: redis.Redis) -> None:
    """The opposite case: a live thread holds its lock even if it keeps no lease, no lock object and no client."""

    def work() -> None:
        lease = redlock.Redlock(server.url, watchdog=1.0).lock("x").acquire()
        assert lease is not None

    work()
    gc.collect()
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        assert peer.exists("x"), "freed by the garbage collector"


def test_an_error_in_the_body_frees_the_lock(client: redlock.Redlock, other: redlock.Redlock) -> None:
    """The `with` block releases the lock when its body raises."""
    with pytest.raises(ZeroDivisionError), client.lock("x"):
        _ = 1 / 0
    assert other.lock("x").acquire(blocking=False) is not None


def test_a_thread_that_ended_with_the_lock_is_no_holder(
    server: Server, peer: redis.Redis, client: redlock.Redlock, capfd: pytest.CaptureFixture[str]
) -> None:
    """A thread acquires the lock and ends, while its process and the watchdog run on.

    The watchdog must stop renewing the lock, and the library must warn.
    """
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
