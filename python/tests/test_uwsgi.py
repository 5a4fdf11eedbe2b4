"""Tests under uWSGI, which forks its workers and ends each worker's interpreter after its main thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers import Server, eventually, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

# The master acquires a lock before it forks.
APP = """
import atexit, os, redlock

held_by_master = redlock.lock("master").acquire(timeout=0)
counted = redlock.lock("counted")

def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/hold":
        lease = redlock.lock(f"held-{os.getpid()}").acquire(timeout=0)
        # It runs after the main thread has ended, when no call can wait for the release.
        atexit.register(lease.release)
        return [b"held" if lease.held else b"free"]
    with counted as lease:
        count = int(open("counter").read())
        with open("counter", "w") as counter:
            counter.write(str(count + 1))
    return [b"counted"]
"""
REQUESTS = 60


@pytest.fixture
def uwsgi(server: Server, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A uWSGI process with three workers that serve APP, and its address."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "counter").write_text("0")
    program = Path(sys.executable).with_name("uwsgi")
    address = f"127.0.0.1:{free_port()}"
    options = ["--http-socket", address, "--wsgi-file", "app.py", "--master", "--processes", "3", "--die-on-term"]
    process = subprocess.Popen(
        [program, *options, "--need-app", "--disable-logging"],
        cwd=tmp_path,
        env={"REDLOCK_URL": server.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process, f"http://{address}"
    process.kill()
    process.communicate()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read()


def is_up(url: str) -> bool:
    try:
        get(url)
    except OSError:
        return False
    return True


def test_workers(uwsgi: tuple[subprocess.Popen[str], str], server: Server, tmp_path: Path) -> None:
    """Workers exclude each other. When they end, they release their locks, and none of them aborts."""
    process, url = uwsgi
    eventually(lambda: is_up(url))
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(get, [url] * REQUESTS)) == {b"counted"}
    assert int((tmp_path / "counter").read_text()) == REQUESTS + 1
    assert get(f"{url}/hold") == b"held"
    assert len(server.keys("held-*")) == 1
    assert server.keys("master")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert "panicked" not in said, said
    # The master ends without ending its interpreter, so its own lock stays until the lease ends.
    eventually(lambda: not server.keys("held-*"))
