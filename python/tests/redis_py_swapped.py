"""A pytest plugin: puts the compatible locks in the place of redis-py's, for its own test suite.

Given to pytest with `-p`, it is imported before the tests are, which take the classes from these modules.
"""

import pytest
import redis.asyncio.lock
import redis.lock

from redlock.compat.redis_py import Lock
from redlock.compat.redis_py.asyncio import Lock as AsyncLock

redis.lock.Lock = Lock  # type: ignore[assignment, misc]
redis.asyncio.lock.Lock = AsyncLock  # type: ignore[assignment, misc]


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Make sure that it is not redis-py's own lock that is tested."""
    assert all(item.module.Lock in (Lock, AsyncLock) for item in items)
