"""One process that takes and releases a lock so many times and logs it.

Usage: contender.py sync|asyncio URLS NAME TIMES LOG [HOLD_MS], to hold it for up to so many milliseconds.
`tests/tests/languages.rs` starts it beside those of the other languages; `tests/src/history.rs` describes the log.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from time import monotonic_ns

import redlock
import redlock.asyncio


def fight(urls: list[str], name: str, times: int, log: int, hold: float) -> None:
    with redlock.Redlock(urls) as client:
        lock = client.lock(name)
        for _ in range(times):
            lease = lock.acquire()
            granted = monotonic_ns()
            if hold:
                time.sleep(random.uniform(0, hold))
            lines = note(lease, granted)
            # Nobody confirms it while nodes are in trouble.
            lease.release()
            os.write(log, lines)


async def fight_async(urls: list[str], name: str, times: int, log: int, hold: float) -> None:
    async with redlock.asyncio.Redlock(urls) as client:
        lock = client.lock(name)
        for _ in range(times):
            lease = await lock.acquire()
            granted = monotonic_ns()
            if hold:
                await asyncio.sleep(random.uniform(0, hold))
            lines = note(lease, granted)
            await lease.release()
            os.write(log, lines)


def note(lease: redlock.Lease | redlock.asyncio.Lease, granted: int) -> bytes:
    # Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it was at it.
    released = monotonic_ns()
    lines = f"grant {lease.token} {granted}\n"
    if lease.held:
        lines += f"release {lease.token} {released}\n"
    return lines.encode()


if __name__ == "__main__":
    kind, urls, name, times, path, *rest = sys.argv[1:]
    hold = int(rest[0]) / 1000 if rest else 0.0
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if kind == "asyncio":
        asyncio.run(fight_async(urls.split(","), name, int(times), log, hold))
    else:
        fight(urls.split(","), name, int(times), log, hold)
