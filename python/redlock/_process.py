"""What the library does in a Python process behind its caller's back.

It logs what happens in the core, and releases what is held when the process ends. Nothing here runs before the library
is used, and nothing keeps a process alive.

It is imported with the package: a process that forks while another thread imports something leaves its child an import
that never ends. So it imports nothing that takes long, and `logging` only when there is something to log.

A sub-interpreter cannot end before its threads have: the process is aborted instead, and hosts such as mod_wsgi do not
ask threads to end. So what happens there is logged with the next call, not by a thread.

Where gevent or eventlet has made greenlets of threads, a greenlet logs: locks of the log are theirs then, and no thread
may wait for those of another. Without a main thread to run it, what happens is logged with the next call, too.
"""

from __future__ import annotations

import atexit
import os
import sys

from redlock import _native
from redlock._client import after_fork, greenlets

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

# How long the end of the interpreter waits for one of our threads, in seconds: one that logs may be slow.
_PATIENCE = 5.0
# The threads that run, the process of each, and what ends it.
_running: dict[threading.Thread, tuple[int, Callable[[], None]]] = {}
# A child has none of them. uWSGI forks without calling this.
after_fork(_running.clear)


def start() -> None:
    """Start what this process needs; called once, again in a child after a fork."""
    atexit.unregister(_end)
    atexit.register(_end)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        # Its children may end without running what is registered with atexit.
        Finalize(None, _end, exitpriority=-100)
    if _native.is_main_interpreter() and _can_attend():
        try:
            run("redlock-log", _log, _native.end_events)
        except RuntimeError:
            # A process that ends already can start no thread.
            pass
        else:
            return
    _native.end_events()


def _can_attend() -> bool:
    """Whether what `run` starts here goes on, and stops nobody."""
    known = greenlets()
    return known is None or not known.are_threads() or known.can_attend()


def run(name: str, target: Callable[[], None], stop: Callable[[], None]) -> None:
    """Run `target` in a thread, until it returns because `stop` was called: at the latest when the interpreter ends."""
    # Where another thread could be importing it, it was imported before.
    import threading

    def body() -> None:
        try:
            target()
        finally:
            _running.pop(thread, None)

    thread = threading.Thread(target=body, name=name, daemon=True)
    _running[thread] = (os.getpid(), stop)
    try:
        thread.start()
    except RuntimeError:
        del _running[thread]
        raise


def logs() -> Callable[[int], bool] | None:
    """Return what tells whether a level is logged. It is asked with every acquire, so nothing of ours is in between."""
    logging = sys.modules["logging"]
    try:
        enabled: Callable[[int], bool] = logging.getLogger("redlock").isEnabledFor
    except AttributeError:
        # Another thread is in the middle of importing it; perhaps one that only the parent of this process has.
        return None
    return enabled


def log(events: list[tuple[bool, bool, str]]) -> None:
    """Log what happened."""
    import logging

    logger = logging.getLogger("redlock")
    for is_warning, is_orphan, line in events:
        logger.log(logging.WARNING if is_warning else logging.DEBUG, "%s", line)
        if is_orphan:
            _warn(line)


def _log() -> None:
    try:
        while events := _native.next_events():
            log(events)
    except BaseException:
        # A greenlet may be killed.
        _native.end_events()
        raise


def _end() -> None:
    if sys.is_finalizing():
        # A sub-interpreter that was left to the end of the whole process, when waiting for anything would be for ever.
        return
    _native.close_all()
    ending = [(thread, stop) for thread, (pid, stop) in _running.items() if pid == os.getpid()]
    for _, stop in ending:
        stop()
    for thread, _ in ending:
        thread.join(_PATIENCE)
    _native.end_events()
    if not any(thread in _running for thread, _ in ending):
        _log()


def _warn(line: str) -> None:
    import contextlib
    import warnings

    # Where warnings are errors this thread must go on all the same; the log has the line.
    with contextlib.suppress(ResourceWarning):
        warnings.warn(line, ResourceWarning, stacklevel=1)
