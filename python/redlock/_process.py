"""Background work in a Python process: logs the core's events, and releases all locks at exit.

Nothing here runs before the library is used, and nothing keeps a process alive.

The package imports this module at once. If a process forks while another thread imports a module, that import never
ends in the child. So this module imports nothing slow, and imports `logging` only when there is an event to log.

A sub-interpreter must not end before its threads: the process would be aborted, and hosts such as mod_wsgi do not ask
threads to end. So no thread logs there: each call logs the events before it.

If gevent or eventlet made greenlets of threads, a greenlet logs. The locks of `logging` are locks of greenlets then,
and no thread may wait for those of another thread. If the first call is not made in the main thread, each call logs the
events before it, too.
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

# Seconds for which the exit of the interpreter waits for each of our threads: logging may be slow.
_PATIENCE = 5.0
# The running threads: for each the id of its process, and the function that stops it.
_running: dict[threading.Thread, tuple[int, Callable[[], None]]] = {}
# Whether `start` was called, in this process or one that it was forked from.
_started = False
# A child has none of these threads. uWSGI forks without calling this, hence the process ids.
after_fork(_running.clear)


def start() -> None:
    """Start logging and register the release at exit. Called once in each process, children of a fork included."""
    global _started
    _started = True
    atexit.unregister(_end)
    atexit.register(_end)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        _end_with_child()
    # A child of a forkserver may use the library before it is a child of `multiprocessing`, which then begins afresh.
    register = getattr(sys.modules.get("multiprocessing.util"), "register_after_fork", None)
    if register is not None:
        register(_end, _end_with_child)
    if _native.is_main_interpreter() and _can_attend():
        try:
            run("redlock-log", _log, _native.end_events)
        except RuntimeError:
            # A process that is exiting cannot start a thread.
            pass
        else:
            return
    _native.end_events()


def _end_with_child(_: object = None) -> None:
    """Release at the end of a child of `multiprocessing`, which may end without calling atexit handlers."""
    from multiprocessing.util import Finalize

    Finalize(None, _end_child, exitpriority=-100)


def _end_child() -> None:
    threading = sys.modules.get("threading")
    if threading is not None and sys.version_info < (3, 13):
        # Python waits for the child's threads only after this. They may hold locks, or wait for one.
        threading._shutdown()
    _end()


def _can_attend() -> bool:
    """Whether a thread that `run` starts here keeps running and does not block other greenlets."""
    known = greenlets()
    return known is None or not known.are_threads() or known.can_attend()


def run(name: str, target: Callable[[], None], stop: Callable[[], None]) -> None:
    """Run `target` in a daemon thread. `stop`, called at the latest at exit, makes it return."""
    # Safe when a fork follows: a program with other threads has imported `threading` before.
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
    """Return `isEnabledFor` of the logger `redlock`, or None. It has no wrapper, since every acquire calls it."""
    logging = sys.modules["logging"]
    try:
        enabled: Callable[[int], bool] = logging.getLogger("redlock").isEnabledFor
    except AttributeError:
        # Another thread is still importing `logging`; perhaps a thread that exists only in the parent of this process.
        return None
    return enabled


def log(events: list[tuple[bool, bool, str]]) -> None:
    """Log events: whether each is a warning, whether it is about an orphan, and its text."""
    import logging

    logger = logging.getLogger("redlock")
    for is_warning, is_orphan, line in events:
        try:
            logger.log(logging.WARNING if is_warning else logging.DEBUG, "%s", line)
        except Exception:
            # A handler or filter that fails must neither fail a call nor end the log. Shown as `logging` shows it.
            if logging.raiseExceptions:
                import traceback

                traceback.print_exc()
        if is_orphan:
            _warn(line)


def _log() -> None:
    try:
        while events := _native.next_events():
            log(events)
    except BaseException:
        # A greenlet may be killed. From then on each call logs the events before it.
        _native.end_events()
        raise


def _end() -> None:
    if sys.is_finalizing():
        # A sub-interpreter that ends only with the whole process. Waiting for anything would take for ever.
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


def _end_first_used_at_exit() -> None:
    """Release what an exit handler acquired that used the library first: a handler registered by then is not called."""
    if _started:
        _end()


atexit.register(_end_first_used_at_exit)


def _warn(line: str) -> None:
    import contextlib
    import warnings

    # If warnings are errors, this thread must keep running all the same; the log has the line.
    with contextlib.suppress(ResourceWarning):
        warnings.warn(line, ResourceWarning, stacklevel=1)
