"""Fixtures of the pitfall tests: a private redis-server, redlock clients, and a redis-py client for inspection.

Most pitfalls are shown twice. First, a naive lock of a few lines breaks; then redlock passes the same test.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

# Appended, so that this folder's own modules are found first.
sys.path.append(str(Path(__file__).resolve().parents[2] / "python" / "tests"))

import redlock
from tools import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """An empty server, started for each test."""
    with running() as server:
        yield server


@pytest.fixture
def peer(server: Server) -> Iterator[redis.Redis]:
    """A redis-py client that inspects the server, and on which the naive locks run."""
    with redis.Redis.from_url(server.url) as peer:
        yield peer


@pytest.fixture
def client(server: Server) -> Iterator[redlock.Redlock]:
    """A client whose leases last one second, renewed every third of a second."""
    with redlock.Redlock(server.url, watchdog=1.0) as client:
        yield client


@pytest.fixture
def other(server: Server) -> Iterator[redlock.Redlock]:
    """A second client, which stands for another machine."""
    with redlock.Redlock(server.url, watchdog=1.0) as client:
        yield client
