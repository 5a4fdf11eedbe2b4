"""Python's host of the shared scenarios, `scenario_host.py sync|gevent|asyncio`: it runs the orders of the actors.

It speaks the protocol of `tests/scenarios/README.md`. The verbs are written once for both libraries: the result of an
asyncio call is awaited. An actor is a thread, a greenlet (gevent patches `threading`), or a task. It lives as long as
the scenario; one event loop runs all tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import queue
import sys
import threading
import time
import traceback
from typing import Any

import redlock
import redlock.asyncio

Order = dict[str, Any]
output = threading.Lock()


def say(**line: Any) -> None:
    with output:
        print(json.dumps(line), flush=True)


def spelled(given: Order, *wanted: str) -> Order:
    """The wanted options with Python's names, and times in seconds."""
    plain = {name: float("nan") if value == "nan" else value for name, value in given.items() if name in wanted}
    times = {name for name, value in plain.items() if name.endswith("_ms") and value != "adaptive"}
    return {name.removesuffix("_ms"): value / 1000 if name in times else value for name, value in plain.items()}


class World:
    """The clients, leases and texts of one scenario."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.clients: dict[str, Any] = {}
        self.leases: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.making = threading.Lock()

    def connect(self, given: Order) -> Any:
        return self.library.Redlock(given["urls"], **spelled(given["options"], *given["options"]))

    def client(self, given: Order) -> Any:
        with self.making:
            if given["name"] not in self.clients:
                self.clients[given["name"]] = self.connect(given)
            return self.clients[given["name"]]

    def call(self, order: Order) -> Any:
        """Make the call of an order; with asyncio, the caller still has to await the result."""
        step, verb = order["step"], order["step"]["do"]
        if verb == "client":
            return self.connect(order["client"]).close()
        if "lease" in step:
            lease = self.leases[step["lease"]]
            calls = {"release": lease.release, "check": lease.check, "detach": lease.detach}
            calls |= {"held": lambda: lease.held, "remaining": lambda: lease.remaining() * 1000}
            calls |= {"extend": lambda: lease.extend(**spelled(step, "ttl_ms")), "wait_lost": lease.lost.wait}
            calls |= {"downgrade": lease.downgrade, "try_upgrade": lease.try_upgrade, "token": lambda: lease.token}
            return calls[verb]()
        client = self.client(order["client"])
        if verb in ("attach", "close"):
            return client.close() if verb == "close" else client.attach(self.texts.get(step["text"], step["text"]))
        if verb == "force_release":
            return client.force_release(step["lock"])
        options = ("ttl_ms", "wait_ms", "max_hold_ms", "min_hold_ms", "reentrant", "fair", "owner")
        if "part" in step:
            both = client.read_write_lock(step["lock"], **spelled(step, *options))
            lock = both.read() if step["part"] == "read" else both.write()
        elif "permits" in step:
            semaphore = client.semaphore(step["lock"], **spelled(step, *options, "permits"))
            taken = spelled(step, "n")
            calls = {"acquire": lambda: semaphore.acquire(**taken), "locked": semaphore.locked}
            calls |= {"try_acquire": lambda: semaphore.acquire(blocking=False, **taken)}
            return (calls | {"unlock": semaphore.release, "available": semaphore.available})[verb]()
        else:
            lock = client.lock(step["lock"], **spelled(step, *options))
        calls = {"acquire": lock.acquire, "try_acquire": lambda: lock.acquire(blocking=False), "unlock": lock.release}
        return (calls | {"owned": lock.owned, "locked": lock.locked, "inspect": lock.inspect})[verb]()

    async def perform(self, order: Order) -> Any:
        """Run an order and return its result as plain values."""
        step, value = order["step"], self.call(order)
        value = await value if inspect.isawaitable(value) else value
        match step["do"]:
            case "acquire" | "try_acquire" | "attach":
                if value is None:
                    raise redlock.LockTimeout("not obtained in time")
                # A lease without a name is stored too, so that it is held until the scenario ends.
                self.leases[step.get("as", f"unnamed {len(self.leases)}")] = value
                return {"token": value.token, "name": value.name, "owner": value.owner, "slots": value.slots}
            case "inspect":
                if value is None:
                    return None
                ttl = value.ttl and value.ttl * 1000
                told = {"owner": value.owner, "token": value.token, "ttl_ms": ttl}
                told |= {"kind": value.kind, "owners": len(value.owners), "app": value.app}
                recent = value.since is not None and abs(time.time() - value.since) < 60
                return told | {"process": bool(value.host and value.pid), "recent": recent}
            case "detach":
                self.texts[step.get("as", "")] = value
                return None
            case "wait_lost":
                return self.leases[step["lease"]].lost.reason if value else None
        return value

    async def follow(self, order: Order) -> None:
        """Run an order and print its answer."""
        try:
            if "end" not in order:
                return say(id=order["id"], value=await self.perform(order))
            for client in self.clients.values():
                closing = client.close()
                await closing if inspect.isawaitable(closing) else None
            say(ended=order["end"])
        except asyncio.CancelledError:
            say(id=order["id"], cancelled=True)
        except redlock.LockError as error:
            shown = {"code": error.code, "message": str(error), "reason": getattr(error, "reason", None)}
            say(id=order["id"], error=shown)
        except Exception:
            say(id=order.get("id"), error={"code": "bug", "message": traceback.format_exc()})


class Threads:
    """Runs each actor in a thread."""

    library, can_cancel = redlock, False

    def begin(self, world: World) -> Any:
        orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self.act, args=(orders, world), daemon=True).start()
        return orders.put

    def act(self, orders: queue.SimpleQueue[Any], world: World) -> None:
        while order := orders.get():
            # With the sync library, the coroutine never suspends: one `send` runs it to its end.
            with contextlib.suppress(StopIteration):
                world.follow(order).send(None)


class Tasks:
    """Runs each actor in a task."""

    library, can_cancel = redlock.asyncio, True

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.tasks: set[Any] = set()
        # The task of each order under way, or None if the order has not started.
        self.running: dict[Any, Any] = {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def begin(self, world: World) -> Any:
        orders: asyncio.Queue[Any] = asyncio.Queue()
        self.loop.call_soon_threadsafe(lambda: self.tasks.add(self.loop.create_task(self.act(orders, world))))
        return lambda order: self.loop.call_soon_threadsafe(self.put, orders, order)

    def put(self, orders: asyncio.Queue[Any], order: Order | None) -> None:
        orders.put_nowait(order)
        if order:
            self.running[order.get("id")] = None

    async def act(self, orders: asyncio.Queue[Any], world: World) -> None:
        while order := await orders.get():
            self.running[order.get("id")] = asyncio.current_task()
            await world.follow(order)
            self.running.pop(order.get("id"), None)
        self.tasks.discard(asyncio.current_task())

    def cancel(self, number: int) -> None:
        if self.running.get(number):
            self.running[number].cancel()
        elif number in self.running:
            self.loop.call_soon(self.cancel, number)


def main() -> None:
    # Without a handler, Python would print the library's warnings to standard error.
    logging.getLogger("redlock").addHandler(logging.NullHandler())
    orders: Any = sys.stdin
    if sys.argv[1] == "gevent":
        import gevent.monkey
        from gevent.fileobject import FileObject

        gevent.monkey.patch_all()
        orders = FileObject(sys.stdin.fileno(), "r", closefd=False)
    host: Any = Tasks() if sys.argv[1] == "asyncio" else Threads()
    say(hello=f"python {sys.argv[1]}", actors=True, cancel=host.can_cancel)
    worlds: dict[int, tuple[World, dict[str, Any]]] = {}
    for line in orders:
        order = json.loads(line)
        if "cancel" in order:
            host.loop.call_soon_threadsafe(host.cancel, order["cancel"])
            continue
        number, actor = order.get("scenario", order.get("end")), order.get("actor")
        world, actors = worlds.setdefault(number, (World(host.library), {}))
        if actor not in actors:
            actors[actor] = host.begin(world)
        actors[actor](order)
        if "end" in order:
            for give in worlds.pop(number)[1].values():
                give(None)


if __name__ == "__main__":
    main()
