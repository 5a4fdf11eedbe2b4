"""A worker of the demo: acquires the lock, changes the shared file and releases the lock, in a loop.

Usage: worker.py sync|asyncio URLS FILE LOG. Stops on SIGTERM. The file holds two lines that must agree, so it shows if
two processes write at once, or if one overwrites a change that it has not read. Every grant and every finished change
is a line in the log, written at once, so that none is lost if this process is killed. `worker.mjs` and `Worker.kt` do
the same in Node and Kotlin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path

import redlock
import redlock.asyncio

LOCK = "demo:ledger"
WATCHDOG = 2.0
MAX_TTL = 8.0
OPTIONS = {"watchdog": WATCHDOG, "max_ttl": MAX_TTL}


def now() -> float:
    """Return seconds on a clock that all processes of this machine share, in every language."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class Ledger:
    """The shared file: `begin COUNT TOKEN PID` and `end COUNT TOKEN PID`, written one after the other."""

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR)

    def read(self) -> tuple[list[str], list[str]]:
        first, second, *_ = os.pread(self.descriptor, 256, 0).decode().split("\n")
        return first.split()[1:], second.split()[1:]

    def write(self, begin: tuple[int, int, int], end: tuple[int, int, int]) -> None:
        text = "begin {} {} {}\n".format(*begin) + "end {} {} {}\n".format(*end)
        os.pwrite(self.descriptor, text.ljust(256).encode(), 0)


class Worker:
    """The part that sync and asyncio share: the work while the lock is held, and the log."""

    def __init__(self, file: str, log: str) -> None:
        self.ledger = Ledger(file)
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def note(self, *words: object) -> None:
        os.write(self.log, (" ".join(map(str, words)) + "\n").encode())

    def begin(self, lease: redlock.Lease | redlock.asyncio.Lease) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Write the first half of a change: a second writer would notice it, or damage it."""
        begin, end = self.ledger.read()
        if begin != end:
            # Either the last holder died inside, or two holders are inside right now.
            alive = Path(f"/proc/{begin[2]}").exists()
            self.note("corrupt" if alive else "interrupted", lease.token, now())
        if lease.token <= int(end[1]):
            self.note("stale", lease.token, now())
        before = (int(end[0]), int(end[1]), int(end[2]))
        after = (before[0] + 1, lease.token, os.getpid())
        self.ledger.write(after, before)
        return before, after

    def finish(
        self, lease: redlock.Lease | redlock.asyncio.Lease, before: tuple[int, int, int], after: tuple[int, int, int]
    ) -> None:
        begin, end = self.ledger.read()
        if begin != list(map(str, after)) or end != list(map(str, before)):
            self.note("corrupt", lease.token, now())
        self.ledger.write(after, after)
        self.note("done", lease.token, now())


def run(worker: Worker, urls: list[str]) -> None:
    with redlock.Redlock(urls, **OPTIONS) as client:
        lock = client.lock(LOCK)
        while not worker.stopped:
            wanted = now()
            try:
                with lock as lease:
                    worker.note("grant", lease.token, now(), now() - wanted)
                    change = worker.begin(lease)
                    time.sleep(random.uniform(0.0005, 0.003))  # the work
                    lease.check()
                    worker.finish(lease, *change)
                    worker.note("release", lease.token, now())
            except redlock.LockError as error:
                worker.note("error", error.code, now(), error)


async def run_async(worker: Worker, urls: list[str]) -> None:
    async with redlock.asyncio.Redlock(urls, **OPTIONS) as client:
        lock = client.lock(LOCK)
        while not worker.stopped:
            wanted = now()
            try:
                async with lock as lease:
                    worker.note("grant", lease.token, now(), now() - wanted)
                    change = worker.begin(lease)
                    await asyncio.sleep(random.uniform(0.0005, 0.003))  # the work
                    lease.check()
                    worker.finish(lease, *change)
                    worker.note("release", lease.token, now())
            except redlock.LockError as error:
                worker.note("error", error.code, now(), error)


def main() -> None:
    kind, urls, file, log = sys.argv[1:]
    # The demo's view shows the state of nodes already.
    logging.getLogger("redlock").addHandler(logging.NullHandler())
    worker = Worker(file, log)
    if kind == "asyncio":
        asyncio.run(run_async(worker, urls.split(",")))
    else:
        run(worker, urls.split(","))


if __name__ == "__main__":
    main()
