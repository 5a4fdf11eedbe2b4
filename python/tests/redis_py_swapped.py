"""A pytest plugin that replaces redis-py's locks by the compatible ones, for redis-py's own test suite.

pytest imports it (`-p`) before the tests, and the tests import the lock classes from these modules of redis-py.
"""

import pytest
import redis.asyncio.lock
import redis.lock

from redlock.compat.redis_py import Lock
from redlock.compat.redis_py.asyncio import Lock as AsyncLock

redis.lock.Lock = Lock  # type: ignore[assignment, misc]
redis.asyncio.lock.Lock = AsyncLock  # type: ignore[assignment, misc]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Check that no test uses redis-py's own lock."""
    assert all(item.module.Lock in (Lock, AsyncLock) for item in items)
