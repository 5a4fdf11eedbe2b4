"""Tests of semaphores, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import redlock
import redlock.asyncio
from servers import elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

    Make = Callable[[redlock.Redlock], redlock.Lock | redlock.Semaphore]


def test_there_are_as_many_as_it_has(client: redlock.Redlock) -> None:
    gpu = client.semaphore("gpu", 2)
    assert (gpu.name, gpu.permits, gpu.available(), gpu.locked()) == ("gpu", 2, 2, False)
    with gpu as one:
        assert (one.slots, one.tokens) == ((0,), (one.token,))
        other = elsewhere(gpu.acquire)
        assert other.slots == (1,)
        assert gpu.locked()
        assert gpu.acquire(blocking=False) is None
        assert elsewhere(lambda: gpu.acquire(timeout=0)) is None
        assert other.release() == "released"
        with gpu as again:
            assert again.slots == (1,)
            assert again.token > other.token
    assert gpu.available() == 2
    both = gpu.acquire(n=2)
    assert both is not None
    assert both.slots == (0, 1)
    assert gpu.locked()
    both.release()


def test_each_thread_gives_back_its_own(client: redlock.Redlock) -> None:
    gpu = client.semaphore("gpu", 3)
    inside = threading.Barrier(3)
    slots: list[tuple[int, ...]] = []

    def work() -> None:
        with gpu as permit:
            inside.wait(30)
            slots.append(permit.slots)
            assert permit.held
            inside.wait(30)
        assert not permit.held

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(slots) == [(0,), (1,), (2,)]
    first, second = gpu.acquire(), gpu.acquire(n=2)
    assert first is not None
    assert second is not None
    with pytest.raises(redlock.NotHeld):
        elsewhere(gpu.release)
    assert gpu.release() == "released"
    assert (first.held, second.held) == (True, False)
    assert elsewhere(first.release) == "released"
    assert gpu.available() == 3


SHARED = pytest.mark.parametrize(
    "make",
    [lambda client: client.semaphore("x", 5), lambda client: client.read_write_lock("x").read()],
    ids=["semaphore", "readers"],
)


def holding(lock: redlock.Lock | redlock.Semaphore) -> Iterator[redlock.Lease]:
    with lock as lease:
        while True:
            yield lease


@SHARED
def test_each_generator_gives_back_its_own(client: redlock.Redlock, make: Make) -> None:
    lock = make(client)
    first, second = holding(lock), holding(lock)
    one, other = next(first), next(second)
    first.close()
    assert (one.held, other.held) == (False, True)
    second.close()
    assert not other.held


@SHARED
def test_a_generator_that_another_thread_ends_gives_back_its_own(client: redlock.Redlock, make: Make) -> None:
    lock = make(client)
    generator = holding(lock)
    theirs = elsewhere(lambda: next(generator))
    with lock as mine:
        generator.close()
        assert (theirs.held, mine.held) == (False, True)
    assert not mine.held


@SHARED
def test_an_exit_stack_gives_back_what_it_entered(client: redlock.Redlock, make: Make) -> None:
    lock = make(client)
    generator = holding(lock)
    stack, other_stack = ExitStack(), ExitStack()
    theirs = elsewhere(lambda: other_stack.enter_context(lock))
    outer, inner = stack.enter_context(lock), stack.enter_context(lock)
    block = next(generator)
    with lock as mine:
        stack.close()
        assert (outer.held, inner.held, theirs.held) == (False, False, True)
        other_stack.close()
        assert (theirs.held, block.held, mine.held) == (False, True, True)
    assert (block.held, mine.held) == (True, False)


def test_an_abandoned_block_keeps_no_lock_alive(client: redlock.Redlock) -> None:
    gpu = client.semaphore("gpu", 2)
    ExitStack().enter_context(gpu)
    known = weakref.ref(gpu)
    del gpu
    gc.collect()
    assert known() is None


def test_with_asyncio(server: Server) -> None:
    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url) as client:
            gpu = client.semaphore("gpu", 2)
            most = inside = 0

            async def work() -> None:
                nonlocal most, inside
                async with gpu as permit:
                    inside += 1
                    most = max(most, inside)
                    assert len(permit.slots) == 1
                    await asyncio.sleep(0)
                    inside -= 1

            await asyncio.gather(*(work() for _ in range(10)))
            assert most == 2
            both = await gpu.acquire(n=2)
            assert both is not None
            assert (both.slots, len(both.tokens)) == ((0, 1), 2)
            assert await gpu.locked()
            assert await gpu.acquire(blocking=False) is None
            assert await gpu.release() == "released"
            assert await gpu.available() == 2
            again = pickle.loads(pickle.dumps(gpu))
            assert repr(again) == repr(gpu)
            assert isinstance(again, redlock.asyncio.Semaphore)

    asyncio.run(main())


def test_of_the_default_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_URL", server.url)
    with redlock.semaphore("gpu", 1) as permit:
        assert permit.slots == (0,)
        again = pickle.loads(pickle.dumps(redlock.semaphore("gpu", 1, wait=0)))
        with pytest.raises(redlock.LockTimeout), again:
            pass


def test_permits_are_read_only(client: redlock.Redlock) -> None:
    for gpu in (client.semaphore("gpu", 1), redlock.asyncio.semaphore("gpu", 1)):
        with pytest.raises(AttributeError):
            gpu.permits = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("permits", "options", "argument"),
    [
        (0, {}, "permits"),
        (-1, {}, "permits"),
        (1.5, {}, "permits"),
        (2.0, {}, "permits"),
        (True, {}, "permits"),
        ("2", {}, "permits"),
        (None, {}, "permits"),
        (65_537, {}, "permits"),
        (2, {"ttl": 0}, "ttl"),
        (2, {"owner": "me"}, "owner"),
        (2, {"fair": True}, "fair"),
    ],
)
def test_what_makes_no_sense_is_refused(
    client: redlock.Redlock, permits: object, options: dict[str, object], argument: str
) -> None:
    for make in (client.semaphore, redlock.semaphore, redlock.asyncio.semaphore):
        with pytest.raises(redlock.InvalidArgument, match=argument):
            make("gpu", permits, **options)  # type: ignore[operator]


@pytest.mark.parametrize("number", [0, -1, 100_000, 2_000_000])
def test_each_number_has_one_range(client: redlock.Redlock, number: int) -> None:
    for module in (client, redlock, redlock.asyncio):
        with pytest.raises(redlock.InvalidArgument, match=f"^permits: must be from 1 to 65536, not {number}$"):
            module.semaphore("gpu", number)
        with pytest.raises(
            redlock.InvalidArgument, match=f"^n: must be from 1 to 3, the number of permits, not {number}$"
        ):
            module.semaphore("gpu", 3).acquire(n=number)


@pytest.mark.parametrize("n", [0, -1, 4, 1.5, 1.0, True, "1", None, [], {}])
def test_what_cannot_be_had_is_refused(client: redlock.Redlock, n: object) -> None:
    for gpu in (client.semaphore("gpu", 3), redlock.asyncio.semaphore("gpu", 3)):
        with pytest.raises(redlock.InvalidArgument, match="^n: "):
            gpu.acquire(n=n)  # type: ignore[arg-type]
