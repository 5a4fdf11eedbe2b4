"""Tests of blocked event loops: synchronous code blocks the thread while tasks or greenlets wait for a lock.

If the lock is released meanwhile, other waiters get it. The loop's tasks get it once the loop runs again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from servers import Server, eventually

if TYPE_CHECKING:
    import subprocess

    import redlock
    from conftest import Program

# In seconds. The loop is blocked for LONG if nobody else gets the lock. SOON is far less; others get it after some 5 s.
LONG = 40
SOON = 20

WORLD = f"""
import asyncio, sys, threading
import redlock, redlock.asyncio

def stand_still():
    over = threading.Event()
    def use():
        with redlock.lock("x"):
            print("a thread", flush=True)
    threading.Thread(target=use, daemon=True).start()
    threading.Thread(target=lambda: (input(), over.set()), daemon=True).start()
    print("stands still", flush=True)
    assert over.wait({LONG}), "waited in vain"
"""

# An acquire waits, and the loop runs until the test writes a line. Then `{blocked}` blocks the loop; after that, the
# acquire succeeds.
ASYNCIO = """
async def main():
    task = asyncio.create_task(redlock.asyncio.lock("x").acquire())
    await asyncio.to_thread(input)
    {blocked}
    assert not task.done()
    lease = await asyncio.wait_for(task, 30)
    assert lease.held and await lease.release() == "released"
asyncio.run(main())
print("went on", flush=True)
"""
GEVENT = """
import gevent
task = gevent.spawn(redlock.lock("x").acquire)
gevent.get_hub().threadpool.apply(input)
{blocked}
assert not task.ready()
lease = task.get(timeout=30)
assert lease.held and lease.release() == "released"
print("went on", flush=True)
"""
EVENTLET = """
import eventlet, eventlet.tpool
task = eventlet.spawn(redlock.lock("x").acquire)
eventlet.tpool.execute(input)
{blocked}
with eventlet.Timeout(30):
    lease = task.wait()
assert lease.held and lease.release() == "released"
print("went on", flush=True)
"""


def go_on(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.parametrize("loop", [ASYNCIO, GEVENT, EVENTLET], ids=["asyncio", "gevent", "eventlet"])
def test_a_loop_that_stands_still_holds_up_nobody_and_goes_on(
    client: redlock.Redlock, server: Server, program: Program, loop: str
) -> None:
    with client.lock("x"):
        process = program(WORLD + loop.format(blocked="stand_still()"))
        eventually(lambda: server.listeners("x") == 1)
        go_on(process)
        assert process.stdout.readline() == "stands still\n"
    released = time.monotonic()
    # The lock goes to a thread with the same client, and then to another process.
    assert process.stdout.readline() == "a thread\n", process.stderr.read()
    with client.lock("x", wait=LONG):
        assert time.monotonic() - released < SOON
    go_on(process)
    assert process.stdout.readline() == "went on\n", process.stderr.read()
    assert process.wait(30) == 0
    assert not server.keys("x")


@pytest.mark.parametrize("granted", [False, True], ids=["held", "granted"])
def test_a_thread_that_blocks_goes_ahead_of_the_tasks_it_stops(
    client: redlock.Redlock, server: Server, program: Program, granted: bool
) -> None:
    # The blocking call has the same lock, client and thread as the task. Greenlets have no such case: a call in one
    # greenlet lets the others run.
    blocked = """
    print("blocks", flush=True)
    if sys.argv[1] == "True":
        input()
    lease = redlock.lock("x", wait=5).acquire()
    assert lease is not None, "timed out"
    assert lease.release() == "released"
"""
    held = client.lock("x").acquire()
    process = program(WORLD + ASYNCIO.format(blocked=blocked.strip()), str(granted))
    eventually(lambda: server.listeners("x") == 1)
    go_on(process)
    assert process.stdout.readline() == "blocks\n"
    if not granted:
        # Released while the blocking call itself waits.
        time.sleep(0.5)
    held.release()
    if granted:
        # The lock is granted to the task, which cannot collect it.
        eventually(lambda: server.keys("x"))
        go_on(process)
    assert process.stdout.readline() == "went on\n", process.stderr.read()
    assert process.wait(30) == 0
    assert not server.keys("x")
