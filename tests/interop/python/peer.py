"""redis-py's Lock as a peer: `peer.py fight URL NAME TIMES LOG [HOLD_MS [PAUSE_MS]]` or `peer.py serve URL`, as
`../README.md` describes."""

from __future__ import annotations

import os
import random
import sys
import time
from time import monotonic_ns

import redis
from redis.lock import Lock

#: How often it tries, in seconds. redis-py's default is 0.1 s. No release is announced to it.
POLL = 0.005


def fight(server: redis.Redis, name: str, times: int, log: int, hold: float, pause: float) -> None:
    os.write(log, f"ready - {monotonic_ns()}\n".encode())
    for _ in range(times):
        lock = Lock(server, name, timeout=10, sleep=POLL)
        called = monotonic_ns()
        lock.acquire()
        granted = monotonic_ns()
        time.sleep(random.uniform(0, hold))
        released = monotonic_ns()
        # Raises if the lock is not held now, so it was held the moment before.
        lock.release()
        os.write(log, f"grant - {granted} {called}\nrelease - {released}\n".encode())
        time.sleep(random.uniform(0, pause))


def serve(server: redis.Redis) -> None:
    locks: dict[tuple[str, str], Lock] = {}
    for line in sys.stdin:
        session, verb, name, *rest = line.split()
        try:
            end = f"ok {perform(server, locks, (session, name), verb, [int(word) / 1000 for word in rest])}"
        except Exception as failure:
            end = f"failed {type(failure).__name__}: {failure}"
        print(session, monotonic_ns(), end, flush=True)


def perform(server: redis.Redis, locks: dict, which: tuple[str, str], verb: str, times: list[float]) -> str:
    if verb == "acquire":
        ttl, wait = times
        lock = Lock(server, which[1], timeout=ttl or None, sleep=POLL, blocking_timeout=wait)
        if not lock.acquire():
            return "none"
        locks[which] = lock
        return lock.local.token.decode()
    if verb == "locked":
        return str(Lock(server, which[1]).locked()).lower()
    lock = locks[which]
    if verb == "owned":
        return str(lock.owned()).lower()
    if verb == "release":
        # A release that fails makes the lock object forget its token, which later calls need.
        token = lock.local.token
        try:
            lock.release()
        finally:
            lock.local.token = token
        return "true"
    if verb == "extend":
        return str(lock.extend(times[0], replace_ttl=True)).lower()
    if verb == "reacquire":
        return str(lock.reacquire()).lower()
    raise ValueError(verb)


if __name__ == "__main__":
    action, url, *rest = sys.argv[1:]
    with redis.Redis.from_url(url) as server:
        if action == "fight":
            name, times, path, *durations = rest
            hold, pause = (float(word) / 1000 for word in [*durations, "0", "0"][:2])
            fight(server, name, int(times), os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), hold, pause)
        else:
            serve(server)
