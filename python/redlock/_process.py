"""What the library does in a Python process behind its caller's back.

It logs what happens in the core, and releases what is held when the process ends. Nothing here runs before the library
is used, and nothing keeps a process alive.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import sys
import threading
import warnings

from redlock import _native

_logger = logging.getLogger("redlock")
# Asked with every acquire, so nothing of ours is in between.
logs = _logger.isEnabledFor


def start() -> None:
    """Start what this process needs; called once, again in a child after a fork."""
    atexit.unregister(_native.close_all)
    atexit.register(_native.close_all)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        # Its children may end without running what is registered with atexit.
        Finalize(None, _native.close_all, exitpriority=-100)
    threading.Thread(target=_log, name="redlock-log", daemon=True).start()


def _log() -> None:
    while True:
        for is_warning, is_orphan, line in _native.next_events():
            _logger.log(logging.WARNING if is_warning else logging.DEBUG, "%s", line)
            if is_orphan:
                _warn(line)


def _warn(line: str) -> None:
    # Where warnings are errors this thread must go on all the same; the log has the line.
    with contextlib.suppress(ResourceWarning):
        warnings.warn(line, ResourceWarning, stacklevel=1)
