"""A process that acquires and releases one lock TIMES times and logs each grant and release.

Usage: contender.py sync|asyncio URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX [KIND]]]]]. It holds the lock for
up to HOLD_MS. With PAUSE_MS, it pauses for up to so long after each release, and logs the time of each call too. WIRE
and PREFIX are the client's options. KIND is `lock`, `fair`, `read_write` (most turns are readers') or `semaphore:SLOTS`
(a turn acquires one slot or two); with a KIND it logs what each turn holds, too. `tests/tests/languages.rs` starts it
together with the contenders of other languages; `tests/src/history.rs` describes the log.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import time
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import redlock
import redlock.asyncio

if TYPE_CHECKING:
    from collections.abc import Callable


class Target:
    """The lock of one of our kinds, and how a turn acquires it."""

    def __init__(self, client: Any, kind: str, name: str) -> None:
        word, _, slots = kind.partition(":")
        self.kind, self.permits = word, int(slots or 0)
        if word == "read_write":
            self.lock = client.read_write_lock(name)
        elif word == "semaphore":
            self.lock = client.semaphore(name, self.permits)
        else:
            self.lock = client.lock(name, fair=word == "fair")

    def draw(self) -> tuple[Callable[[], Any], str]:
        """Return the call of an acquire, and what it holds, as the log says it."""
        if self.kind == "read_write":
            return (self.lock.read().acquire, "read") if random.random() < 0.7 else (self.lock.write().acquire, "write")
        if self.kind == "semaphore":
            return functools.partial(self.lock.acquire, n=random.randint(1, min(2, self.permits))), "slots"
        return self.lock.acquire, ""


def fight(urls: list[str], name: str, times: int, log: int, hold: float, pause: float, kind: str, options: Any) -> None:
    with redlock.Redlock(urls, **options) as client:
        target = Target(client, kind, name)
        for turn in range(times):
            acquire, share = target.draw()
            called = monotonic_ns() if pause or kind else None
            lease = acquire()
            granted = monotonic_ns()
            if hold:
                time.sleep(random.uniform(0, hold))
            lines = note(lease, granted, called, f"{turn} {share}" if kind else "")
            # The outcome is ignored: it may be "unconfirmed" while nodes are down.
            lease.release()
            os.write(log, lines)
            if pause:
                time.sleep(random.uniform(0, pause))


async def fight_async(
    urls: list[str], name: str, times: int, log: int, hold: float, pause: float, kind: str, options: Any
) -> None:
    async with redlock.asyncio.Redlock(urls, **options) as client:
        target = Target(client, kind, name)
        for turn in range(times):
            acquire, share = target.draw()
            called = monotonic_ns() if pause or kind else None
            lease = await acquire()
            granted = monotonic_ns()
            if hold:
                await asyncio.sleep(random.uniform(0, hold))
            lines = note(lease, granted, called, f"{turn} {share}" if kind else "")
            await lease.release()
            os.write(log, lines)
            if pause:
                await asyncio.sleep(random.uniform(0, pause))


def note(lease: redlock.Lease | redlock.asyncio.Lease, granted: int, called: int | None, held: str) -> bytes:
    """Return the lines of a turn. `held`: its number, and what it holds; slots are filled in."""
    # Read before the release is sent, since another owner may hold the lock from then on. `held` is read later: a lease
    # that is still held then was held at this moment.
    released = monotonic_ns()
    still_held = lease.held
    turn = held.split(" ")[0]
    slots = ",".join(f"{slot}:{token}" for slot, token in zip(lease.slots, lease.tokens, strict=True))
    lines = f"grant {lease.token} {granted} {called or ''} {held.replace('slots', slots)}".rstrip() + "\n"
    if still_held:
        lines += f"release {lease.token} {released} {turn}".rstrip() + "\n"
    return lines.encode()


if __name__ == "__main__":
    form, urls, name, times, path, *rest = sys.argv[1:]
    hold, pause = (int(word) / 1000 for word in [*rest, "0", "0"][:2])
    options = dict(zip(("wire", "prefix"), rest[2:4], strict=False))
    kind = rest[4] if len(rest) > 4 else ""
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if form == "asyncio":
        asyncio.run(fight_async(urls.split(","), name, int(times), log, hold, pause, kind, options))
    else:
        fight(urls.split(","), name, int(times), log, hold, pause, kind, options)
