"""Distributed locks on Redis: re-entrant, kept alive by a watchdog, on one node or a quorum, with fencing tokens.

```python
import redlock

with redlock.lock("report", wait=5) as lease:
    print("building under token", lease.token)
```

`redlock.asyncio` has the same names for event loops. While `lease.held` is true no other owner holds the lock, under
the conditions in `docs/guarantees.md`.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - pip refuses older versions, a copied folder does not
    raise ImportError("redlock needs Python 3.10 or newer; this is Python {}.{}".format(*sys.version_info))

from redlock import _process, _tasks  # noqa: F401 - the native layer uses them later
from redlock._client import configure
from redlock._native import Lease, LockInfo, Lost, NodeStatus, __version__
from redlock._sync import Lock, ReadWriteLock, Redlock, Semaphore, lock, read_write_lock, semaphore
from redlock.errors import (
    Closed,
    InvalidArgument,
    KeyConflict,
    LockError,
    LockLost,
    LockTimeout,
    NoEventLoop,
    NotHeld,
    Unavailable,
    WouldDeadlock,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from redlock._options import ClientOptions, LockOptions, ReadWriteOptions, Seconds, SemaphoreOptions
else:

    def __getattr__(name: str) -> object:
        # Few programs need these types at run time, and they import `typing`, which is slow.
        if name in {"ClientOptions", "LockOptions", "ReadWriteOptions", "Seconds", "SemaphoreOptions"}:
            from redlock import _options

            return getattr(_options, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


__all__ = [
    "ClientOptions",
    "Closed",
    "InvalidArgument",
    "KeyConflict",
    "Lease",
    "Lock",
    "LockError",
    "LockInfo",
    "LockLost",
    "LockOptions",
    "LockTimeout",
    "Lost",
    "NoEventLoop",
    "NodeStatus",
    "NotHeld",
    "ReadWriteLock",
    "ReadWriteOptions",
    "Redlock",
    "Seconds",
    "Semaphore",
    "SemaphoreOptions",
    "Unavailable",
    "WouldDeadlock",
    "__version__",
    "configure",
    "lock",
    "read_write_lock",
    "semaphore",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
