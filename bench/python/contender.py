"""A contender: acquires and releases locks with one Python library, as the harness requests: contender.py LIBRARY.

`bench/README.md` describes its input and output.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from libraries import ASYNC, SYNC, Unsupported


def resident() -> int:
    """Return how much memory this process uses, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def summary(times: list[int], took: float) -> dict[str, Any]:
    """Return the number of pairs and how long they took."""
    times.sort()
    at = [times[int((len(times) - 1) * share)] / 1e9 for share in (0.5, 0.99)]
    return {"count": len(times), "seconds": took, "p50": at[0], "p99": at[1]}


class Threads:
    """The works for a library with threads."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def connect(self, urls: list[str]) -> None:
        self.library.connect(urls)

    def close(self) -> None:
        self.library.close()

    def pair(self, seconds: float, prefix: str) -> dict[str, Any]:
        acquire, release, clock, times = self.library.acquire, self.library.release, time.monotonic_ns, []
        began = now = clock()
        end = began + int(seconds * 1e9)
        while now < end:
            release(acquire(prefix))
            before, now = now, clock()
            times.append(now - before)
        return summary(times, (now - began) / 1e9)

    def block(self, seconds: float, prefix: str) -> dict[str, Any]:
        block, clock, times = self.library.block, time.monotonic_ns, []
        began = now = clock()
        end = began + int(seconds * 1e9)
        while now < end:
            block(prefix)
            before, now = now, clock()
            times.append(now - before)
        return summary(times, (now - began) / 1e9)

    def nested(self, seconds: float, prefix: str) -> dict[str, Any]:
        if not self.library.reentrant:
            raise Unsupported("not re-entrant")
        outer = self.library.acquire(prefix)
        try:
            return self.pair(seconds, prefix)
        finally:
            self.library.release(outer)

    def parallel(self, **_: Any) -> dict[str, Any]:
        raise Unsupported("blocks its thread")

    independent = blocks = shared = parallel

    def names(self, count: int, prefix: str, at_once: int) -> dict[str, Any]:
        began = time.monotonic()
        for number in range(count):
            self.library.block(f"{prefix}-{number}")
        return {"seconds": time.monotonic() - began, "rss": resident()}

    def contend(self, name: str, hold: float, rest: float, until: int) -> dict[str, Any]:
        clock, turns = time.monotonic_ns, []
        while (asked := clock()) < until:
            lease = self.library.acquire(name)
            granted = clock()
            time.sleep(hold)
            releasing = clock()
            self.library.release(lease)
            turns.append((asked, granted, releasing, clock()))
            time.sleep(rest)
        return {"turns": turns}

    def herd(self, name: str, waiters: int) -> dict[str, Any]:
        if waiters > 1_000:
            raise Unsupported("a thread for each waiter")
        order: list[int] = []

        def wait(number: int) -> None:
            lease = self.library.acquire(name)
            order.append(number)
            self.library.release(lease)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(waiters)]
        lease, before = self.library.acquire(name), resident()
        for thread in threads:
            thread.start()
            time.sleep(0.0005)
        time.sleep(1)
        after, began = resident(), time.monotonic()
        self.library.release(lease)
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        return {"seconds": took, "in_order": order == sorted(order), "rss_before": before, "rss_after": after}


class Loop:
    """The works for a library with asyncio."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.loop = asyncio.new_event_loop()

    def __getattr__(self, work: str) -> Any:
        coroutine = getattr(self, f"_{work}")
        return lambda **arguments: self.loop.run_until_complete(coroutine(**arguments))

    def connect(self, urls: list[str]) -> None:
        self.loop.run_until_complete(self.library.connect(urls))

    def close(self) -> None:
        self.loop.run_until_complete(self.library.close())

    async def _pair(self, seconds: float, prefix: str) -> dict[str, Any]:
        acquire, release, clock, times = self.library.acquire, self.library.release, time.monotonic_ns, []
        began = now = clock()
        end = began + int(seconds * 1e9)
        while now < end:
            await release(await acquire(prefix))
            before, now = now, clock()
            times.append(now - before)
        return summary(times, (now - began) / 1e9)

    async def _block(self, seconds: float, prefix: str) -> dict[str, Any]:
        return await self._blocks(seconds, prefix, 1)

    async def _parallel(self, seconds: float, prefix: str, at_once: int) -> dict[str, Any]:
        acquire, release, clock, times = self.library.acquire, self.library.release, time.monotonic_ns, []

        async def one(name: str) -> None:
            start = clock()
            await release(await acquire(name))
            times.append(clock() - start)

        names = [f"{prefix}-{number}" for number in range(at_once)]
        began = clock()
        end = began + int(seconds * 1e9)
        while clock() < end:
            await asyncio.gather(*map(one, names))
        return summary(times, (clock() - began) / 1e9)

    async def _independent(self, seconds: float, prefix: str, at_once: int) -> dict[str, Any]:
        acquire, release = self.library.acquire, self.library.release

        async def once(name: str) -> None:
            await release(await acquire(name))

        return await self._callers(seconds, prefix, at_once, once)

    async def _blocks(self, seconds: float, prefix: str, at_once: int) -> dict[str, Any]:
        return await self._callers(seconds, prefix, at_once, self.library.block)

    async def _callers(
        self, seconds: float, prefix: str, at_once: int, once: Callable[[str], Awaitable[None]]
    ) -> dict[str, Any]:
        clock, times = time.monotonic_ns, []
        began = clock()
        end = began + int(seconds * 1e9)

        async def one(name: str) -> None:
            now = clock()
            while now < end:
                await once(name)
                before, now = now, clock()
                times.append(now - before)

        await asyncio.gather(*(one(f"{prefix}-{number}") for number in range(at_once)))
        return summary(times, (clock() - began) / 1e9)

    async def _shared(self, seconds: float, prefix: str, at_once: int, kind: str, hold: float) -> dict[str, Any]:
        acquire, release = self.library.acquire_kind, self.library.release

        async def once(_: str) -> None:
            lease = await acquire(kind, prefix)
            if hold:
                await asyncio.sleep(hold)
            await release(lease)

        return await self._callers(seconds, prefix, at_once, once)

    async def _names(self, count: int, prefix: str, at_once: int) -> dict[str, Any]:
        numbers = iter(range(count))

        async def one() -> None:
            for number in numbers:
                await self.library.block(f"{prefix}-{number}")

        began = time.monotonic()
        await asyncio.gather(*(one() for _ in range(at_once)))
        return {"seconds": time.monotonic() - began, "rss": resident()}

    async def _nested(self, seconds: float, prefix: str) -> dict[str, Any]:
        if not self.library.reentrant:
            raise Unsupported("not re-entrant")
        outer = await self.library.acquire(prefix)
        try:
            return await self._pair(seconds, prefix)
        finally:
            await self.library.release(outer)

    async def _contend(self, name: str, hold: float, rest: float, until: int) -> dict[str, Any]:
        clock, turns = time.monotonic_ns, []
        while (asked := clock()) < until:
            lease = await self.library.acquire(name)
            granted = clock()
            await asyncio.sleep(hold)
            releasing = clock()
            await self.library.release(lease)
            turns.append((asked, granted, releasing, clock()))
            await asyncio.sleep(rest)
        return {"turns": turns}

    async def _herd(self, name: str, waiters: int) -> dict[str, Any]:
        order: list[int] = []

        async def wait(number: int) -> None:
            lease = await self.library.acquire(name)
            order.append(number)
            await self.library.release(lease)

        lease, before = await self.library.acquire(name), resident()
        tasks = [asyncio.create_task(wait(number)) for number in range(waiters)]
        await asyncio.sleep(1 + waiters / 5_000)
        after, began = resident(), time.monotonic()
        await self.library.release(lease)
        await asyncio.gather(*tasks)
        took = time.monotonic() - began
        return {"seconds": took, "in_order": order == sorted(order), "rss_before": before, "rss_after": after}


def main(name: str) -> None:
    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)

    worker: Any = Threads(SYNC[name]()) if name in SYNC else Loop(ASYNC[name]())
    try:
        worker.connect(os.environ["REDIS_URLS"].split(","))
    except Unsupported as error:
        return say({"unsupported": str(error)})
    try:
        release = version(worker.library.package)
    except PackageNotFoundError:
        release = "development build"  # ours, from the source folder
    runtime = f"{platform.python_implementation()} {platform.python_version()}"
    say({"ready": True, "library": name, "version": release, "runtime": runtime})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(getattr(worker, request.pop("work"))(**request))
        except Unsupported as error:
            say({"unsupported": str(error)})
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})
    return worker.close()


if __name__ == "__main__":
    main(sys.argv[1])
