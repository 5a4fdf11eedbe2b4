"""The code that the child processes of the pitfall tests run: they acquire locks, and the tests kill some of them.

It is apart from the tests, so that a child process imports as little as possible.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Literal

import redis

import redlock

if TYPE_CHECKING:
    from redlock import Seconds

HELD = "told:held"
GO = "told:go"
DONE = "told:done"


def tell(peer: redis.Redis, key: str, value: str | int = 1) -> None:
    """Leave a message for the test."""
    peer.rpush(key, value)


def hear(peer: redis.Redis, key: str, timeout: int = 30) -> str:
    """Wait for a message."""
    found = peer.blpop([key], timeout=timeout)
    assert found is not None, f"nothing at {key}"
    return str(found[1].decode())


def hold(url: str, name: str, ttl: float | None, watchdog: float = 1.0) -> None:
    """Acquire a lock and hold it until the process is killed."""
    peer = redis.Redis.from_url(url)
    lease = redlock.Redlock(url, watchdog=watchdog).lock(name, ttl=ttl).acquire()
    assert lease is not None
    tell(peer, HELD, lease.token)
    threading.Event().wait()


def naive_crash(url: str, name: str) -> None:
    """Acquire a naive lock in two requests; the test kills the process between them."""
    peer = redis.Redis.from_url(url)
    peer.setnx(name, "me")
    tell(peer, HELD)
    threading.Event().wait()  # killed here
    peer.expire(name, 1)


def contend(url: str, name: str, threads: int, rounds: int) -> None:
    """Acquire and release one lock `rounds` times in several threads, each with its own client.

    Half of the threads wait for the lock; the other half try without waiting, in a loop.
    """

    def run(tries: bool) -> None:
        peer = redis.Redis.from_url(url)
        lock = redlock.Redlock(url).lock(name, ttl=10)
        tell(peer, "told:ready")
        hear(peer, GO)
        for _ in range(rounds):
            while (lease := lock.acquire(blocking=not tries)) is None:
                pass
            # The server runs these commands one at a time, so a result other than 1 proves a second holder.
            if peer.incr("inside") != 1:
                tell(peer, "overlaps", lease.token)
            peer.rpush("tokens", lease.token)
            peer.decr("inside")
            lease.release()
        tell(peer, DONE)

    everybody = [threading.Thread(target=run, args=(number % 2 == 1,)) for number in range(threads)]
    for thread in everybody:
        thread.start()
    for thread in everybody:
        thread.join()


def lock_for_ever(url: str, wire: Literal["redisson", "token"], seed: int) -> None:
    """Acquire and release locks without a pause in several threads, so that a kill can hit an acquire at any point."""

    def run(thread: int) -> None:
        # Every third round makes a new client, so that a kill can also hit the first acquire of a connection.
        for number in itertools.count():
            if number % 3 == 0:
                client = redlock.Redlock(url, wire=wire, watchdog=1.0)
            ttl: Seconds | Literal["adaptive"] | None = random.choice([None, 0.5, "adaptive"])
            lease = client.lock(f"crash-{seed}-{thread}-{number}", ttl=ttl).acquire()
            if lease is not None and random.random() < 0.5:
                lease.release()
            if number % 3 == 2:
                client.close()

    for thread in range(4):
        threading.Thread(target=run, args=(thread,), daemon=True).start()
    threading.Event().wait()


def write_late(url: str, name: str) -> None:
    """Check the lease, be stopped by the test, and write after the lease ended. No lease can prevent that."""
    peer = redis.Redis.from_url(url)
    lease = redlock.Redlock(url).lock(name, ttl=0.5).acquire()
    assert lease is not None
    lease.check()
    tell(peer, HELD, lease.token)
    # The test stops this process here, between the check and the write.
    hear(peer, GO)
    peer.set("naive", "from the first holder")
    tell(peer, DONE, fenced_write(peer, "from the first holder", lease.token))


FENCED_WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return 'refused' end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 'written'
"""


def fenced_write(peer: redis.Redis, value: str, token: int) -> str:
    """Write to a resource that refuses tokens smaller than the largest it has seen."""
    return str(peer.eval(FENCED_WRITE, 2, "fence", "fenced", str(token), value).decode())


# Locks that the program refers to at module level until it ends.
kept: list[redlock.Lock] = []


def leave(url: str, name: str, how: str) -> None:
    """Acquire a lock and end the process without releasing it, in the way that `how` names."""
    lock = redlock.Redlock(url).lock(name)
    if how != "end of the program, its client collected":
        kept.append(lock)
    if how == "SystemExit in a block":
        with lock:
            sys.exit(3)
    lock.acquire()
    if how == "SystemExit":
        sys.exit(3)
    if how == "unhandled error":
        raise RuntimeError(how)
    assert how.startswith("end of the program")


def forget(url: str, name: str) -> None:
    """Acquire a lock in a thread that ends without releasing it. The process runs until it is killed."""
    peer = redis.Redis.from_url(url)
    client = redlock.Redlock(url, watchdog=1.0)

    def run() -> None:
        lease = client.lock(name).acquire()
        assert lease is not None
        tell(peer, HELD, lease.token)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    while True:
        time.sleep(1)
