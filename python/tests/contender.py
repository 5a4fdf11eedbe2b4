"""A process that acquires and releases one lock TIMES times and logs each grant and release.

Usage: contender.py sync|asyncio URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX]]]]. It holds the lock for up to
HOLD_MS. With PAUSE_MS, it pauses for up to so long after each release, and logs the time of each call too. WIRE and
PREFIX are the client's options. `tests/tests/languages.rs` starts it together with the contenders of other languages;
`tests/src/history.rs` describes the log.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from time import monotonic_ns
from typing import Any

import redlock
import redlock.asyncio


def fight(urls: list[str], name: str, times: int, log: int, hold: float, pause: float, options: dict[str, Any]) -> None:
    with redlock.Redlock(urls, **options) as client:
        lock = client.lock(name)
        for _ in range(times):
            called = monotonic_ns() if pause else None
            lease = lock.acquire()
            granted = monotonic_ns()
            if hold:
                time.sleep(random.uniform(0, hold))
            lines = note(lease, granted, called)
            # The outcome is ignored: it may be "unconfirmed" while nodes are down.
            lease.release()
            os.write(log, lines)
            if pause:
                time.sleep(random.uniform(0, pause))


async def fight_async(
    urls: list[str], name: str, times: int, log: int, hold: float, pause: float, options: dict[str, Any]
) -> None:
    async with redlock.asyncio.Redlock(urls, **options) as client:
        lock = client.lock(name)
        for _ in range(times):
            called = monotonic_ns() if pause else None
            lease = await lock.acquire()
            granted = monotonic_ns()
            if hold:
                await asyncio.sleep(random.uniform(0, hold))
            lines = note(lease, granted, called)
            await lease.release()
            os.write(log, lines)
            if pause:
                await asyncio.sleep(random.uniform(0, pause))


def note(lease: redlock.Lease | redlock.asyncio.Lease, granted: int, called: int | None) -> bytes:
    # Read before the release is sent, since another owner may hold the lock from then on. `held` is read later: a lease
    # that is still held then was held at this moment.
    released = monotonic_ns()
    lines = f"grant {lease.token} {granted}{'' if called is None else f' {called}'}\n"
    if lease.held:
        lines += f"release {lease.token} {released}\n"
    return lines.encode()


if __name__ == "__main__":
    kind, urls, name, times, path, *rest = sys.argv[1:]
    hold, pause = (int(word) / 1000 for word in [*rest, "0", "0"][:2])
    options = dict(zip(("wire", "prefix"), rest[2:], strict=False))
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if kind == "asyncio":
        asyncio.run(fight_async(urls.split(","), name, int(times), log, hold, pause, options))
    else:
        fight(urls.split(","), name, int(times), log, hold, pause, options)
