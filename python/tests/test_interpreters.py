"""Tests of sub-interpreters: those of mod_wsgi, which share everything with the main one, and isolated ones.

Each test runs a process of its own.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server


@pytest.fixture
def _in_subinterpreters() -> None:
    """Skip the test unless Python has `_testcapi`, which makes sub-interpreters by the same C functions as mod_wsgi."""
    pytest.importorskip("_testcapi", reason="a Python without its tests cannot make sub-interpreters of the old kind")


OUTSIDE = """
import sys
from _testcapi import run_in_subinterp
assert run_in_subinterp(sys.argv[1]) == 0
print("the process goes on", flush=True)
"""

INSIDE = """
import asyncio, logging, os, sys, threading
import redlock, redlock.asyncio

logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")

# A wait in the main thread, which checks for signals meanwhile.
free = threading.Event()
taken = threading.Event()
def hold():
    with redlock.lock("x"):
        taken.set()
        free.wait()
holder = threading.Thread(target=hold)
holder.start()
taken.wait()
assert redlock.lock("x").acquire(timeout=0.2) is None
free.set()
holder.join()

try:
    redlock.lock("x", owner="").acquire()
except redlock.InvalidArgument:
    pass

async def main():
    async with redlock.asyncio.lock("x") as lease:
        assert lease.held
        assert await redlock.asyncio.lock("x").inspect() is not None
asyncio.run(main())

class Blind(asyncio.SelectorEventLoop):
    def add_reader(self, fd, callback, *args):
        if getattr(callback, "__self__", None) is not self:
            raise NotImplementedError
        return super().add_reader(fd, callback, *args)
loop = Blind()
loop.run_until_complete(main())
assert "redlock-loop" in {thread.name for thread in threading.enumerate()}

redlock.lock("lost", ttl=0.05).acquire().lost.wait()
redlock.lock("kept").acquire()
print("the interpreter ends", flush=True)
"""


@pytest.mark.usefixtures("_in_subinterpreters")
def test_an_interpreter_ends_and_its_process_goes_on(run: Callable[..., str], server: Server) -> None:
    """A sub-interpreter that used redlock ends. Python would abort the process if one of its threads still ran."""
    out = run(OUTSIDE, INSIDE)
    before, end, after = out.partition("the interpreter ends\n")
    assert end
    # The client logs this loss with its next call.
    assert re.search('lock "lost" with token [0-9]+ was lost: expired\n', before)
    # The end of the interpreter logs this one.
    assert re.search('lock "kept" with token [0-9]+ was lost: closed\n', after)
    assert after.endswith("\nthe process goes on\n")
    assert not server.keys("x")
    assert not server.keys("kept")


IMPORT = """
try:
    import redlock
except ImportError as error:
    print(error, flush=True)
else:
    print("imported", flush=True)
"""


@pytest.mark.usefixtures("_in_subinterpreters")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(IMPORT + OUTSIDE, id="the main one and another"),
        pytest.param(OUTSIDE + IMPORT, id="another and the main one"),
        pytest.param(OUTSIDE + "run_in_subinterp(sys.argv[1])", id="one after the other"),
    ],
)
def test_only_one_interpreter_of_a_process_is_served(run: Callable[..., str], code: str) -> None:
    """Only one interpreter of a process can import redlock.

    The exception classes belong to the first one, so a second interpreter could not catch redlock's exceptions.
    """
    first, second = (line for line in run(code, IMPORT).splitlines() if line != "the process goes on")
    assert first == "imported"
    assert second.startswith("redlock serves one interpreter of a process")
    assert "WSGIApplicationGroup %{GLOBAL}" in second


INTERPRETERS = """
import os, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
def create(isolated):
    if sys.version_info < (3, 13):
        return interpreters.create(isolated=isolated)
    return interpreters.create("isolated" if isolated else "legacy")
"""


def test_an_interpreter_that_its_host_forgets(run: Callable[..., str]) -> None:
    """Python ends a forgotten sub-interpreter after everything else. Its locks end by their ttl."""
    out = run(
        INTERPRETERS
        + """
failed = interpreters.run_string(create(isolated=False), '''
import redlock
redlock.Redlock("memory://").lock("x").acquire()
print("held", flush=True)
''')
assert failed is None, failed
"""
    )
    assert out == "held\n"


def test_isolated_interpreters(run: Callable[..., str]) -> None:
    """Before Python 3.12, isolated interpreters may import any module, but start no thread.

    Since 3.12, they refuse to import extension modules such as redlock's.
    """
    out = run(
        INTERPRETERS
        + """
isolated = create(isolated=True)
failed = interpreters.run_string(isolated, '''
try:
    import redlock
except ImportError as error:
    print(error, flush=True)
else:
    with redlock.lock("x") as lease:
        print("held", flush=True)
''')
assert failed is None, failed
interpreters.destroy(isolated)
"""
    )
    refused = "module redlock._native does not support loading in subinterpreters\n"
    assert out == ("held\n" if sys.version_info < (3, 12) else refused)
