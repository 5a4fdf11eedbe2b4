"""Tests of greenlets of gevent and eventlet. Each test runs one program for each way to use these libraries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from servers import Server, eventually, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redlock
    from conftest import Program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="greenlets block there, as threads do")

# The first two arguments of a program are the library and the scope of its patches: everything ("all"), everything
# except threads ("thread=False"), nothing ("none"), or everything after the import of `redlock` ("late").
WORLD = """
import faulthandler, os, signal, sys, time
faulthandler.dump_traceback_later(20, exit=True)
library, patched = sys.argv[1:3]
native_sleep = time.sleep
if patched == "late":
    import redlock
    patched = "all"
if library == "gevent":
    if patched != "none":
        import gevent.monkey
        gevent.monkey.patch_all(thread=patched == "all")
    import gevent, gevent.event
    from gevent import Timeout, kill, sleep, spawn
    from gevent.event import Event

    def join(greenlets):
        gevent.joinall(greenlets, timeout=30, raise_error=True)
        assert all(greenlet.dead for greenlet in greenlets)
else:
    import eventlet
    if patched != "none":
        eventlet.monkey_patch(**({} if patched == "all" else {"thread": False}))
    from eventlet import Timeout, kill, sleep, spawn
    from eventlet.green.threading import Event

    def join(greenlets):
        with Timeout(30):
            for greenlet in greenlets:
                greenlet.wait()

import redlock

def says(kind, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")

def until(condition):
    with Timeout(30):
        while not condition():
            sleep(0.005)

"""

WORLDS = [
    ("gevent", "all"),
    ("gevent", "thread=False"),
    ("gevent", "none"),
    ("gevent", "late"),
    ("eventlet", "all"),
    ("eventlet", "thread=False"),
    ("eventlet", "none"),
]
FEW = [("gevent", "all"), ("gevent", "none"), ("eventlet", "all")]


def worlds(some: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("library", "patched"), some)


@worlds(WORLDS)
def test_greenlets_exclude_each_other_and_each_may_nest(
    run: Callable[..., str], library: str, patched: str, server: Server
) -> None:
    run(
        WORLD
        + """
lock, inside, order = redlock.lock("x"), [], []
def work(number):
    with lock as lease:
        inside.append(number)
        with redlock.lock("x") as nested:
            assert nested.token == lease.token
            sleep(0)
        sleep(0)
        assert lock.owned() and lease.held
        assert inside == [number], inside
        inside.remove(number)
        order.append(lease.token)
    assert not lock.owned()
workers = [spawn(work, number) for number in range(8)]
with lock:
    # The main greenlet excludes the others, too.
    assert not inside
    sleep(0)
    assert not inside
join(workers)
assert order == sorted(order) and len(set(order)) == 8
assert not lock.locked()
""",
        library,
        patched,
    )
    assert not server.keys("x")


@worlds(WORLDS)
def test_a_waiting_greenlet_stops_no_other(run: Callable[..., str], library: str, patched: str) -> None:
    run(
        WORLD
        + """
lock, other = redlock.lock("x"), redlock.lock("y")
held, asks, goes_on, done = Event(), Event(), Event(), []
def holder():
    with lock:
        held.set()
        assert goes_on.wait(30)
        assert lock.owned()
def waiter():
    held.wait()
    # Another greenlet holds the lock.
    assert not lock.owned()
    assert lock.acquire(timeout=0) is None
    says(redlock.NotHeld, lock.release)
    assert lock.acquire(timeout=0.01) is None
    asks.set()
    with lock as lease:
        assert goes_on.is_set()
        assert not lease.lost.wait(0.01)
    done.append("waiter")
def worker():
    asks.wait()
    # The waiter waits, and the calls of this greenlet get their replies.
    with other:
        assert lock.locked() and lock.inspect() and other.owned()
    goes_on.set()
    done.append("worker")
join([spawn(function) for function in (waiter, worker, holder)])
assert done == ["worker", "waiter"], done
""",
        library,
        patched,
    )


def test_the_loop_of_a_hub_has_no_tasks_of_greenlets(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setenv("EVENTLET_HUB", "asyncio")
    run(
        WORLD
        + """
import asyncio, redlock.asyncio
from eventlet.asyncio import spawn_for_awaitable
lock, inside = redlock.lock("x"), []
def work():
    with lock, lock:
        assert not inside
        inside.append(1)
        sleep(0)
        inside.pop()
async def task():
    # The owner is the task.
    async with redlock.asyncio.lock("x") as lease:
        assert not inside
        inside.append(1)
        await asyncio.sleep(0)
        inside.pop()
        return lease.token
tasks = [spawn_for_awaitable(task()) for _ in range(3)]
workers = [spawn(work) for _ in range(3)]
join(workers + tasks)
assert not inside and not lock.owned()
""",
        "eventlet",
        "all",
    )
    assert not server.keys("x")


# Giving up

GIVEN_UP = """
lock = redlock.lock("x")
def wait(gave_up):
    try:
        lock.acquire()
    finally:
        gave_up.append(1)
gave_up = []
waiters = [spawn(wait, gave_up) for _ in range(2)]
def hurried():
    with Timeout(0.05):
        lock.acquire()
says(Timeout, hurried)
for waiter in waiters:
    kill(waiter)
until(lambda: len(gave_up) == 2)
print("gave up", flush=True)
"""


@worlds(FEW)
@pytest.mark.parametrize("afterwards", ["goes on", "blocks"])
def test_a_wait_that_is_killed_or_timed_out_leaves_nothing(
    client: redlock.Redlock, server: Server, program: Program, library: str, patched: str, afterwards: str
) -> None:
    end = "until(lambda: os.path.exists(sys.argv[3]))" if afterwards == "goes on" else "sys.stdin.readline()"
    with client.lock("x") as lease:
        process = program(WORLD + GIVEN_UP + end, library, patched, "/dev/null/never")
        assert process.stdout.readline() == "gave up\n", process.stderr.read()
        eventually(lambda: server.listeners("x") == 0)
        assert lease.held
    assert client.lock("x").acquire(timeout=0).release() == "released"
    assert not server.keys("x")
    assert process.poll() is None


@worlds(FEW)
@pytest.mark.parametrize("afterwards", ["goes on", "blocks"])
def test_a_request_under_way_is_undone_when_its_greenlet_is_killed(
    own_server: Server, program: Program, library: str, patched: str, afterwards: str
) -> None:
    end = "until(lambda: False)" if afterwards == "goes on" else "native_sleep(30)"
    process = program(
        WORLD
        + """
lock = redlock.lock("x")
# Makes the connection.
join([spawn(lambda: lock.acquire().release())])
print("ready", flush=True)
sys.stdin.readline()
waiter = spawn(lock.acquire)
sleep(0)
kill(waiter)
until(lambda: waiter.dead)
print("killed", flush=True)
"""
        + end,
        library,
        patched,
        url=own_server.url,
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()
    token = own_server.command("GET", "redlock_token:{x}")
    with own_server.frozen():
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "killed\n", process.stderr.read()
    # The server grants the lock once it is thawed, and the client releases it long before its ttl is over.
    eventually(lambda: own_server.command("GET", "redlock_token:{x}") != token)
    eventually(lambda: not own_server.keys("x"))
    assert process.poll() is None


@worlds([("gevent", "all"), ("eventlet", "all")])
def test_ctrl_c_ends_a_wait_and_leaves_nothing(
    client: redlock.Redlock, server: Server, program: Program, library: str, patched: str
) -> None:
    with client.lock("x"):
        process = program(
            WORLD
            + """
other = spawn(lambda: until(lambda: False))
try:
    redlock.lock("x").acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert redlock.lock("x").acquire(timeout=0) is None
""",
            library,
            patched,
        )
        eventually(lambda: server.listeners("x") == 1)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", process.stderr.read()
        assert process.wait(30) == 0, process.stderr.read()
    assert not server.keys("x")


@worlds(FEW)
def test_a_release_goes_out_when_its_greenlet_is_killed(
    own_server: Server, program: Program, library: str, patched: str
) -> None:
    process = program(
        WORLD
        + """
lock, held, stays = redlock.lock("x"), Event(), Event()
def work():
    with lock:
        held.set()
        stays.wait()
# The greenlet is killed in its block.
worker = spawn(work)
held.wait()
kill(worker)
until(lambda: worker.dead)
assert not lock.locked()
# The greenlet is killed in its release.
held = Event()
worker = spawn(work)
held.wait()
print("held", flush=True)
sys.stdin.readline()
stays.set()
until(lambda: not lock.owned() and held.is_set())
sleep(0.01)
kill(worker)
until(lambda: worker.dead)
print("killed", flush=True)
until(lambda: not lock.locked())
print("free", flush=True)
""",
        library,
        patched,
        url=own_server.url,
    )
    assert process.stdout.readline() == "held\n", process.stderr.read()
    with own_server.frozen():
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "killed\n", process.stderr.read()
    assert process.stdout.readline() == "free\n", process.stderr.read()
    assert process.wait(30) == 0, process.stderr.read()


# Renewals, logging, the end of a process, native threads and forks


@worlds(FEW)
def test_the_watchdog_renews_while_greenlets_are_busy_and_wait(
    run: Callable[..., str], library: str, patched: str
) -> None:
    run(
        WORLD
        + """
redlock.configure(watchdog=1.5)
lock, held, over = redlock.lock("x"), Event(), []
def holder():
    with lock as lease, redlock.lock("y"):
        held.set()
        # For twice the lease, no greenlet runs.
        native_sleep(3)
        assert lease.held
        sleep(1.8)
        assert lease.held
        over.append(1)
def waiter():
    held.wait()
    with redlock.lock("y") as lease:
        assert over
join([spawn(holder), spawn(waiter)])
""",
        library,
        patched,
    )


@worlds(WORLDS)
def test_what_happens_is_logged(run: Callable[..., str], library: str, patched: str) -> None:
    out = run(
        WORLD
        + """
import logging
class Kept(logging.Handler):
    lines = []
    def emit(self, record):
        # A handler may wait, as one that sends over a network does.
        sleep(0) if patched == "all" else None
        self.lines.append(record.getMessage())
logging.getLogger("redlock").addHandler(Kept())
logging.getLogger("redlock").setLevel(logging.DEBUG)
def work():
    with redlock.lock("x"):
        until(lambda: any("acquired" in line for line in Kept.lines))
join([spawn(work) for _ in range(2)])
until(lambda: sum("released" in line for line in Kept.lines) == 2)
if library == "gevent":
    # `gevent.wait` does not wait for the greenlet that logs.
    assert gevent.wait(timeout=30)
# The last records are logged at the end of the process.
redlock.lock("y").acquire()
import atexit
atexit.register(print, "logged", flush=True)
class Printed(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), flush=True)
logging.getLogger("redlock").addHandler(Printed())
""",
        library,
        patched,
    )
    assert "released" in out or "lost" in out or "closed" in out, out


@worlds(WORLDS)
def test_the_end_of_the_process_releases(run: Callable[..., str], server: Server, library: str, patched: str) -> None:
    started = time.monotonic()
    run(
        WORLD
        + """
held = Event()
def work():
    with redlock.lock("x"):
        held.set()
        Event().wait()
worker = spawn(work)
held.wait()
waiter = spawn(redlock.lock("x").acquire)
mine = redlock.lock("y").acquire()
assert mine.held
""",
        library,
        patched,
    )
    # The end of the process waits for no thread or greenlet.
    assert time.monotonic() - started < 5
    assert not server.keys("[xy]")


@worlds(FEW)
def test_a_lock_of_a_greenlet_that_ended_ends(run: Callable[..., str], library: str, patched: str) -> None:
    run(
        WORLD
        + """
redlock.configure(watchdog=0.4)
def work():
    redlock.lock("x").acquire()
worker = spawn(work)
join([worker])
# A reference to the greenlet, as for its result, does not keep its lock.
until(lambda: not redlock.lock("x").locked())
assert worker.dead
""",
        library,
        patched,
    )


@worlds([("gevent", "all"), ("gevent", "none"), ("eventlet", "all"), ("eventlet", "none")])
def test_native_threads_and_the_hub_itself(run: Callable[..., str], library: str, patched: str) -> None:
    run(
        WORLD
        + """
if library == "gevent":
    in_thread = gevent.get_hub().threadpool.apply
    in_hub = gevent.get_hub().loop.run_callback
else:
    import eventlet.hubs, eventlet.tpool
    in_thread = eventlet.tpool.execute
    in_hub = lambda function: eventlet.hubs.get_hub().schedule_call_global(0, function)
lock = redlock.lock("x")
def native():
    with lock:
        assert lock.owned()
        return True
# The first use.
assert in_thread(native)
def tried():
    assert lock.acquire(timeout=0) is None and not lock.owned()
    return True
with lock:
    assert in_thread(tried)
asked = Event()
def waiting():
    asked.set()
    return in_thread(native)
with lock:
    waiter = spawn(waiting)
    asked.wait()
join([waiter])
# A call in the hub blocks the hub, and raises WouldDeadlock if it would block for ever.
results = []
def hub():
    with lock:
        results.append(lock.owned())
in_hub(hub)
until(lambda: results)
with lock:
    results = []
    in_hub(lambda: results.append(says(redlock.WouldDeadlock, lock.acquire)))
    until(lambda: results)
assert not lock.locked()
""",
        library,
        patched,
    )


@worlds([("gevent", "all"), ("gevent", "thread=False"), ("eventlet", "all")])
def test_a_child_holds_nothing_and_may_lock(
    run: Callable[..., str], server: Server, library: str, patched: str
) -> None:
    run(
        WORLD
        + """
lock, held, waits, forks = redlock.lock("x"), Event(), Event(), Event()
def child(lease):
    signal.alarm(20)
    assert not lease.held and lease.lost.reason == "forked" and not lock.owned()
    assert lock.acquire(timeout=0) is None
    if library == "gevent":
        # The child has copies of the other greenlets: the one that waited gets LockLost.
        until(lambda: told)
        assert told[0].reason == "forked", told
    inside = []
    def work():
        with redlock.lock("y"):
            assert not inside
            inside.append(1)
            sleep(0)
            inside.pop()
    join([spawn(work) for _ in range(3)])
told = []
def wait():
    waits.set()
    try:
        lock.acquire().release()
    except redlock.LockLost as error:
        told.append(error)
def fork():
    with lock as lease:
        held.set()
        waits.wait()
        sleep(0)
        pid = os.fork()
        if not pid:
            code = 1
            try:
                child(lease)
                code = 7
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(code)
        ended = []
        def look():
            ended[:] = [status for found, status in [os.waitpid(pid, os.WNOHANG)] if found]
            return ended
        until(look)
        assert os.waitstatus_to_exitcode(ended[0]) == 7, ended
        assert lease.held and lock.owned()
forker = spawn(fork)
held.wait()
waiter = spawn(wait)
join([forker, waiter])
assert not told
assert not lock.locked()
""",
        library,
        patched,
    )
    assert not server.keys("[xy]")


# With other libraries


@worlds(FEW)
def test_the_drop_in_for_redis_py(run: Callable[..., str], server: Server, library: str, patched: str) -> None:
    run(
        WORLD
        + """
import redis
from redlock.compat.redis_py import Lock
client = redis.Redis.from_url(os.environ["REDLOCK_URL"])
lock, inside = Lock(client, "x", timeout=30), []
def work():
    with lock:
        assert not inside
        inside.append(1)
        sleep(0)
        assert lock.owned()
        inside.pop()
join([spawn(work) for _ in range(4)])
held = Event()
def other():
    held.wait()
    # The other greenlet's token is not this one's, although both share the thread and the lock object.
    assert lock.local.token is None and not lock.owned()
    assert lock.acquire(blocking=False) is False
    says(redis.exceptions.LockError, lock.release)
    inside.append(1)
def holder():
    with lock:
        held.set()
        until(lambda: inside)
join([spawn(other), spawn(holder)])
assert not lock.locked()
""",
        library,
        patched,
    )
    assert not server.keys("x")


def test_many_clients_and_a_quorum(tmp_path: Path, run: Callable[..., str]) -> None:
    # The background makes the calls of a quorum.
    for each in "abc":
        (tmp_path / each).mkdir()
    with Server(tmp_path / "a") as a, Server(tmp_path / "b") as b, Server(tmp_path / "c") as c:
        run(
            WORLD
            + """
client = redlock.Redlock(os.environ["REDLOCK_URL"].split(","), quarantine=False)
assert all(status.ok for status in client.ping())
client.init_nodes()
lock, inside = client.lock("x"), []
def work():
    with lock as lease, lock:
        assert not inside
        inside.append(1)
        lease.extend(20)
        inside.pop()
join([spawn(work) for _ in range(4)])
text = lock.acquire().detach()
assert client.force_release("x")
# The third node may grant the lock after the other two have force-released it.
until(lambda: not client.force_release("x"))
says(redlock.LockLost, client.attach, text)
text = lock.acquire().detach()
assert client.attach(text).release() == "released"
client.close()
says(redlock.Closed, lock.acquire)
""",
            "gevent",
            "all",
            url=",".join(server.url for server in (a, b, c)),
        )


APPLICATION = """
import json, os
import redlock

inside = 0
lock = redlock.lock("x")
gathered = 0

def application(environ, start_response):
    global inside, gathered
    import gevent
    gathered += 1
    while gathered < 4:
        # Waits until all four requests are under way.
        gevent.sleep(0.005)
    with lock as lease:
        assert inside == 0
        inside += 1
        with redlock.lock("x"):
            gevent.sleep(0.005)
        body = json.dumps({"token": lease.token, "inside": inside, "pid": os.getpid()}).encode()
        inside -= 1
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture
def gunicorn(server: Server, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    (tmp_path / "locking.py").write_text(APPLICATION)
    port = free_port()
    command = ["-m", "gunicorn", "--worker-class", "gevent", "--bind", f"127.0.0.1:{port}", "--chdir", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, *command, "--graceful-timeout", "10", "locking:application"],
        env={**os.environ, "REDLOCK_URL": server.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process, f"http://127.0.0.1:{port}/"
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_gunicorn_with_greenlets(gunicorn: tuple[subprocess.Popen[str], str], server: Server) -> None:
    process, url = gunicorn
    ready = threading.Event()
    lines: list[str] = []

    def read() -> None:
        for line in process.stderr:
            lines.append(line)
            if "Booting worker" in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert ready.wait(30), lines
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: json.load(urlopen(url, timeout=30)), range(4)))
        assert len({answer["token"] for answer in answers}) == 4
        assert {answer["inside"] for answer in answers} == {1}
        assert len({answer["pid"] for answer in answers}) == 1
        assert not server.keys("x")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, lines
    finally:
        process.kill()
        reader.join(30)
    assert not [line for line in lines if "Traceback" in line or "Exception ignored" in line], lines
