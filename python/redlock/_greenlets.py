"""Greenlets of gevent and eventlet: who they are, and how they wait.

Neither library is imported here: the native layer asks once the program has done so, whatever it patched, and when.

A greenlet that waits for the core switches to the hub of its thread, which watches the descriptor of the core's calls.
Where it cannot, in the hub itself and on Windows, whose hubs watch nothing but sockets, it blocks as a thread does.
"""

from __future__ import annotations

import os
import sys
import threading

from greenlet import getcurrent  # type: ignore[import-untyped]

from redlock import _native
from redlock._client import after_fork

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_generation = 0


def _forked() -> None:
    # A child has the greenlets of the thread that forked, but none of their calls.
    global _generation
    _generation += 1
    hub = _hub()
    bridge: Bridge | None = getattr(hub, "_redlock_bridge", None)
    if bridge is not None:
        bridge.soon(bridge.end)


after_fork(_forked)


class Bridge:
    """The calls of one hub's greenlets that wait for the core."""

    def __init__(self) -> None:
        self.native = _native.Loop(hosted=True)
        self.generation = _generation
        self.waiting: dict[int, Any] = {}
        # Whether calls wait for the end of this turn of the hub.
        self.unsent = False
        os.set_blocking(self.native.fileno(), False)

    def wait(self, id: int) -> None:
        """Let the other greenlets run until a call has ended, or, in a child, its process."""
        if self.waiting and not self.unsent:
            # Calls of one turn share a write. One that is alone was sent at once.
            self.unsent = True
            self.soon(self._flush)
        self.idle(id)

    def idle(self, id: int) -> None:
        """As `wait`; but a hub that has nothing else to wait for may end."""
        waiter = self.waiting[id] = self.waiter()
        try:
            self.switch(waiter)
        finally:
            del self.waiting[id]

    def end(self) -> None:
        """Wake all, in a child."""
        for waiter in list(self.waiting.values()):
            self.wake(waiter)

    def _flush(self) -> None:
        self.unsent = False
        self.native.flush()

    def ready(self, *_: object) -> None:
        """Wake the greenlets whose calls have ended."""
        if self.generation != _generation:
            self.stop()
            return
        for id in self.native.ended():
            waiter = self.waiting.get(id)
            if waiter is not None:
                self.wake(waiter)

    # What differs between the libraries.

    def soon(self, function: Callable[[], None]) -> None:
        """Have the hub call a function in its next turn."""
        raise NotImplementedError

    def waiter(self) -> Any:
        """Make what one greenlet waits for."""
        raise NotImplementedError

    def switch(self, waiter: Any) -> None:
        """Wait."""
        raise NotImplementedError

    def wake(self, waiter: Any) -> None:
        """End a `switch`, perhaps before it began; called in the hub."""
        raise NotImplementedError

    def stop(self) -> None:
        """Have the hub of a child no longer watch for its parent."""
        raise NotImplementedError


class Gevent(Bridge):
    """Calls of gevent's greenlets."""

    def __init__(self, hub: Any) -> None:
        super().__init__()
        self.hub = hub
        # How many wait for what the hub must not end before.
        self.busy = 0
        # 1: for readability.
        self.watcher = hub.loop.io(self.native.fileno(), 1, ref=False)
        self.watcher.start(self.ready)

    def wait(self, id: int) -> None:
        """As `Bridge.wait`; meanwhile the hub has something to wait for."""
        self.busy += 1
        self.watcher.ref = True
        try:
            super().wait(id)
        finally:
            self.busy -= 1
            if not self.busy:
                self.watcher.ref = False

    def soon(self, function: Callable[[], None]) -> None:
        """As `Bridge.soon`."""
        self.hub.loop.run_callback(function)

    def waiter(self) -> Any:
        """As `Bridge.waiter`."""
        return sys.modules["gevent.hub"].Waiter(self.hub)

    def switch(self, waiter: Any) -> None:
        """As `Bridge.switch`."""
        waiter.get()

    def wake(self, waiter: Any) -> None:
        """As `Bridge.wake`."""
        waiter.switch(None)

    def stop(self) -> None:
        """As `Bridge.stop`."""
        self.watcher.stop()


class Eventlet(Bridge):
    """Calls of eventlet's green threads."""

    def __init__(self, hub: Any) -> None:
        super().__init__()
        self.hub = hub
        hub.add(hub.READ, self.native.fileno(), self.ready, self.ready, self.stop)

    def soon(self, function: Callable[[], None]) -> None:
        """As `Bridge.soon`."""
        self.hub.schedule_call_global(0, function)

    def waiter(self) -> Any:
        """As `Bridge.waiter`."""
        return sys.modules["eventlet.event"].Event()

    def switch(self, waiter: Any) -> None:
        """As `Bridge.switch`."""
        waiter.wait()

    def wake(self, waiter: Any) -> None:
        """As `Bridge.wake`."""
        if not waiter.ready():
            waiter.send()

    def stop(self) -> None:
        """Do nothing: the hub of a child shares what it polls with its parent, for which it would end, too."""


def _hub() -> Any:
    """Return the hub of this thread, if it has one."""
    gevent = sys.modules.get("gevent._hub_local")
    if gevent is not None:
        hub = gevent.get_hub_if_exists()
        if hub is not None:
            return hub
    eventlet = sys.modules.get("eventlet.hubs")
    return None if eventlet is None else getattr(eventlet._threadlocal, "hub", None)


def _is_hub(hub: Any, current: object) -> bool:
    # gevent's is a greenlet, eventlet's has one.
    return current is hub or current is getattr(hub, "greenlet", None)


def bridge() -> Bridge | None:
    """Return where the current greenlet can wait; None if it has to block."""
    hub = _hub()
    if hub is None or os.name == "nt" or _is_hub(hub, getcurrent()):
        return None
    known: Bridge | None = getattr(hub, "_redlock_bridge", None)
    if known is None or known.generation != _generation:
        # The hub owns it: what it waits for must not outlive the hub.
        known = hub._redlock_bridge = (Eventlet if hasattr(hub, "greenlet") else Gevent)(hub)
    return known


def current() -> Any:
    """Return the current greenlet; None for the first of a thread, and where there is no hub."""
    greenlet = getcurrent()
    return None if greenlet.parent is None or _hub() is None else greenlet


def identity() -> _native.Identity | None:
    """Return the identity of the current greenlet; None for one that has its thread's."""
    greenlet = current()
    if greenlet is None:
        return None
    known: _native.Identity | None = getattr(greenlet, "_redlock_identity", None)
    if known is None:
        known = greenlet._redlock_identity = _native.Identity()
        # A greenlet that ended owns nothing, even while somebody keeps it for its result. Raw ones tell nobody.
        link = getattr(greenlet, "rawlink", None) or getattr(greenlet, "link", None)
        if link is not None:
            link(_forget)
    return known


def _forget(greenlet: Any) -> None:
    del greenlet._redlock_identity


def is_run_by(loop: object) -> bool:
    """Whether a loop of asyncio is that of a hub, in whose tasks the current greenlet then is not."""
    hub = _hub()
    return hub is not None and getattr(hub, "loop", None) is loop and not _is_hub(hub, getcurrent())


def are_threads() -> bool:
    """Whether the program has made greenlets of its threads."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return (gevent is not None and gevent.is_module_patched("threading")) or (
        eventlet is not None and eventlet.is_monkey_patched("thread")
    )


def can_attend() -> bool:
    """Whether a greenlet made here runs for as long as the process does."""
    # Nobody patches the native number, which on Linux is that of the process in its main thread.
    is_main = threading.get_native_id() == os.getpid() or threading.current_thread() is threading.main_thread()
    return is_main and os.name != "nt" and not _is_hub(_hub(), getcurrent())
