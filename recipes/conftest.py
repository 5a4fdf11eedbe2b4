"""Fixtures of the recipes' tests: a redis-server, the service that the recipes call, and programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Appended, so that this folder's own modules are found first.
sys.path += [str(ROOT / "python" / "tests"), str(ROOT / "recipes")]

from servers import Server  # noqa: E402
from tools import Program, Service  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Server:
    """A redis-server without keys. The test must leave it running."""
    shared_server.cli("FLUSHALL")
    return shared_server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A redis-server that the test may stop."""
    with Server(tmp_path) as server:
        yield server


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def start(
    request: pytest.FixtureRequest, server: Server, service: Service, tmp_path: Path
) -> Iterator[Callable[..., Program]]:
    """Starts programs in the folder of the test's module, and kills them after the test."""
    started: list[Program] = []

    def start(*command: str, **variables: str) -> Program:
        environment = os.environ | {
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT / "recipes")]),
            "REDLOCK_URL": server.url,
            "SHOP_URL": service.url,
        }
        program = Program(command, request.path.parent, tmp_path / f"{len(started)}.log", environment | variables)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
