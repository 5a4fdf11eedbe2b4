"""A scheduler: each tick's job takes effect once on one of several machines, although machines die and hang meanwhile.

    python scheduler.py [redis-url]

Every worker tries to run every tick's job. One acquires the lock; the others wait, then find the job done. Exactly:

- **A job runs at least once.** If a worker dies during the job, the lock becomes free within one lease, and the next
  worker runs the job again from the start. No lock can tell whether the dead worker's last step still happened.
- **It takes effect exactly once.** One transaction writes the job's result and the mark "done", on the condition that
  the tick has no larger token than the writer's. A worker that was stopped for longer than its lease, and then goes on
  unaware, has a smaller token: its write changes nothing.
- **Effects elsewhere** (an e-mail, a payment) cannot be part of that transaction. Give them the tick as an idempotency
  key, or accept that they may happen twice.

The database is SQLite so that this runs anywhere; any database with transactions works.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

import redlock

WORKERS = 4
TICKS = 6
PERIOD = 0.5
LEASE = 2.0  # seconds for which a dead worker keeps the others waiting; the library's default is 30

# The ticks at whose first attempt a worker dies or hangs.
DIES_AT, HANGS_AT = 2, 4

TABLES = """
CREATE TABLE tick (number INTEGER PRIMARY KEY, fence INTEGER NOT NULL, attempts INTEGER NOT NULL, done INTEGER);
CREATE TABLE report (tick INTEGER, worker INTEGER);
"""


class Outdated(Exception):
    """A later holder of the lock has accessed the tick."""


class Store:
    """The database of the job: its results, and the ticks that are done."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, timeout=30)

    def begin(self, tick: int, token: int) -> int:
        """Register a token, as the first access of a tenure must. Return the attempt's number, 0 if the job is done."""
        with self.connection as transaction:
            transaction.execute("INSERT OR IGNORE INTO tick VALUES (?, 0, 0, NULL)", (tick,))
            changed = transaction.execute(
                "UPDATE tick SET fence = ?1, attempts = attempts + (done IS NULL) WHERE number = ?2 AND fence <= ?1",
                (token, tick),
            )
            if not changed.rowcount:
                raise Outdated
            done, attempts = transaction.execute("SELECT done, attempts FROM tick WHERE number = ?", (tick,)).fetchone()
            return 0 if done else int(attempts)

    def finish(self, tick: int, token: int, worker: int) -> None:
        """Write the result and the mark in one transaction, unless a later holder has taken over."""
        with self.connection as transaction:
            done = "UPDATE tick SET done = 1 WHERE number = ? AND fence = ? AND done IS NULL"
            if not transaction.execute(done, (tick, token)).rowcount:
                raise Outdated
            transaction.execute("INSERT INTO report VALUES (?, ?)", (tick, worker))


def run(store: Store, tick: int, lease: redlock.Lease, worker: int) -> None:
    """Run a tick's job unless it is done. The caller holds the lock."""
    attempt = store.begin(tick, lease.token)
    if attempt == 0:
        return
    say(f"worker {worker} runs the job of tick {tick}" + (" again" if attempt > 1 else ""))
    time.sleep(PERIOD / 5)  # the work
    if attempt == 1 and tick == DIES_AT:
        say(f"worker {worker} dies")
        os.kill(os.getpid(), signal.SIGKILL)
    if attempt == 1 and tick == HANGS_AT:
        say(f"worker {worker} hangs")
        os.kill(os.getpid(), signal.SIGSTOP)
        # The worker wakes up long after its lease ended. `lease.check()` would raise here; this worker does not call
        # it, because a real worker can also be stopped after its last check.
    try:
        store.finish(tick, lease.token, worker)
        say(f"worker {worker} has done tick {tick}")
    except Outdated:
        say(f"worker {worker} comes too late for tick {tick}: its write is refused")


def work(url: str | None, database: Path, worker: int, begin: float) -> None:
    """Run one worker, which stands for one machine."""
    redlock.configure(url, watchdog=LEASE)
    store = Store(database)
    for tick in range(1, TICKS + 1):
        time.sleep(max(0.0, begin + tick * PERIOD - time.time()))
        # If the lease ended inside the block, its end raises LockLost. The store has refused the write by then.
        with contextlib.suppress(redlock.LockLost), redlock.lock("scheduler:report") as lease:
            run(store, tick, lease, worker)


def say(what: str) -> None:
    """Print at once, since several processes print."""
    print(what, flush=True)


def main(url: str | None) -> None:
    """Start the workers, wake the one that hangs, and print the result of each tick."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "jobs.db")
        store = Store(database)
        store.connection.executescript(TABLES)
        begin = time.time()
        workers = [
            multiprocessing.Process(target=work, args=(url, database, number, begin))
            for number in range(1, WORKERS + 1)
        ]
        for worker in workers:
            worker.start()

        def done(tick: int) -> bool:
            return (
                store.connection.execute("SELECT 1 FROM tick WHERE number = ? AND done", (tick,)).fetchone() is not None
            )

        while not done(HANGS_AT) and any(worker.is_alive() for worker in workers):
            time.sleep(0.05)
        for worker in workers:
            if worker.is_alive() and worker.pid is not None:
                os.kill(worker.pid, signal.SIGCONT)  # wakes the worker that hangs; the others ignore it
        for worker in workers:
            worker.join()

        rows = store.connection.execute(
            "SELECT number, attempts, (SELECT count(*) FROM report WHERE tick = number) FROM tick ORDER BY number"
        )
        for tick, attempts, reports in rows:
            print(f"tick {tick}: attempts {attempts}, reports {reports}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
