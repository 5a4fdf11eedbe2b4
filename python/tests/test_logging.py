"""Tests of the records in Python's log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import redlock
from servers import Server, eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_loss_is_a_warning(client: redlock.Redlock, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(redlock.LockLost), client.lock("x", ttl=0.1) as lease:
        assert lease.lost.wait(10)
    eventually(lambda: caplog.records)
    (record,) = caplog.records
    assert record.name == "redlock"
    assert record.levelno == logging.WARNING
    assert "lost: expired" in record.getMessage()


def test_details_are_for_debugging(client: redlock.Redlock, caplog: pytest.LogCaptureFixture) -> None:
    with client.lock("x"):
        pass
    with caplog.at_level(logging.DEBUG, logger="redlock"):
        with client.lock("y"):
            pass
        eventually(lambda: len(caplog.records) == 2)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG] * 2
    acquired, released = (record.getMessage() for record in caplog.records)
    assert "acquired" in acquired
    assert "released" in released
    with client.lock("z"):
        pass
    assert len(caplog.records) == 2


def test_an_outage_is_a_warning(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with redlock.Redlock(own_server.url) as client:
        with client.lock("x"):
            pass
        own_server.stop()
        with pytest.raises(redlock.Unavailable):
            client.lock("x").acquire(blocking=False)
        eventually(lambda: f"127.0.0.1:{own_server.port}" in caplog.text)


def test_a_child_logs_too(run: Callable[..., str]) -> None:
    out = run(
        """
import logging, os, sys, redlock
class Seen(logging.Handler):
    def emit(self, record):
        print(record.name, record.levelname, record.getMessage(), flush=True)
        os._exit(0)
with redlock.lock("x"):
    pass
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1])
logging.getLogger("redlock").addHandler(Seen())
redlock.lock("y", ttl=0.1).acquire().lost.wait()
import threading
threading.Event().wait(30)
os._exit(1)
"""
    )
    assert out.startswith('redlock WARNING lock "y"')


def test_a_handler_that_fails_fails_no_call(run: Callable[..., str]) -> None:
    out = run(
        """
import logging, redlock, sys, threading
sys.stderr = sys.stdout
seen = threading.Semaphore(0)
class Failing(logging.Handler):
    def emit(self, record):
        seen.release()
        raise ConnectionError("the log server is down")
logging.getLogger("redlock").addHandler(Failing())
for _ in range(3):
    redlock.lock("x", ttl=0.1).acquire().lost.wait()
    assert seen.acquire(timeout=30)
print("done")
"""
    )
    assert out.count("ConnectionError: the log server is down") >= 2
    assert "done" in out
