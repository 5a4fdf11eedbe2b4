"""A fleet runs each tick's job once, although its clocks differ by 5 s and a job takes 10 ms.

    python ticks.py [redis-url]

The scheduler of each replica calls `on_tick` when the clock of its machine shows the tick. The first replica gets the
lock, runs the job and releases. 5 s later the clock of the second one shows the same tick. A plain lock is long free by
then, and the job runs twice. With `min_hold` the lock stays taken:

- for longer than the clocks differ, so that the last replica finds it taken;
- for less than the time between two ticks, so that it is free for the next tick.

That is *once in `min_hold`*, not exactly once: a replica that dies during the job has done a part of it, and leaves the
lock free when its lease ends. `scheduler.py` shows a job that takes effect exactly once.

This program plays the clocks, so that it is over soon: it calls the second replica right after the first one, and its
ticks come as soon as the lock is free.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import redlock

TICKS = 3
JOB_TAKES = 0.01
# In a fleet with a tick a minute, 30 s would do: more than the clocks differ, less than a minute.
MIN_HOLD = 2.0

# How often the job of each tick ran.
runs: Counter[int] = Counter()


def job(tick: int) -> None:
    """Do the work of a tick."""
    time.sleep(JOB_TAKES)
    runs[tick] += 1


def on_tick(lock: redlock.Lock, tick: int) -> bool:
    """Run the job of a tick, unless another replica has. Return whether it ran here."""
    try:
        with lock:
            job(tick)
    except redlock.LockTimeout:
        return False
    return True


def play(fleet: list[redlock.Lock]) -> None:
    """Let the clock of one replica after the other show each tick, and print who ran its job."""
    runs.clear()
    for tick in range(1, TICKS + 1):
        ran = [str(number) for number, lock in enumerate(fleet, 1) if on_tick(lock, tick)]
        print(f"  tick {tick}: run by replica {' and '.join(ran)}")
        while fleet[0].locked():
            time.sleep(0.05)  # the rest of the minute
    print(f"  {TICKS} ticks, {runs.total()} runs")


def main(url: str) -> None:
    """Play the ticks without `min_hold`, and with it."""
    with redlock.Redlock(url) as first, redlock.Redlock(url) as second:
        print("a released lock is free:")
        play([client.lock("ticks:report", wait=0) for client in (first, second)])
        print("with min_hold it stays taken:")
        play([client.lock("ticks:report", wait=0, min_hold=MIN_HOLD) for client in (first, second)])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379")
