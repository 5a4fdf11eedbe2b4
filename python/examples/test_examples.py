"""Runs the examples as a reader would, on a private server, and checks their output and the keys that they leave."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from servers import Server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that only the example uses."""
    with Server(tmp_path) as server:
        yield server


def run(
    example: str, server: Server, environment: dict[str, str] | None = None, see: Callable[[str], object] = bool
) -> list[str]:
    """Run an example to its end, call `see` with each line that it prints, and return the lines."""
    command = [sys.executable, str(HERE / example), server.url]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **(environment or {})}
        ) as process,
    ):
        try:
            lines = []
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
                see(line)
            code = process.wait(60)
        finally:
            process.kill()
        errors.seek(0)
        said = errors.read()
    assert code == 0, "\n".join([*lines, said])
    assert "Traceback" not in said, said
    return lines


def locks(server: Server) -> list[str]:
    """The keys of held locks, without redlock's own records."""
    with redis.Redis.from_url(server.url, decode_responses=True) as peer:
        return [key for key in peer.scan_iter() if not key.startswith("redlock_")]


def test_flash_sale(server: Server) -> None:
    """The item is sold once, to the customer who held the reservation when the payment arrived."""

    def see(line: str) -> None:
        if "no answer" in line:
            server.cli("PEXPIRE", "flash-sale:console", "1")

    # With 300 s, everybody pays in time, however busy the machine is; only bob's reservation is ended, by `see`.
    lines = run("flash_sale.py", server, {"TIME_TO_PAY": "300"}, see)
    assert [line.strip() for line in lines] == [
        "web: ann has 300 s to pay",
        "web: sorry bob, somebody else is paying right now",
        "payments: ann's card was declined: back on sale",
        "web: bob has 300 s to pay",
        "bank: no answer about bob's card",
        "web: carl has 300 s to pay",
        "bank: bob's card was accepted after all",
        "payments: bob paid too late, and gets the money back",
        "payments: carl paid: sold",
        "web: sorry dora, it is sold to carl",
        "sold to carl, once",
    ]
    assert locks(server) == []
    with redis.Redis.from_url(server.url) as peer:
        assert peer.exists("redlock_token:{flash-sale:console}"), "the lock was taken on this server"


def test_scheduler(server: Server) -> None:
    """Each tick takes effect once, even those whose worker died or hung."""
    lines = run("scheduler.py", server)
    done = [int(match[1]) for line in lines if (match := re.fullmatch(r"worker \d has done tick (\d)", line))]
    assert done == [1, 2, 3, 4, 5, 6]
    summary = [re.fullmatch(r"tick (\d): attempts (\d+), reports (\d)", line) for line in lines[-6:]]
    ticks = {int(match[1]): (int(match[2]), int(match[3])) for match in summary if match}
    assert sorted(ticks) == done
    assert all(reports == 1 for _, reports in ticks.values()), "run once or more, and once in effect"
    assert ticks[2][0] > 1, "its first worker died"
    assert ticks[4][0] > 1, "its first worker hung"
    (dead,) = [line.split()[1] for line in lines if line.endswith(" dies")]
    (hung,) = [line.split()[1] for line in lines if line.endswith(" hangs")]
    assert f"worker {hung} comes too late for tick 4: its write is refused" in lines
    assert not any(line.startswith(f"worker {dead} ") for line in lines[lines.index(f"worker {dead} dies") + 1 :])
    assert locks(server) == []
    with redis.Redis.from_url(server.url) as peer:
        assert peer.exists("redlock_token:{scheduler:report}"), "the lock was taken on this server"


def test_ticks(server: Server) -> None:
    """Without `min_hold` both replicas run each tick's job, with it one of them does."""
    lines = run("ticks.py", server)
    assert [line.strip() for line in lines] == [
        "a released lock is free:",
        "tick 1: run by replica 1 and 2",
        "tick 2: run by replica 1 and 2",
        "tick 3: run by replica 1 and 2",
        "3 ticks, 6 runs",
        "with min_hold it stays taken:",
        "tick 1: run by replica 1",
        "tick 2: run by replica 1",
        "tick 3: run by replica 1",
        "3 ticks, 3 runs",
    ]
    assert locks(server) == []
    with redis.Redis.from_url(server.url) as peer:
        assert peer.exists("redlock_token:{ticks:report}"), "the lock was taken on this server"


def test_job_queue(server: Server) -> None:
    """All jobs run, no licence is used twice at the same time, and all licences are used."""
    lines = run("job_queue.py", server)
    ran = [re.fullmatch(r"worker \d ran job (\d+) with licence (\d)", line) for line in lines[:-1]]
    assert sorted(int(match[1]) for match in ran if match) == list(range(1, 13))
    assert {match[2] for match in ran if match} == {"0", "1", "2"}
    assert lines[-1] == "12 jobs, 3 at once at most"
    assert locks(server) == []
    with redis.Redis.from_url(server.url) as peer:
        assert peer.hlen("redlock_slot_tokens:{renderer:licences}") == 3, "the slots were held on this server"


def test_shared_cache(server: Server) -> None:
    """Each version is rebuilt by one reader, and no reader sees half of it."""
    assert run("shared_cache.py", server) == ["rebuilt: 1, 2, 3", "24 reads by 8 readers, all of them whole"]
    assert locks(server) == []
    with redis.Redis.from_url(server.url) as peer:
        assert peer.exists("redlock_token:{prices:cache}"), "the lock was taken on this server"
