"""Tests of threads as owners, and of exclusion between threads."""

from __future__ import annotations

import sys
import threading
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import redlock
from servers import eventually

if TYPE_CHECKING:
    from servers import Server


class Guarded:
    """Counts the entries, and the largest number of threads that were inside at once."""

    def __init__(self) -> None:
        self.inside = 0
        self.entries = 0
        self.worst = 0

    def __enter__(self) -> None:
        self.inside += 1
        self.entries += 1
        self.worst = max(self.worst, self.inside)

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


def in_threads(count, work) -> None:
    errors = []

    def body(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors, errors


@pytest.fixture
def _switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_switching_often")
@pytest.mark.parametrize("shared", [True, False], ids=["one lock object", "a lock object each"])
def test_threads_exclude_each_other(client: redlock.Redlock, server: Server, shared: bool) -> None:
    guarded = Guarded()
    one = client.lock("x")

    def work(_: int) -> None:
        lock = one if shared else client.lock("x")
        for _ in range(25):
            with lock as lease, guarded:
                assert lease.held
                assert lock.owned()
            with lock, lock:
                pass

    in_threads(8, work)
    assert guarded.worst == 1
    assert guarded.entries == 200
    assert not server.keys("x")


def test_clients_exclude_each_other(server: Server) -> None:
    guarded = Guarded()

    def work(_: int) -> None:
        with redlock.Redlock(server.url) as client:
            for _ in range(10):
                with client.lock("x"), guarded:
                    pass

    in_threads(4, work)
    assert guarded.worst == 1
    assert guarded.entries == 40


def test_blocks_of_threads_end_their_own_leases(client: redlock.Redlock, server: Server) -> None:
    """Two threads are in `with` blocks of one lock object; the first one lost the lock and must not release it."""
    lock = client.lock("x", ttl=0.2)
    inside, go_on = threading.Event(), threading.Event()
    outcome = []

    def first() -> None:
        try:
            with lock:
                inside.set()
                go_on.wait(30)
        except redlock.LockLost as error:
            outcome.append(error.reason)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    lock_again = client.lock("x", ttl=20)
    with lock as mine:
        mine.extend(20)
        go_on.set()
        thread.join(10)
        assert outcome == ["expired"]
        assert mine.held
        assert server.keys("x")
    assert not lock_again.locked()


def test_a_lease_can_be_released_by_any_thread(client: redlock.Redlock, server: Server) -> None:
    leases = []
    thread = threading.Thread(target=lambda: leases.append(client.lock("x").acquire()))
    thread.start()
    thread.join(10)
    with pytest.raises(redlock.NotHeld):
        client.lock("x").release()
    assert leases[0].release() == "released"
    assert not server.keys("x")


def test_other_threads_run_while_one_waits(client: redlock.Redlock) -> None:
    with client.lock("x"):
        done = threading.Event()

        def wait() -> None:
            client.lock("x").acquire(timeout=30)
            done.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        turns = 0
        while turns < 100_000:
            turns += 1
        assert not done.is_set()
    waiter.join(10)
    assert done.is_set()


# Longer than three leases of `quick`, in seconds.
THREE_LEASES = 3.7


@pytest.fixture
def quick(server: Server):
    """A client whose leases are short, but survive a busy machine."""
    with redlock.Redlock(server.url, watchdog=1.2) as client:
        yield client


def test_a_lease_of_a_dead_thread_is_renewed_while_it_is_referenced(quick: redlock.Redlock, server: Server) -> None:
    leases = []
    in_threads(1, lambda _: leases.append(quick.lock("x").acquire()))
    assert not leases[0].lost.wait(THREE_LEASES)
    assert leases[0].held
    assert leases[0].release() == "released"


def test_a_lock_of_a_dead_thread_is_renewed_while_it_is_referenced(quick: redlock.Redlock, server: Server) -> None:
    lock = quick.lock("x")
    in_threads(1, lambda _: lock.acquire())
    assert quick.lock("y").acquire().lost.wait(THREE_LEASES) is False
    assert server.keys("x")


def test_what_a_dead_thread_forgot_ends(quick: redlock.Redlock, server: Server, caplog) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        in_threads(1, lambda _: quick.lock("forgotten").acquire())
        assert server.keys("forgotten")
        eventually(lambda: not server.keys("forgotten"))
        eventually(lambda: [each for each in caught if "forgotten" in str(each.message)])
    (warning,) = [each for each in caught if "forgotten" in str(each.message)]
    assert warning.category is ResourceWarning
    assert "never released" in caplog.text


def test_a_living_thread_holds_without_any_reference(quick: redlock.Redlock, server: Server) -> None:
    quick.lock("x").acquire()
    assert quick.lock("y").acquire().lost.wait(THREE_LEASES) is False
    assert server.keys("x")
    assert quick.lock("x").release() == "released"


def test_a_released_nested_lease_is_never_lost(client: redlock.Redlock, server: Server) -> None:
    outer = client.lock("x").acquire()
    inner = client.lock("x").acquire()
    assert outer is not None
    assert inner is not None
    results = []
    waiter = threading.Thread(target=lambda: results.append(inner.lost.wait()))
    waiter.start()
    assert inner.release() == "released"
    waiter.join(10)
    assert results == [False]
    server.cli("DEL", "x")
    assert outer.release() == "lost"
    assert not inner.lost.is_set()
    assert inner.release() == "released"
    with pytest.raises(redlock.NotHeld):
        inner.check()


def test_min_hold(server: Server, quick: redlock.Redlock) -> None:
    """A released lock stays taken until its least hold is over, and nobody holds it."""
    lock = quick.lock("x", min_hold=timedelta(seconds=60), wait=0)
    with lock as lease:
        pass
    assert lease.release() == "released"
    assert not lease.held
    assert not lock.owned()
    assert lock.locked()
    info = lock.inspect()
    assert info is not None
    assert (info.kind, info.owner, info.owners, info.token) == ("rest", "", (), lease.token)
    assert info.ttl is not None
    assert 30 < info.ttl <= 60.002
    with pytest.raises(redlock.LockTimeout), lock:
        pass
    assert quick.force_release("x")
    assert not server.keys("x")
    with lock:
        pass


def test_max_hold(quick: redlock.Redlock) -> None:
    lease = quick.lock("x", max_hold=0.5).acquire()
    assert lease is not None
    assert lease.lost.wait(10)
    assert lease.lost.reason == "max_hold"
