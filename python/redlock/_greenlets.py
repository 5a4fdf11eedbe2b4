"""Greenlets of gevent and eventlet: their identity as owners, and how they wait.

Neither library is imported here. The native layer calls this module once the program has imported one of them, whether
it monkey-patched or not.

A greenlet that waits for the core switches to the hub of its thread, which watches the descriptor of the core's calls.
In the hub itself, and on Windows, where hubs watch only sockets, it blocks as a thread does.
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
    # A child has the greenlets of the thread that forked, but not their calls: wake those that wait.
    global _generation
    _generation += 1
    hub = _hub()
    bridge: Bridge | None = getattr(hub, "_redlock_bridge", None)
    if bridge is not None:
        bridge.soon(bridge.end)


after_fork(_forked)


class Bridge:
    """The pending calls of one hub's greenlets."""

    def __init__(self) -> None:
        self.native = _native.Loop(hosted=True)
        self.generation = _generation
        self.waiting: dict[int, Any] = {}
        # Whether `_flush` is scheduled for the next turn of the hub.
        self.unsent = False
        os.set_blocking(self.native.fileno(), False)

    def wait(self, id: int) -> None:
        """Switch to the hub until the call has ended, or until `end` in a child of a fork."""
        if self.waiting and not self.unsent:
            # Calls of one turn are sent with one write. A call was sent at once if no other was pending.
            self.unsent = True
            self.soon(self._flush)
        self.idle(id)

    def idle(self, id: int) -> None:
        """As `wait`, but does not keep the hub from ending."""
        waiter = self.waiting[id] = self.waiter()
        try:
            self.switch(waiter)
        finally:
            del self.waiting[id]

    def end(self) -> None:
        """Wake all waiting greenlets, in a child of a fork."""
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

    # The operations that differ between gevent and eventlet.

    def soon(self, function: Callable[[], None]) -> None:
        """Let the hub call a function in its next turn."""
        raise NotImplementedError

    def waiter(self) -> Any:
        """Make the object on which one greenlet waits."""
        raise NotImplementedError

    def switch(self, waiter: Any) -> None:
        """Switch to the hub until `wake` is called."""
        raise NotImplementedError

    def wake(self, waiter: Any) -> None:
        """End a `switch`, even one that has not started. Called in the hub."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop watching the parent's descriptor, in the hub of a child."""
        raise NotImplementedError


class Gevent(Bridge):
    """The bridge of a hub of gevent."""

    def __init__(self, hub: Any) -> None:
        super().__init__()
        self.hub = hub
        # The number of waiting greenlets that keep the hub from ending.
        self.busy = 0
        # 1 is for readability.
        self.watcher = hub.loop.io(self.native.fileno(), 1, ref=False)
        self.watcher.start(self.ready)

    def wait(self, id: int) -> None:
        """As `Bridge.wait`; the referenced watcher keeps the hub from ending meanwhile."""
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
    """The bridge of a hub of eventlet."""

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
        """Do nothing: a child shares the hub's poller with its parent, which would stop watching, too."""


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
    # gevent's hub is a greenlet; eventlet's hub has one as an attribute.
    return current is hub or current is getattr(hub, "greenlet", None)


def bridge() -> Bridge | None:
    """Return the bridge on which the current greenlet can wait; None if it must block."""
    hub = _hub()
    if hub is None or os.name == "nt" or _is_hub(hub, getcurrent()):
        return None
    known: Bridge | None = getattr(hub, "_redlock_bridge", None)
    if known is None or known.generation != _generation:
        # The hub owns it: its pending calls must not outlive the hub.
        known = hub._redlock_bridge = (Eventlet if hasattr(hub, "greenlet") else Gevent)(hub)
    return known


def current() -> Any:
    """Return the current greenlet; None for the first one of a thread, and in a thread without a hub."""
    greenlet = getcurrent()
    return None if greenlet.parent is None or _hub() is None else greenlet


def identity() -> _native.Identity | None:
    """Return the identity of the current greenlet; None if it has the identity of its thread."""
    greenlet = current()
    if greenlet is None:
        return None
    known: _native.Identity | None = getattr(greenlet, "_redlock_identity", None)
    if known is None:
        known = greenlet._redlock_identity = _native.Identity()
        # A greenlet that has ended owns nothing, even while the program keeps it for its result. A raw greenlet has no
        # link: it owns locks until it is collected.
        link = getattr(greenlet, "rawlink", None) or getattr(greenlet, "link", None)
        if link is not None:
            link(_forget)
    return known


def _forget(greenlet: Any) -> None:
    del greenlet._redlock_identity


def is_run_by(loop: object) -> bool:
    """Whether an asyncio loop drives the hub of this thread, and the current greenlet is none of the loop's tasks."""
    hub = _hub()
    return hub is not None and getattr(hub, "loop", None) is loop and not _is_hub(hub, getcurrent())


def are_threads() -> bool:
    """Whether the program monkey-patched threads into greenlets."""
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    return (gevent is not None and gevent.is_module_patched("threading")) or (
        eventlet is not None and eventlet.is_monkey_patched("thread")
    )


def can_attend() -> bool:
    """Whether a greenlet made here runs for as long as the process does."""
    # Neither library patches the native id. On Linux the native id of the main thread is the process id.
    is_main = threading.get_native_id() == os.getpid() or threading.current_thread() is threading.main_thread()
    return is_main and os.name != "nt" and not _is_hub(_hub(), getcurrent())
