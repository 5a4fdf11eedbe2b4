"""Tests of signals, forks and the end of processes. Each test runs separate Python programs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import redlock
from servers import Server, eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Program


# Who holds a lock


def test_a_time_out_says_which_process_holds_the_lock(own_server: Server, program: Program) -> None:
    holder = program(
        """
import os, redlock
os.environ["REDLOCK_APP"] = "billing"
with redlock.lock("x"):
    print(os.uname().nodename, flush=True)
    input()
""",
        url=own_server.url,
    )
    host = holder.stdout.readline().strip()
    with redlock.Redlock(own_server.url) as client:
        with pytest.raises(redlock.LockTimeout) as caught, client.lock("x", wait=0.2):
            pass
        assert f"is held by pid {holder.pid} (billing) on {host} for " in str(caught.value)
        info = client.lock("x").inspect()
        assert info is not None
        assert (info.host, info.pid, info.app) == (host, holder.pid, "billing")
        assert info.since is not None
        assert abs(time.time() - info.since) < 60


# Signals

WAITER = """
import sys, threading, redlock
def wait():
    try:
        print(redlock.lock("x").acquire(timeout=60), flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
wait()
assert redlock.lock("y").acquire(timeout=0)
sys.exit(redlock.lock("x").acquire(timeout=0) is not None)
"""


def test_ctrl_c_ends_a_wait_and_leaves_nothing(client: redlock.Redlock, server: Server, program: Program) -> None:
    with client.lock("x"):
        process = program(WAITER)
        eventually(lambda: server.listeners("x") == 1)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        # Far less than the 60 s for which the acquire may wait; 50 ms as a rule.
        assert time.monotonic() - sent < 5
        assert process.wait(30) == 0, process.stderr.read()
    eventually(lambda: not server.keys("x"))


def test_ctrl_c_during_a_silent_round_trip(own_server: Server, program: Program) -> None:
    process = program(
        """
import redlock
redlock.lock("x").acquire().release()
print("ready", flush=True)
input()
try:
    print("trying", flush=True)
    redlock.lock("x").acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    input()
""",
        url=own_server.url,
    )
    assert process.stdout.readline() == "ready\n"
    with own_server.frozen():
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "trying\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
    # The server grants the lock once it is thawed, and the client releases it.
    eventually(lambda: not own_server.keys("x"))
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(30) == 0


@pytest.mark.parametrize("kind", ["semaphore('x', 1)", "read_write_lock('x').write()", "lock('x', fair=True)"])
@pytest.mark.parametrize("use", ["lock.__enter__()", "with lock: pass", "lock.acquire()"])
def test_ctrl_c_right_before_the_grant_leaves_nothing(run: Callable[..., str], kind: str, use: str) -> None:
    """The signal comes while the acquire waits, and the grant before the next check for signals, which is 50 ms later.

    The program gets the exception instead of the lease.
    """
    run(
        f"""
import os, signal, threading, time, redlock
ours, theirs = (redlock.Redlock("memory://x").{kind} for _ in range(2))

def interrupt(lease):
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    lease.release()

def use(lock):
    {use}

for _ in range(5):
    held = theirs.acquire(timeout=10)
    assert held, "the lock is free again"
    thread = threading.Thread(target=interrupt, args=(held,))
    try:
        thread.start()
        use(ours)
        thread.join()
        raise SystemExit("no interrupt")
    except KeyboardInterrupt:
        thread.join()
"""
    )


def test_a_signal_handler_may_use_locks_and_fork(client: redlock.Redlock, server: Server, program: Program) -> None:
    with client.lock("x"):
        process = program(
            """
import os, signal, redlock
def handler(*_):
    with redlock.lock("y"):
        child = os.fork()
        if not child:
            try:
                with redlock.lock("z"):
                    os._exit(7)
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
signal.signal(signal.SIGUSR1, handler)
with redlock.lock("x"):
    print("inside", flush=True)
"""
        )
        eventually(lambda: server.listeners("x") == 1)
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.readline() == "7\n"
    assert process.stdout.readline() == "inside\n"
    assert process.wait(30) == 0, process.stderr.read()


# Forks

FORKED = """
import asyncio, multiprocessing, os, sys, warnings
import redlock, redlock.asyncio
warnings.simplefilter("error", ResourceWarning)

def in_child(function):
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 7, code
        return
    try:
        function()
        sys.stdout.flush()
        os._exit(7)
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(1)

async def use(name):
    async with redlock.asyncio.lock(name) as lease:
        assert lease.held

"""


def test_a_child_holds_nothing(run: Callable[..., str], server: Server) -> None:
    run(
        FORKED
        + """
lock = redlock.lock("x")
lease = lock.acquire()

def child():
    assert not lease.held
    assert lease.remaining() == 0
    assert lease.lost.reason == "forked"
    assert lease.lost.wait(5)
    assert not lock.owned()
    assert lock.acquire(timeout=0) is None
    assert redlock.lock("x").inspect().token == lease.token
    assert lease.release() == "lost"
    try:
        lease.check()
    except redlock.LockLost as error:
        assert error.reason == "forked"
    else:
        assert False
    with redlock.lock("y") as own:
        assert own.held
    asyncio.run(use("z"))

for _ in range(10):
    in_child(child)
assert lease.held
lease.check()
assert lock.owned()
assert lock.release() == "released"
"""
    )
    assert not server.keys("x")


def test_a_child_has_an_identity_of_its_own(run: Callable[..., str], server: Server) -> None:
    """The names of the connections of parent and child have their process ids."""
    out = run(
        FORKED
        + """
def pid():
    with redlock.lock("x"):
        return redlock.lock("x").inspect().pid

def child():
    assert pid() == os.getpid() != parent
    print(os.getpid(), flush=True)

parent = os.getpid()
assert pid() == parent
in_child(child)
assert pid() == parent
held = redlock.lock("y").acquire()
"""
    )
    assert int(out) > 0
    assert not server.keys("x")


def test_inherited_blocks(run: Callable[..., str], server: Server) -> None:
    out = run(
        FORKED
        + """
import gc
try:
    with redlock.lock("x") as lease:
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
        assert redlock.lock("x").inspect().token == lease.token
    assert child
except redlock.LockLost as error:
    assert not child
    gc.collect()
    print(error.reason, flush=True)
    os._exit(0)
try:
    with redlock.lock("x") as lease:
        child = os.fork()
        if not child:
            raise ZeroDivisionError
        assert os.waitpid(child, 0)[1] == 0
        assert redlock.lock("x").inspect().token == lease.token
except ZeroDivisionError:
    print("its own error", flush=True)
    os._exit(0)
"""
    )
    assert out == "forked\nits own error\n"
    assert not server.keys("x")


def test_forks_of_forks(run: Callable[..., str], server: Server) -> None:
    out = run(
        FORKED
        + """
def deeper(depth):
    with redlock.lock(f"x{depth}") as lease:
        asyncio.run(use("y"))
        if depth < 4:
            in_child(lambda: deeper(depth + 1))
        assert lease.held
        print(depth)
deeper(0)
"""
    )
    assert out.split() == ["4", "3", "2", "1", "0"]
    assert not server.keys("x*")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(run: Callable[..., str], server: Server, tmp_path: Path, method: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing, sys, redlock

# A use before the child is one of `multiprocessing`.
with redlock.lock("settings"):
    pass

def work(lock, path):
    for _ in range(10):
        with lock:
            with open(path) as file:
                count = int(file.read())
            with open(path, "w") as file:
                file.write(str(count + 1))
    redlock.lock("kept").acquire(timeout=0)

if __name__ == "__main__":
    path = sys.argv[1]
    open(path, "w").write("0")
    context = multiprocessing.get_context(sys.argv[2])
    lock = redlock.lock("x")
    with lock:
        processes = [context.Process(target=work, args=(lock, path)) for _ in range(4)]
        for process in processes:
            process.start()
        assert open(path).read() == "0"
    for process in processes:
        process.join()
        assert process.exitcode == 0
    print(open(path).read())
"""
    )
    runner = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    if method == "fork":
        out = run(runner, str(program), str(tmp_path / "count"), method)
    else:
        # These methods import the main module again, and a program given by `-c` has no such module.
        finished = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "count"), method],
            env={**os.environ, "REDLOCK_URL": server.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert finished.returncode == 0, finished.stderr
        out = finished.stdout
    assert out.strip() == "40"
    # A lock that a child still held when it ended is released too.
    assert not server.keys("x")
    assert not server.keys("kept")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_the_threads_of_a_child_end_before_its_locks(server: Server, tmp_path: Path, method: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        """
import multiprocessing, sys, threading, redlock

def work(held, go):
    def hold():
        with redlock.lock("x") as lease:
            held.set()
            go.wait()
            lease.check()
            print("held", flush=True)
    def wait():
        with redlock.lock("y"):
            print("got it", flush=True)
    for target in (hold, wait):
        threading.Thread(target=target).start()
    held.wait()
    # Python waits for these threads.

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    held, go = context.Event(), context.Event()
    with redlock.lock("y"):
        child = context.Process(target=work, args=(held, go))
        child.start()
        held.wait()
        child.join(1)  # whatever a child does at its end happens by then, or later
        go.set()
    child.join(30)
    assert child.exitcode == 0, child.exitcode
"""
    )
    finished = subprocess.run(
        [sys.executable, str(path), method],
        env={**os.environ, "REDLOCK_URL": server.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    assert sorted(finished.stdout.splitlines()) == ["got it", "held"], finished.stderr


@pytest.mark.parametrize("urls", [["memory://a"], ["memory://a", "memory://b", "memory://c"]])
def test_an_acquire_that_begins_after_the_end_raises_closed(run: Callable[..., str], urls: list[str]) -> None:
    out = run(
        f"""
import asyncio, atexit, redlock, redlock.asyncio

client, other = redlock.Redlock({urls!r}), redlock.asyncio.Redlock({urls!r})

def last():
    try:
        client.lock("x").acquire(timeout=0)
    except redlock.Closed:
        print("closed")
    try:
        asyncio.run(other.lock("x").acquire(timeout=0))
    except redlock.Closed:
        print("closed")

# Before the first use, so that it runs after the end.
atexit.register(last)
client.lock("y").acquire()
asyncio.run(other.lock("z").acquire())
"""
    )
    assert out == "closed\nclosed\n"


def test_a_fork_while_threads_wait(run: Callable[..., str], server: Server) -> None:
    run(
        FORKED
        + """
import threading
stop = threading.Event()
def busy(number):
    while not stop.is_set():
        with redlock.lock(f"b{number % 3}"):
            pass
threads = [threading.Thread(target=busy, args=(number,)) for number in range(6)]
for thread in threads:
    thread.start()

def child():
    with redlock.lock("y"):
        pass
    asyncio.run(use("z"))

for _ in range(30):
    in_child(child)
stop.set()
for thread in threads:
    thread.join()
"""
    )
    assert not server.keys("b?")


def test_a_fork_while_another_thread_makes_its_first_call(run: Callable[..., str], server: Server) -> None:
    run(
        FORKED
        + """
import signal, threading, time
# Threads switch only where one releases the GIL.
sys.setswitchinterval(1000)

def use(name):
    # Ends a child that hangs.
    signal.alarm(60)
    with redlock.lock(name):
        pass

def fork_after(switches):
    thread = threading.Thread(target=use, args=("x",))
    thread.start()
    for _ in range(switches):
        time.sleep(0)
    in_child(lambda: use("y"))
    thread.join()

# Each fork happens in a process that has made no call yet.
for switches in range(40):
    in_child(lambda: fork_after(switches))
"""
    )
    assert not server.keys("[xy]")


def test_a_first_call_imports_nothing_of_ours(run: Callable[..., str]) -> None:
    # If another thread forked during such an import, the import would never end in the child.
    run(
        """
import asyncio, logging, sys, threading
import redlock, redlock.asyncio
imported = []
sys.addaudithook(lambda event, args: event == "import" and imported.append(args[0]))
def use():
    with redlock.lock("x"):
        pass
async def task():
    use()
    async with redlock.asyncio.lock("x"):
        pass
thread = threading.Thread(target=use)
thread.start()
thread.join()
asyncio.run(task())
assert not [name for name in imported if name.startswith("redlock")], imported
"""
    )


def test_a_fork_of_an_event_loop(run: Callable[..., str], server: Server) -> None:
    run(
        FORKED
        + """
async def main():
    async with redlock.asyncio.lock("x") as lease:
        await asyncio.to_thread(in_child, lambda: asyncio.run(use("y")))
        in_child(lambda: None)
        assert lease.held
        async with redlock.asyncio.lock("y"):
            pass
asyncio.run(main())
"""
    )
    assert not server.keys("x")


def test_an_inherited_loop_object_works_in_a_child(run: Callable[..., str]) -> None:
    run(
        FORKED
        + """
loop = asyncio.new_event_loop()
loop.run_until_complete(use("x"))
in_child(lambda: loop.run_until_complete(use("x")))
loop.run_until_complete(use("x"))
loop.close()
"""
    )


# The end


def test_what_is_held_at_exit_is_released(run: Callable[..., str], server: Server) -> None:
    run(
        """
import redlock
client = redlock.Redlock(__import__("os").environ["REDLOCK_URL"])
client.lock("x").acquire()
client.lock("detached").acquire().detach()
client.lock("reserved", ttl=60, owner="me").acquire()
client.lock("fixed", ttl=60).acquire()
client.lock("tick", min_hold=60).acquire()
"""
    )
    info = redlock.Redlock(server.url).lock("tick").inspect()
    assert info is not None
    assert info.kind == "rest", "released as any other, and taken until its least hold is over"
    assert not server.keys("x")
    assert not server.keys("fixed")
    assert server.keys("detached")
    assert server.keys("reserved")


def test_exit_with_a_frozen_server(own_server: Server, program: Program) -> None:
    process = program(
        'import redlock; redlock.lock("x").acquire(); print("held", flush=True); input()', url=own_server.url
    )
    assert process.stdout.readline() == "held\n"
    with own_server.frozen():
        ended = time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(30) == 0
        # The exit waits one second for the release; the rest is the end of the interpreter.
        assert time.monotonic() - ended < 10


@pytest.mark.parametrize("end", ["return", "exit", "sigterm"])
def test_exit_with_daemon_threads_in_acquire(client: redlock.Redlock, server: Server, program: Program, end) -> None:
    # A lock for each thread, so that the server knows of each that it waits: one that begins only at the exit fails.
    names = [f"x{number}" for number in range(8)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(client.lock(name))
        process = program(
            """
import sys, threading, redlock
for number in range(8):
    threading.Thread(target=redlock.lock(f"x{number}").acquire, daemon=True).start()
print("started", flush=True)
if input() == "exit":
    sys.exit(3)
"""
        )
        assert process.stdout.readline() == "started\n"
        for name in names:
            eventually(lambda name=name: server.listeners(name) == 1)
        if end == "sigterm":
            process.terminate()
        else:
            process.stdin.write(f"{end}\n")
            process.stdin.flush()
        assert process.wait(30) == {"return": 0, "exit": 3, "sigterm": -signal.SIGTERM}[end]
        assert process.stderr.read() == ""
    for name in names:
        eventually(lambda name=name: not server.keys(name))


CANCELLED_AT_THE_END = """
import asyncio, os, sys
import redlock.asyncio
async def main():
    lock = redlock.asyncio.lock(sys.argv[1])
    await (await redlock.asyncio.lock("warm-up").acquire()).release()
    task = asyncio.ensure_future(lock.acquire())
    for _ in range(int(sys.argv[2])):
        await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""


def test_an_acquire_cancelled_right_before_exit_leaves_nothing(run: Callable[..., str], server: Server) -> None:
    for turns in range(8):
        run(CANCELLED_AT_THE_END, f"late-{turns}", str(turns))
        assert not server.keys(f"late-{turns}")


def test_an_idle_client_keeps_no_process_alive(run: Callable[..., str]) -> None:
    out = run(
        """
import asyncio, redlock, redlock.asyncio
client = redlock.Redlock(__import__("os").environ["REDLOCK_URL"])
with client.lock("x"):
    pass
async def main():
    async with redlock.asyncio.lock("x"):
        pass
asyncio.run(main())
print("done")
"""
    )
    assert out == "done\n"


def test_the_last_lines_are_logged(run: Callable[..., str]) -> None:
    out = run(
        """
import logging, sys, redlock
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
client = redlock.Redlock("memory://")
for number in range(1000):
    client.lock(f"x{number}").acquire()
"""
    )
    for number in range(1000):
        assert f'lock "x{number}" with token' in out
    assert out.count("was lost: closed\n") == 1000


def test_a_log_that_hangs_does_not_hang_the_end(program: Program) -> None:
    process = program(
        """
import logging, threading, redlock
from redlock import _process
_process._PATIENCE = 0.1
logging.getLogger("redlock").addFilter(lambda record: threading.Event().wait())
logging.getLogger("redlock").setLevel(logging.DEBUG)
redlock.lock("x").acquire()
"""
    )
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


def test_a_first_use_at_the_end(run: Callable[..., str]) -> None:
    """A first call in an exit handler works, although Python 3.12 and newer cannot start a thread then."""
    out = run(
        """
import atexit, redlock
def last():
    with redlock.lock("x") as lease:
        print(lease.held)
atexit.register(last)
"""
    )
    assert out == "True\n"


def test_what_a_first_use_at_the_end_acquires_is_released(run: Callable[..., str], server: Server) -> None:
    run(
        """
import atexit, redlock
atexit.register(lambda: redlock.lock("x").acquire())
"""
    )
    assert not server.keys("x")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the threads of the process in /proc")
def test_importing_starts_nothing(run: Callable[..., str]) -> None:
    out = run(
        """
import threading, os
import redlock
redlock.Redlock("redis://127.0.0.1:1").lock("x")
print(len(os.listdir("/proc/self/task")), threading.active_count())
"""
    )
    assert out.split() == ["1", "1"]


@pytest.mark.parametrize(("module", "needs"), [("redlock", "sys"), ("redlock.asyncio", "asyncio")])
def test_importing_imports_nothing_else(run: Callable[..., str], module: str, needs: str) -> None:
    """Importing redlock imports no module that it does not need, so that a program starts fast.

    `typing` alone takes milliseconds. `atexit` is a part of the interpreter.
    """
    out = run(f"import sys, {needs}; before = set(sys.modules); import {module}; print(*(set(sys.modules) - before))")
    assert {name for name in out.split() if name.partition(".")[0] != "redlock"} <= {"__future__", "atexit"}


def test_a_python_that_is_too_old(program: Program) -> None:
    process = program("import sys; sys.version_info = (3, 9, 18); import redlock")
    assert process.wait(30) == 1
    *_, last = process.stderr.read().splitlines()
    assert last == "ImportError: redlock needs Python 3.10 or newer; this is Python 3.9"


def test_without_forks(run: Callable[..., str]) -> None:
    """The library works without forks, as on Windows: there, event loops cannot watch descriptors either.

    The locks of Python there have no method for forks.
    """
    out = run(
        """
import os
del os.fork, os.forkpty, os.register_at_fork, os.set_blocking
import _thread, threading

class WindowsLock:
    def __init__(self, make=_thread.allocate_lock):
        lock = make()
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

_thread.allocate_lock = threading.Lock = WindowsLock
import asyncio, redlock, redlock.asyncio, redlock.compat.redis_py.asyncio

class Proactor(asyncio.SelectorEventLoop):
    def add_reader(self, fd, callback, *args):
        if getattr(callback, "__self__", None) is not self:
            raise NotImplementedError
        return super().add_reader(fd, callback, *args)

async def main():
    async with redlock.asyncio.lock("x") as lease:
        print(lease.held)
        assert await redlock.asyncio.lock("x").locked()

with redlock.lock("x") as lease:
    print(lease.held)
loop = Proactor()
loop.run_until_complete(main())
loop.close()
"""
    )
    assert out.split() == ["True", "True"]
