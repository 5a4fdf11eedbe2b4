"""Fixtures of the pitfall tests: a private redis-server, a client of redlock and one that looks into the server.

Each pitfall is shown twice on the same server: a naive lock of a few lines is driven into it and breaks, then redlock
goes through the same.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

# At the end: this folder's own modules come first.
sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "tests"))

import redlock
from tools import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own for each test, empty."""
    with running() as server:
        yield server


@pytest.fixture
def peer(server: Server) -> Iterator[redis.Redis]:
    """Looks into the server, and serves the naive locks."""
    with redis.Redis.from_url(server.url) as peer:
        yield peer


@pytest.fixture
def client(server: Server) -> Iterator[redlock.Redlock]:
    """A client whose locks are renewed every third of a second: two clients exclude each other."""
    with redlock.Redlock(server.url, watchdog=1.0) as client:
        yield client


@pytest.fixture
def other(server: Server) -> Iterator[redlock.Redlock]:
    """A second client, as another machine would have."""
    with redlock.Redlock(server.url, watchdog=1.0) as client:
        yield client
