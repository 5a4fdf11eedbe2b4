"""Tests of the public API, used as the documentation describes."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import redlock
import redlock.asyncio
from servers import elsewhere, eventually

if TYPE_CHECKING:
    from servers import Server


def test_with_block(client: redlock.Redlock, server: Server) -> None:
    lock = client.lock("x")
    with lock as lease:
        assert lease.held
        assert lease.name == lock.name == "x"
        assert 0 < lease.remaining() <= 27
        assert lease.token > 1_700_000_000_000_000
        assert server.keys() == ["redlock_token:{x}", "x"]
        assert lock.owned()
        assert lock.locked()
        assert not elsewhere(lock.owned)
        info = lock.inspect()
        assert info is not None
        assert info.owner == lease.owner
        assert info.token == lease.token
        assert info.ttl is not None
        assert 29 < info.ttl <= 30
    assert not lease.held
    assert lease.remaining() == 0
    assert not lock.owned()
    assert not lock.locked()
    assert lock.inspect() is None
    assert not lease.lost.is_set()
    with pytest.raises(redlock.NotHeld):
        lease.check()


def test_acquire_and_release(client: redlock.Redlock) -> None:
    lock = client.lock("x")
    lease = lock.acquire()
    assert lease is not None
    assert elsewhere(lambda: client.lock("x").acquire(blocking=False)) is None
    assert elsewhere(lambda: client.lock("x").acquire(timeout=0)) is None
    assert elsewhere(lambda: client.lock("x", wait=0).acquire()) is None
    assert elsewhere(lambda: client.lock("x").acquire(timeout=timedelta(seconds=0.05))) is None
    assert lock.release() == "released"
    assert lease.release() == "released"
    with pytest.raises(redlock.NotHeld):
        lock.release()
    assert elsewhere(lambda: client.lock("x", wait=0).acquire(timeout=-1)).held


def test_a_ttl_that_ran_out_without_anybody_who_refers_to_it_is_over(client: redlock.Redlock) -> None:
    def at_most_once_per_ttl() -> bool:
        return client.lock("x", ttl=0.05).acquire(blocking=False) is not None

    assert at_most_once_per_ttl()
    eventually(lambda: not client.lock("x").locked())
    assert at_most_once_per_ttl()
    eventually(lambda: not client.lock("x").locked())
    kept = client.lock("x", ttl=0.05)
    kept.acquire()
    eventually(lambda: not kept.locked())
    with pytest.raises(redlock.LockLost):
        client.lock("x").acquire(blocking=False)
    assert kept.release() == "lost"
    assert at_most_once_per_ttl()


def test_with_raises_where_acquire_returns_none(client: redlock.Redlock) -> None:
    def enter() -> None:
        with client.lock("x", wait=0.05):
            pytest.fail("two are inside")

    with client.lock("x"):
        with pytest.raises(redlock.LockTimeout) as caught:
            elsewhere(enter)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.code == "timeout"


def test_nested_leases_share_a_hold(client: redlock.Redlock, server: Server) -> None:
    lock = client.lock("x")
    with lock as outer, lock as inner, client.lock("x") as third:
        assert outer.token == inner.token == third.token
        calls = server.cli("INFO", "commandstats")
        with lock:
            pass
        assert server.cli("INFO", "commandstats").count("evalsha") == calls.count("evalsha")
        assert inner.release() == "released"
        assert outer.held
        assert not inner.held
        assert server.keys("x")
    assert not server.keys("x")


def test_fixed_lease(client: redlock.Redlock) -> None:
    lock = client.lock("x", ttl=timedelta(seconds=0.2))
    lease = lock.acquire()
    assert lease is not None
    assert lease.lost.wait(10)
    assert lease.lost.is_set()
    assert lease.lost.reason == "expired"
    assert bool(lease.lost)
    assert lease.release() == "lost"
    with pytest.raises(redlock.LockLost) as caught:
        lease.check()
    assert caught.value.reason == "expired"


def test_lost_wait_with_a_limit(client: redlock.Redlock) -> None:
    with client.lock("x") as lease:
        started = time.monotonic()
        assert not lease.lost.wait(0.1)
        assert time.monotonic() - started >= 0.1
        waiter = threading.Thread(target=lease.lost.wait)
        waiter.start()
    waiter.join(10)
    assert not waiter.is_alive()


def test_leaving_a_block_after_a_loss(client: redlock.Redlock, server: Server) -> None:
    with pytest.raises(redlock.LockLost), client.lock("x"):
        server.cli("DEL", "x")
    with pytest.raises(ZeroDivisionError), client.lock("x"):
        server.cli("DEL", "x")
        raise ZeroDivisionError


def test_a_block_whose_lease_was_given_away_ends_quietly(client: redlock.Redlock, server: Server) -> None:
    with client.lock("x") as lease:
        lease.release()
    with client.lock("x") as lease:
        text = lease.detach()
    assert server.keys("x")
    with pytest.raises(ZeroDivisionError), client.attach(text) and client.lock("y") as lease:
        lease.detach()
        raise ZeroDivisionError


def test_ping(client: redlock.Redlock, server: Server, own_server: Server) -> None:
    (status,) = client.ping()
    assert status.ok
    assert status.node == f"127.0.0.1:{server.port}"
    assert status.version is not None
    assert status.run is not None
    own_server.stop()
    (status,) = redlock.Redlock(own_server.url).ping()
    assert not status.ok
    assert status.cause


def test_a_closed_client(server: Server) -> None:
    with redlock.Redlock(server.url) as client:
        lease = client.lock("x").acquire()
        assert lease is not None
    assert not server.keys("x")
    assert lease.lost.reason == "closed"
    with pytest.raises(redlock.Closed):
        client.lock("x").acquire()
    client.close()


def test_decorator(client: redlock.Redlock) -> None:
    @client.lock("x")
    def work(a: int, *, b: int) -> tuple[int, bool]:
        """Work."""
        return a + b, client.lock("x").owned()

    assert work(1, b=2) == (3, True)
    assert work.__name__ == "work"
    assert work.__doc__ == "Work."
    assert not client.lock("x").owned()


def test_the_decorator_refuses_what_runs_later(client: redlock.Redlock) -> None:
    async def coroutine():
        pass

    def generator():
        yield

    class Callable:
        async def __call__(self):
            pass

    for wrong in (coroutine, generator, Callable(), 1):
        with pytest.raises(redlock.InvalidArgument):
            client.lock("x")(wrong)
        if wrong not in (coroutine,) and not isinstance(wrong, Callable):
            with pytest.raises(redlock.InvalidArgument):
                redlock.asyncio.lock("x")(wrong)


def test_reprs_tell_no_secrets(server: Server) -> None:
    client = redlock.Redlock(f"redis://user:secret@127.0.0.1:{server.port}", password="secret")
    assert repr(client) == f"redlock.Redlock(['127.0.0.1:{server.port}'])"
    assert repr(client.lock("x")) == f"<redlock.Lock 'x' of {client!r}>"
    with pytest.raises(redlock.LockError) as caught:
        client.lock("x").acquire(timeout=0)
    assert "secret" not in str(caught.value)
    with pytest.raises(redlock.InvalidArgument) as refused:
        redlock.Redlock("redis://user:secret@127.0.0.1/not-a-number")
    assert "secret" not in str(refused.value)


def test_repr_of_a_lease(client: redlock.Redlock) -> None:
    with client.lock("x") as lease:
        assert repr(lease) == f"<redlock.Lease 'x' token={lease.token} held>"
    assert repr(lease) == f"<redlock.Lease 'x' token={lease.token} released>"


def test_both_modules_have_the_same_names() -> None:
    own = {"ClientOptions", "LockOptions", "ReadWriteOptions", "Seconds", "SemaphoreOptions", "__version__"}
    assert set(redlock.__all__) - own == set(redlock.asyncio.__all__)
    for kind in ("Redlock", "Lock", "Lease", "Lost"):
        ours, theirs = ({n for n in dir(getattr(m, kind)) if n[0] != "_"} for m in (redlock, redlock.asyncio))
        assert ours - {"request", "begin_block", "end_block", "abandon"} <= theirs, kind


def test_everything_public_is_documented() -> None:
    for module in (redlock, redlock.asyncio):
        for name in set(module.__all__) - {"__version__", "Seconds"}:
            value = getattr(module, name)
            assert inspect.getdoc(value), name
            members = vars(value).items() if inspect.isclass(value) else ()
            undocumented = [
                n for n, member in members if n[0] != "_" and callable(member) and not inspect.getdoc(member)
            ]
            assert not undocumented, name


class TestDefaultClient:
    """Tests of the default client, which `redlock.lock` uses."""

    @pytest.fixture(autouse=True)
    def _reset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("redlock._client._default", {})

    def test_is_found_at_the_first_acquire(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        lock = redlock.lock("x")
        monkeypatch.setenv("REDLOCK_URL", f" {server.url} ,")
        with lock:
            assert server.keys("x")
        assert repr(lock) == "<redlock.Lock 'x' of the default client>"

    def test_configure_comes_first(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REDLOCK_URL", "redis://127.0.0.1:1")
        lock = redlock.lock("x")
        redlock.configure(server.url, prefix="app:")
        with lock:
            assert server.keys("app:*") == ["app:x"]

    def test_is_the_same_for_all_of_a_lock(self, server: Server) -> None:
        redlock.configure(server.url, prefix="first:")
        config, gpu = redlock.read_write_lock("config"), redlock.semaphore("gpu", 2)
        config.read().locked()
        gpu.available()
        redlock.configure(server.url, prefix="second:")
        with config.write():
            assert gpu.acquire(n=2)
            assert not server.keys("second:*")

    def test_is_the_same_for_all_of_a_lock_of_asyncio(self, server: Server) -> None:
        async def main() -> None:
            config, gpu = redlock.asyncio.read_write_lock("config"), redlock.asyncio.semaphore("gpu", 2)
            await config.write().locked()
            await gpu.available()
            redlock.asyncio.configure(server.url, prefix="second:")
            async with config.read():
                assert await gpu.acquire(n=2)
                assert not server.keys("second:*")

        redlock.asyncio.configure(server.url, prefix="first:")
        asyncio.run(main())

    def test_is_shared_with_asyncio(self, server: Server) -> None:
        async def main() -> None:
            async with redlock.asyncio.lock("x") as lease:
                with redlock.lock("x", wait=1) as nested:
                    assert nested.token == lease.token

        redlock.asyncio.configure(server.url)
        asyncio.run(main())

    def test_can_be_a_decorator(self, server: Server) -> None:
        @redlock.lock("x")
        def work() -> bool:
            return bool(server.keys("x"))

        redlock.configure([server.url])
        assert work()


def test_blocks_that_end_elsewhere(client: redlock.Redlock, server: Server) -> None:
    """A `with` block releases its own lease, whichever thread runs its end."""

    def generator():
        with client.lock("x"):
            yield

    suspended = [generator()]
    elsewhere(lambda: next(suspended[0]))
    assert server.keys("x")
    suspended.clear()
    gc.collect()
    assert not server.keys("x")


INFO = redlock.LockInfo("me", 1.5, 7)
STATUS = redlock.NodeStatus("127.0.0.1:1", False, cause="refused")


@pytest.mark.parametrize(
    ("value", "other", "shown"),
    [
        (
            INFO,
            redlock.LockInfo("me", 1.5, 7, host="web-3"),
            "LockInfo(owner='me', ttl=1.5, token=7, kind='lock', owners=('me',), "
            "host=None, pid=None, app=None, since=None)",
        ),
        (
            STATUS,
            redlock.NodeStatus("127.0.0.1:1", ok=False),
            "NodeStatus(node='127.0.0.1:1', ok=False, run=None, version=None, cause='refused')",
        ),
    ],
)
def test_infos_are_plain_values(value, other, shown: str) -> None:
    assert repr(value) == shown
    same = eval(shown, dict(vars(redlock)))
    assert same == value
    assert hash(same) == hash(value)
    assert value not in (other, INFO if value is STATUS else STATUS, None)
    assert len({value, same, other}) == 2
    for duplicate in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(duplicate) is type(value)
        assert duplicate == value
    for name in value.__match_args__:
        assert f"{name}={getattr(value, name)!r}" in shown
        with pytest.raises(AttributeError):
            setattr(value, name, None)
    with pytest.raises(AttributeError):
        value.more = 1


def test_infos_match() -> None:
    match INFO:
        case redlock.LockInfo("me", ttl, token=7):
            assert ttl == 1.5
        case _:
            pytest.fail("does not match")


def test_names_that_are_found_when_they_are_needed() -> None:
    everything: dict[str, object] = {}
    exec("from redlock import *", everything)
    assert set(redlock.__all__) <= set(everything)
    assert set(redlock.__all__) <= set(dir(redlock))
    assert redlock.LockOptions is everything["LockOptions"]
    assert "watchdog" in redlock.ClientOptions.__annotations__
    with pytest.raises(AttributeError, match="'redlock' has no attribute 'nonsense'"):
        redlock.nonsense  # noqa: B018
