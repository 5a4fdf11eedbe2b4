"""One process that takes and releases a lock so many times and logs it.

Usage: contender.py sync|asyncio URLS NAME TIMES LOG. `tests/tests/languages.rs` starts it beside those of the other
languages; `tests/src/history.rs` describes the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
from time import monotonic_ns

import redlock
import redlock.asyncio


def fight(urls: list[str], name: str, times: int, log: int) -> None:
    with redlock.Redlock(urls) as client:
        lock = client.lock(name)
        for _ in range(times):
            lease = lock.acquire()
            granted = monotonic_ns()
            # Taken before the release is sent: from then on somebody else may hold it.
            released = monotonic_ns()
            # Nobody confirms it while nodes are in trouble.
            lease.release()
            os.write(log, f"grant {lease.token} {granted}\nrelease {lease.token} {released}\n".encode())


async def fight_async(urls: list[str], name: str, times: int, log: int) -> None:
    async with redlock.asyncio.Redlock(urls) as client:
        lock = client.lock(name)
        for _ in range(times):
            lease = await lock.acquire()
            granted = monotonic_ns()
            released = monotonic_ns()
            await lease.release()
            os.write(log, f"grant {lease.token} {granted}\nrelease {lease.token} {released}\n".encode())


if __name__ == "__main__":
    kind, urls, name, times, path = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if kind == "asyncio":
        asyncio.run(fight_async(urls.split(","), name, int(times), log))
    else:
        fight(urls.split(","), name, int(times), log)
