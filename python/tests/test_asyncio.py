"""Tests of locks in event loops: tasks as owners, cancellation, and kinds of loops."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import random
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest

import redlock
import redlock.asyncio as aredlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server


async def until(condition, within: float = 10.0) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def test_surface(server: Server) -> None:
    async def main() -> None:
        async with aredlock.Redlock(server.url) as client:
            lock = client.lock("x")
            async with lock as lease:
                assert lease.held
                assert 0 < lease.remaining() <= 27
                assert lease.name == lock.name == "x"
                assert lock.owned()
                assert await lock.locked()
                info = await lock.inspect()
                assert info is not None
                assert (info.owner, info.token) == (lease.owner, lease.token)
                async with client.lock("x") as nested:
                    assert nested.token == lease.token
                await lease.extend(40)
                assert lease.remaining() > 30
                lease.check()
                assert not lease.lost
                assert lease.lost.reason is None
                assert repr(lease) == f"<redlock.asyncio.Lease 'x' token={lease.token} held>"
            assert not lease.held
            assert not await lock.locked()
            lease = await lock.acquire()
            assert lease is not None
            assert await lock.release() == "released"
            assert await lease.release() == "released"
            with pytest.raises(redlock.NotHeld):
                await lock.release()
            with pytest.raises(redlock.NotHeld):
                lease.check()
            lease = await lock.acquire(blocking=False)
            assert lease is not None
            text = lease.detach()
            attached = await client.attach(text)
            assert attached.token == lease.token
            with pytest.raises(redlock.LockLost):
                await client.attach(text)
            assert await client.force_release("x")
            assert not await client.force_release("x")
            assert [status.ok for status in await client.ping()] == [True]
            await client.init_nodes()
            assert repr(client) == f"redlock.asyncio.Redlock(['127.0.0.1:{server.port}'])"
            assert repr(lock) == f"<redlock.asyncio.Lock 'x' of {client!r}>"
        with pytest.raises(redlock.Closed):
            await lock.acquire()

    asyncio.run(main())


def test_waiting(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)

        async def other() -> None:
            assert await client.lock("x").acquire(blocking=False) is None
            assert await client.lock("x").acquire(timeout=0) is None
            assert await client.lock("x").acquire(timeout=0.05) is None
            assert await client.lock("x", wait=0.05).acquire() is None
            with pytest.raises(redlock.LockTimeout):
                async with client.lock("x", wait=0.05):
                    pytest.fail("two are inside")

        async with client.lock("x"):
            await asyncio.create_task(other())
        assert await client.lock("x", wait=0).acquire(timeout=-1)

    asyncio.run(main())


def test_tasks_exclude_each_other(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)
        shared = client.lock("x")
        inside = entries = 0

        async def work(number: int) -> None:
            nonlocal inside, entries
            lock = shared if number % 2 else client.lock("x")
            for _ in range(5):
                async with lock:
                    inside += 1
                    entries += 1
                    assert inside == 1
                    await asyncio.sleep(0)
                    assert lock.owned()
                    inside -= 1

        await asyncio.gather(*map(work, range(20)))
        assert entries == 100

    asyncio.run(main())
    assert not server.keys("x")


def test_the_task_that_calls_acquire_is_the_owner(server: Server) -> None:
    async def main() -> None:
        lock = aredlock.Redlock(server.url).lock("x")
        lease = await asyncio.wait_for(lock.acquire(), 10)
        assert lease is not None
        assert lock.owned()
        assert await asyncio.wait_for(lock.acquire(), 10)
        nested = await asyncio.create_task(lock.acquire())
        assert nested is not None
        assert nested.token == lease.token
        for _ in range(3):
            assert await lock.release() == "released"
        assert not lock.owned()

    asyncio.run(main())


def test_the_task_that_calls_release_is_the_owner(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)
        for lock in (client.lock("x"), client.semaphore("y", 1)):
            for wrap in (asyncio.shield, asyncio.create_task, lambda release: asyncio.wait_for(release, 10)):
                assert await lock.acquire()
                assert await wrap(lock.release()) == "released"
                assert not await lock.locked()

    asyncio.run(main())


def test_a_call_from_outside_of_a_loop_belongs_to_the_task_that_awaits_it(server: Server) -> None:
    lock = aredlock.Redlock(server.url).lock("x")
    call = lock.acquire()

    async def main() -> None:
        assert await call
        assert lock.owned()
        assert await lock.release() == "released"

    asyncio.run(main())


def test_children_do_not_inherit_a_lock(server: Server) -> None:
    async def main() -> None:
        lock = aredlock.Redlock(server.url).lock("x")

        async def child() -> None:
            assert not lock.owned()
            assert await lock.acquire(blocking=False) is None
            with pytest.raises(redlock.NotHeld):
                await lock.release()

        async with lock:
            await asyncio.create_task(child())

    asyncio.run(main())


def test_a_lease_can_be_released_by_any_task(server: Server) -> None:
    async def main() -> None:
        lock = aredlock.Redlock(server.url).lock("x")
        lease = await asyncio.create_task(lock.acquire())
        assert lease is not None

        async def release() -> str:
            return await lease.release()

        assert await asyncio.create_task(release()) == "released"

    asyncio.run(main())
    assert not server.keys("x")


def test_loss(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)
        lease = await client.lock("x", ttl=0.1).acquire()
        assert lease is not None
        assert await lease.wait_lost()
        assert lease.lost.is_set()
        assert lease.lost.reason == "expired"
        assert await lease.release() == "lost"
        with pytest.raises(redlock.LockLost):
            async with client.lock("y"):
                server.cli("DEL", "y")
        with pytest.raises(ZeroDivisionError):
            async with client.lock("y"):
                server.cli("DEL", "y")
                raise ZeroDivisionError
        async with client.lock("z") as lease:
            waiting = asyncio.create_task(lease.wait_lost())
            abandoned = asyncio.create_task(lease.lost.wait())
            await asyncio.sleep(0)
            abandoned.cancel()
        assert await waiting is False

    asyncio.run(main())


@pytest.mark.parametrize("block", [time.sleep, lambda seconds: ctypes.PyDLL(None).usleep(int(seconds * 1e6))])
def test_a_blocked_loop_keeps_its_lock(server: Server, block: Callable[[float], object]) -> None:
    """A loop that is blocked for three times the lease keeps its lock, even if C code holds the GIL all the time.

    A renewal needs neither the loop nor the GIL.
    """

    async def main() -> None:
        async with aredlock.Redlock(server.url, watchdog=1.5) as client, client.lock("x") as lease:
            block(4.5)
            assert lease.held
            assert server.cli("EXISTS", "x") == "1"

    asyncio.run(main())


@pytest.mark.parametrize(
    "make",
    [lambda client: client.semaphore("x", 3), lambda client: client.read_write_lock("x").read()],
    ids=["semaphore", "readers"],
)
def test_a_generator_that_another_task_ends_gives_back_its_own(server: Server, make) -> None:
    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url) as client:
            lock = make(client)

            async def holding():
                async with lock as lease:
                    while True:
                        yield lease

            generator, stack = holding(), contextlib.AsyncExitStack()
            theirs = await asyncio.create_task(generator.__anext__())
            entered = await asyncio.create_task(stack.enter_async_context(lock))
            async with lock as mine:
                await generator.aclose()
                assert (theirs.held, entered.held, mine.held) == (False, True, True)
                await stack.aclose()
                assert (entered.held, mine.held) == (False, True)
                abandoned = [holding()]
                theirs = await abandoned[0].__anext__()
                abandoned.clear()
                # The loop ends it in a task of its own.
                await until(lambda: not theirs.held)
                assert mine.held
            assert not mine.held

    asyncio.run(main())


def test_an_error_of_the_body_is_not_masked_by_a_detached_lease(server: Server) -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with aredlock.Redlock(server.url).lock("x") as lease:
                lease.detach()
                raise ZeroDivisionError

    asyncio.run(main())


def test_decorator(server: Server) -> None:
    async def main() -> None:
        lock = aredlock.Redlock(server.url).lock("x")

        @lock
        async def work(a: int) -> tuple[int, bool]:
            """Work."""
            return a, lock.owned()

        assert await work(1) == (1, True)
        assert work.__name__ == "work"
        with pytest.raises(redlock.InvalidArgument):
            lock(lambda: None)

    asyncio.run(main())


def test_one_client_in_several_loops(server: Server) -> None:
    client = aredlock.Redlock(server.url)

    async def main() -> None:
        async with client.lock("x"):
            pass

    for _ in range(5):
        asyncio.run(main())


def test_one_client_in_loops_of_several_threads(server: Server) -> None:
    client = aredlock.Redlock(server.url)
    inside = []

    async def main() -> None:
        for _ in range(10):
            async with client.lock("x"):
                inside.append(1)
                assert len(inside) == 1
                await asyncio.sleep(0)
                inside.pop()

    errors = []

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors


def test_closed_loops_are_forgotten(server: Server) -> None:
    client = aredlock.Redlock(server.url)

    async def main() -> None:
        async with client.lock("x"):
            pass

    loops = []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        loops.append(weakref.ref(loop))
        del loop
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


class Blind(asyncio.SelectorEventLoop):
    """An event loop that cannot watch descriptors, like the default loop of Windows."""

    def add_reader(self, fd, callback, *args):
        if getattr(callback, "__self__", None) is not self:
            raise NotImplementedError
        return super().add_reader(fd, callback, *args)


def test_a_loop_that_cannot_watch_descriptors(server: Server) -> None:
    client = aredlock.Redlock(server.url)

    async def main() -> None:
        async def one(number: int) -> None:
            async with client.lock(f"x{number % 5}"):
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, range(50)))

    for _ in range(2):
        loop = Blind()
        loop.run_until_complete(main())
        loop.close()
    del loop
    asyncio.run(main())
    deadline = time.monotonic() + 10
    while any(thread.name == "redlock-loop" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_a_loop_of_asyncio(server: Server) -> None:
    lock = redlock.asyncio.Redlock(server.url).lock("x")
    for call in (lock.acquire, lock.release, lock.locked, lock.__aenter__):
        # Runs the coroutine as an event loop of another library would.
        with pytest.raises(RuntimeError, match="needs an event loop of asyncio") as raised:
            call().send(None)
        assert type(raised.value) is redlock.asyncio.NoEventLoop
        assert isinstance(raised.value, redlock.LockError)
        assert raised.value.code == "invalid"
    assert not server.keys("x")


def test_uvloop(server: Server) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        client = aredlock.Redlock(server.url)

        async def one(number: int) -> None:
            async with client.lock(f"x{number % 5}"):
                await asyncio.sleep(0)

        await asyncio.gather(*map(one, range(50)))

    for _ in range(2):
        uvloop.new_event_loop().run_until_complete(main())


# Cancellation


def gone(server: Server) -> None:
    deadline = time.monotonic() + 10
    while server.keys("x*"):
        assert time.monotonic() < deadline, server.keys("x*")
        time.sleep(0.01)


def test_a_cancelled_acquire_leaves_nothing(server: Server) -> None:
    """An acquire is cancelled at 200 points around its round trip. A third of these would leave a lock behind."""
    outcomes = {"cancelled": 0, "taken": 0}

    async def main() -> None:
        client = aredlock.Redlock(server.url)
        rng = random.Random(1)
        # The duration of a round trip in seconds; the loop below measures it.
        usual = 0.0002
        for number in range(200):
            lock = client.lock(f"x{number}")
            task = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0)
            began = time.perf_counter()
            pause = rng.random() * usual * 2
            while time.perf_counter() < began + pause and not task.done():
                await asyncio.sleep(0)
            if task.done():
                usual = time.perf_counter() - began
            task.cancel()
            try:
                lease = await task
            except asyncio.CancelledError:
                outcomes["cancelled"] += 1
            else:
                outcomes["taken"] += 1
                await lease.release()
        await asyncio.to_thread(gone, server)

    asyncio.run(main())
    assert outcomes["cancelled"] > 20, outcomes


def test_a_result_that_came_with_the_cancellation_is_released(server: Server) -> None:
    """The test blocks the loop until the result is there, so that the same turn handles result and cancellation."""

    async def main() -> None:
        client = aredlock.Redlock(server.url)
        # From here on the client is connected, and sends a single request at once.
        async with client.lock("first"):
            pass
        for number in range(50):
            task = asyncio.create_task(client.lock(f"x{number}").acquire())
            await asyncio.sleep(0)
            deadline = time.monotonic() + 10
            while not server.keys(f"x{number}"):
                assert time.monotonic() < deadline
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                assert await task is None
            if number % 10 == 0:
                await asyncio.to_thread(gone, server)
        await asyncio.to_thread(gone, server)

    asyncio.run(main())


def test_a_result_that_was_fetched_before_the_cancellation_is_released(server: Server) -> None:
    """The loop fetches two results together, and the first task to resume cancels the other task."""

    async def main() -> None:
        client = aredlock.Redlock(server.url)
        async with client.lock("first"):
            pass
        tasks: dict[str, asyncio.Task[None]] = {}
        went_on = []

        async def take(own: str, other: str) -> None:
            lease = await client.lock(own).acquire()
            assert lease
            went_on.append(own)
            tasks[other].cancel()
            await lease.release()

        for number in range(50):
            went_on.clear()
            names = f"x{number}", f"x{number}'"
            tasks = {name: asyncio.create_task(take(name, other)) for name, other in (names, names[::-1])}
            # One turn for the calls, and one to send the requests.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            deadline = time.monotonic() + 10
            while not went_on and not all(server.keys(f"redlock_token:{{{name}}}") for name in names):
                assert time.monotonic() < deadline
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
            assert [type(result) for result in results].count(asyncio.CancelledError) == 1, results
        await asyncio.to_thread(gone, server)

    asyncio.run(main())


def test_a_loop_that_is_left_in_the_middle_of_its_results(server: Server) -> None:
    """Two results arrive together, and the first task to resume raises `SystemExit`, which stops the loop.

    The other task resumes when the loop runs again.
    """
    client = aredlock.Redlock(server.url, watchdog=0.3)
    tasks: list[asyncio.Task[None]] = []

    async def leave(lease: aredlock.Lease) -> None:
        assert await lease.wait_lost()
        if not any(task.done() for task in tasks):
            raise SystemExit

    async def main() -> None:
        leases = [await client.lock(name).acquire() for name in ("x1", "x2")]
        tasks.extend(asyncio.create_task(leave(lease)) for lease in leases if lease)
        await asyncio.sleep(0)
        server.cli("DEL", "x1", "x2")
        deadline = time.monotonic() + 10
        while any(lease.held for lease in leases if lease):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        await asyncio.wait(tasks)

    loop = asyncio.new_event_loop()
    with pytest.raises(SystemExit):
        loop.run_until_complete(main())
    _, waiting = loop.run_until_complete(asyncio.wait(tasks, timeout=10))
    assert not waiting
    assert [type(task.exception()) for task in tasks].count(SystemExit) == 1
    loop.close()


def test_cancelled_waiters_leave_the_queue(client: redlock.Redlock, server: Server) -> None:
    async def main() -> None:
        waiting = aredlock.Redlock(server.url)

        async def wait() -> None:
            async with waiting.lock("x"):
                pass

        tasks = [asyncio.create_task(wait()) for _ in range(20)]
        last = asyncio.create_task(wait())
        await until(lambda: server.listeners("x") == 1)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results)
        await asyncio.to_thread(lease.release)
        await asyncio.wait_for(last, 10)

    lease = client.lock("x").acquire()
    assert lease is not None
    asyncio.run(main())
    gone(server)


def test_wait_for_gives_up(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)

        async def other() -> None:
            for _ in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(client.lock("x").acquire(), 0.01)

        async with client.lock("x"):
            await asyncio.gather(*(asyncio.create_task(other()) for _ in range(5)))
        async with client.lock("x", wait=5):
            pass

    asyncio.run(main())
    gone(server)


def test_a_cancelled_release_goes_on(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)
        for number in range(20):
            lease = await client.lock(f"x{number}").acquire()
            assert lease is not None
            task = asyncio.create_task(lease.release())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(gone, server)

    asyncio.run(main())


def test_a_cancelled_block_releases(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url)
        inside = asyncio.Event()

        async def block() -> None:
            async with client.lock("x"):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(block())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gone(server)


def test_a_loop_that_ends_leaves_no_acquire_behind(server: Server) -> None:
    client = aredlock.Redlock(server.url)
    holder = redlock.Redlock(server.url)

    async def main() -> None:
        task = asyncio.create_task(client.lock("x").acquire())
        await until(lambda: server.listeners("x") == 1)
        del task

    with holder.lock("x"):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        pending = asyncio.all_tasks(loop)
        loop.close()
        for task in pending:
            task._log_destroy_pending = False
        del pending, task, loop
        gc.collect()
    gone(server)


def test_tasks_that_ended_own_nothing(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url, watchdog=0.3)

        async def forget() -> None:
            assert await client.lock("x").acquire()

        task = asyncio.create_task(forget())
        await task
        # The task object still exists, but the task is done.
        assert server.keys("x")
        await asyncio.to_thread(gone, server)

    with pytest.warns(ResourceWarning):
        asyncio.run(main())


# Threads and tasks


def test_sync_and_asyncio_share_the_task(server: Server) -> None:
    redlock.configure(server.url)

    async def main() -> None:
        with redlock.lock("x") as outer:
            async with aredlock.lock("x") as inner:
                assert inner.token == outer.token
            assert aredlock.lock("x").owned()

    asyncio.run(main())


def test_a_sync_lock_lets_no_two_tasks_in(server: Server) -> None:
    client = redlock.Redlock(server.url)
    inside = entries = refused = 0

    async def task(number: int) -> None:
        nonlocal inside, entries, refused
        for _ in range(5):
            try:
                with client.lock("x"):
                    inside += 1
                    entries += 1
                    assert inside == 1
                    await asyncio.sleep(0.001)
                    inside -= 1
            except redlock.WouldDeadlock:
                refused += 1
                assert client.lock("x").acquire(blocking=False) is None
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*map(task, range(4)))

    asyncio.run(main())
    assert entries
    assert refused
    assert entries + refused == 20


def test_a_thread_of_an_executor_is_an_owner_of_its_own(server: Server) -> None:
    client = redlock.Redlock(server.url)

    async def main() -> None:
        with client.lock("x"):
            assert await asyncio.to_thread(client.lock("x").acquire, timeout=0.05) is None

    asyncio.run(main())


def test_callbacks_are_the_thread(server: Server) -> None:
    client = redlock.Redlock(server.url)
    seen = []

    def callback() -> None:
        seen.append(client.lock("x").acquire(blocking=False))
        with pytest.raises(redlock.WouldDeadlock):
            client.lock("x").acquire()
        seen.append(client.lock("y").acquire())

    async def main() -> None:
        with client.lock("x"):
            asyncio.get_running_loop().call_soon(callback)
            await asyncio.sleep(0)
            assert seen[0] is None
            assert seen[1].held

    asyncio.run(main())
    assert client.lock("y").release() == "released"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup")
def test_the_recipe_for_cancelling_a_body_on_loss(server: Server) -> None:
    async def main() -> None:
        client = aredlock.Redlock(server.url, watchdog=0.3)
        with pytest.raises(ExceptionGroup):  # noqa: F821
            async with client.lock("x") as lease, asyncio.TaskGroup() as group:

                async def guard() -> None:
                    if await lease.wait_lost():
                        lease.check()

                group.create_task(guard())
                server.cli("DEL", "x")
                await asyncio.sleep(60)

    asyncio.run(main())
