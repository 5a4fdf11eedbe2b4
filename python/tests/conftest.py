"""Fixtures: redis-servers, clients, and Python programs that use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import redlock
from servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Program = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that neither stop nor freeze it."""
    with Server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The shared server, emptied; the test must leave it running."""
    shared_server.cli("FLUSHALL")
    return shared_server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill or freeze."""
    with Server(tmp_path) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[redlock.Redlock]:
    """A client, closed after the test."""
    with redlock.Redlock(server.url) as client:
        yield client


@pytest.fixture
def program(server: Server) -> Iterator[Program]:
    """Start Python programs by `program(code, *arguments)`, and kill them after the test. REDLOCK_URL is the server."""
    started: list[subprocess.Popen[str]] = []
    # A shell's background job ignores Ctrl-C, and its children inherit that. These programs must not ignore it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def start(
        code: str, *arguments: str, url: str = server.url, options: tuple[str, ...] = ()
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *options, "-c", code, *arguments],
            env={**os.environ, "REDLOCK_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(program: Program) -> Callable[..., str]:
    """Run a Python program to its end, with the arguments of `program`. Return its output, and fail if it fails."""

    def finish(code: str, *arguments: str, **how: object) -> str:
        process = program(code, *arguments, **how)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "Exception ignored" not in err, err
        return out

    return finish
