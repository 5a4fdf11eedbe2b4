"""Runs the scenarios of `tests/scenarios` on real servers, for threads and for asyncio.

It owns who an actor is, a thread or a task, and runs several scenarios at once, since mostly they wait; each is a test
of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import redlock
import redlock.asyncio
from scenario_engine import World, scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

AT_ONCE = 6
ALL = scenarios()


class Threads:
    """An actor is a thread."""

    library = redlock

    def __init__(self) -> None:
        self.work: dict[str, queue.SimpleQueue[Any]] = {}

    def start(self, actor: str, work: Any) -> Future[Any]:
        if actor not in self.work:
            self.work[actor] = queue.SimpleQueue()
            threading.Thread(target=self._act, args=(self.work[actor],), name=actor, daemon=True).start()
        future: Future[Any] = Future()
        self.work[actor].put((future, work))
        return future

    def _act(self, orders: queue.SimpleQueue[Any]) -> None:
        while order := orders.get():
            future, work = order
            try:
                # Nothing in it suspends: the sync library blocks instead.
                work().send(None)
            except StopIteration as end:
                future.set_result(end.value)
            except BaseException as error:
                future.set_exception(error)

    def cancel(self, actor: str, future: Future[Any]) -> None:
        raise NotImplementedError("a thread cannot be cancelled")

    def close(self) -> None:
        for orders in self.work.values():
            orders.put(None)


class Tasks:
    """An actor is a task that lives as long as the scenario, in an event loop of the scenario's own."""

    library = redlock.asyncio

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.orders: dict[str, asyncio.Queue[Any]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def start(self, actor: str, work: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.loop.call_soon_threadsafe(self._order, actor, future, work)
        return future

    def _order(self, actor: str, future: Future[Any], work: Any) -> None:
        if actor not in self.tasks:
            self.orders[actor] = asyncio.Queue()
            self.tasks[actor] = self.loop.create_task(self._act(self.orders[actor]))
        self.orders[actor].put_nowait((future, work))

    async def _act(self, orders: asyncio.Queue[Any]) -> None:
        while order := await orders.get():
            future, work = order
            future.started = True
            try:
                future.set_result(await work())
            except asyncio.CancelledError:
                future.cancel()
            except BaseException as error:
                future.set_exception(error)

    def cancel(self, actor: str, future: Future[Any]) -> None:
        def when_started() -> None:
            if hasattr(future, "started"):
                self.tasks[actor].cancel()
            else:
                self.loop.call_soon(when_started)

        self.loop.call_soon_threadsafe(when_started)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def _end(self) -> None:
        for orders in self.orders.values():
            orders.put_nowait(None)
        _, hanging = await asyncio.wait(self.tasks.values(), timeout=1) if self.tasks else ((), ())
        for task in hanging:
            task.cancel()


HOSTS = {"threads": Threads, "asyncio": Tasks}
CASES = [
    pytest.param(host, name, id=f"{host} {name}")
    for host in HOSTS
    for name, scenario in ALL.items()
    if host == "asyncio" or "cancel" not in scenario.get("needs", [])
]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[dict[tuple[str, str], Future[None]]]:
    """The scenarios of the chosen tests, all under way."""
    chosen = [item.callspec.params for item in request.session.items if item.path == request.path]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            (one["host"], one["name"]): pool.submit(lambda one=one: World(ALL[one["name"]], HOSTS[one["host"]]()).run())
            for one in chosen
        }


@pytest.mark.parametrize(("host", "name"), CASES)
def test_scenario(host: str, name: str, running: dict[tuple[str, str], Future[None]]) -> None:
    running[host, name].result(timeout=120)
