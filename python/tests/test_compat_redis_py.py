"""Tests of `redlock.compat.redis_py` beyond redis-py's own tests: documented behaviour, and where this lock differs.

The locks get redis-py clients that refuse to connect, which proves that they send nothing through these clients.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import ssl
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.lock
import redis.sentinel
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

import redlock
from redlock.compat.redis_py import Lock, _clients
from redlock.compat.redis_py.asyncio import Lock as AsyncLock
from servers import Server, eventually, free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from conftest import Program


class Forbidden(redis.ConnectionPool):
    """A connection pool that has settings and refuses to connect."""

    def get_connection(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("something was sent through the foreign client")


class AsyncForbidden(redis.asyncio.ConnectionPool):
    """The same for asyncio."""

    async def get_connection(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("something was sent through the foreign client")


def foreign(server: Server, **settings: Any) -> redis.Redis:
    return redis.Redis(connection_pool=Forbidden(host="127.0.0.1", port=server.port, **settings))


def async_foreign(server: Server, **settings: Any) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(connection_pool=AsyncForbidden(host="127.0.0.1", port=server.port, **settings))


@pytest.fixture
def r(server: Server) -> redis.Redis:
    """A redis-py client that has settings and refuses to connect."""
    return foreign(server)


@pytest.fixture
def ar(server: Server) -> redis.asyncio.Redis:
    """The same for asyncio."""
    return async_foreign(server)


async def elsewhere(coroutine: Awaitable[Any]) -> Any:
    """Await a coroutine in another task."""
    return await coroutine


# Behaviour that redis-py documents


def test_every_method_works_without_the_client(r: redis.Redis, server: Server) -> None:
    lock = r.lock("x", timeout=10, lock_class=Lock)
    assert isinstance(lock, Lock)
    assert (lock.redis, lock.name, lock.timeout, lock.sleep, lock.blocking) == (r, "x", 10, 0.1, True)
    assert (lock.blocking_timeout, lock.thread_local, lock.raise_on_release_error) == (None, True, True)
    assert (lock.local.token, lock.locked(), lock.owned()) == (None, False, False)
    assert lock.acquire() is True
    assert lock.local.token == server.cli("GET", "x").encode()
    assert len(lock.local.token) == 32
    assert (lock.locked(), lock.owned()) == (True, True)
    assert lock.acquire(blocking=False) is False
    assert lock.extend(5) is True
    assert 14_000 < server.command("PTTL", "x") <= 15_000
    assert lock.extend(-5) is True
    assert 9_000 < server.command("PTTL", "x") <= 10_000
    assert lock.extend(0.5, replace_ttl=True) is True
    assert 0 < server.command("PTTL", "x") <= 500
    # As in redis-py, `extend` fails on a key without a ttl; only `reacquire` gives it one.
    server.cli("PERSIST", "x")
    for replace in (False, True):
        with pytest.raises(LockNotOwnedError):
            lock.extend(1, replace_ttl=replace)
    assert lock.reacquire() is True
    assert 9_000 < server.command("PTTL", "x") <= 10_000
    assert lock.release() is None
    assert (server.keys("x"), lock.local.token) == ([], None)
    with lock as same:
        assert same is lock
        assert lock.owned()
    assert not lock.locked()


def test_every_coroutine_works_without_the_client(ar: redis.asyncio.Redis, server: Server) -> None:
    async def main() -> None:
        lock = ar.lock("x", timeout=10, lock_class=AsyncLock)
        assert isinstance(lock, AsyncLock)
        assert (lock.local.token, await lock.locked(), await lock.owned()) == (None, False, False)
        assert await lock.acquire() is True
        assert lock.local.token == server.cli("GET", "x").encode()
        assert (await lock.locked(), await lock.owned()) == (True, True)
        assert await lock.acquire(blocking=False) is False
        assert await lock.extend(5) is True
        assert 14_000 < server.command("PTTL", "x") <= 15_000
        assert await lock.extend(0.5, replace_ttl=True) is True
        assert await lock.reacquire() is True
        assert 9_000 < server.command("PTTL", "x") <= 10_000
        assert await lock.release() is None
        assert (server.keys("x"), lock.local.token) == ([], None)
        async with lock as same:
            assert same is lock
            assert await lock.owned()
        assert not await lock.locked()

    asyncio.run(main())
    # The same works in a second event loop.
    asyncio.run(main())


def test_call_sites_can_stay_as_they_are(
    r: redis.Redis, ar: redis.asyncio.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redis.client.Lock", Lock)
    monkeypatch.setattr("redis.asyncio.client.Lock", AsyncLock)
    with r.lock("x", 10, blocking_timeout=5) as lock:
        assert isinstance(lock, Lock)

    async def main() -> None:
        async with ar.lock("x", 10, blocking_timeout=5) as lock:
            assert isinstance(lock, AsyncLock)

    asyncio.run(main())


def test_how_long_a_wait_is(r: redis.Redis, ar: redis.asyncio.Redis, server: Server) -> None:
    server.cli("SET", "x", "somebody's")

    def took(call: Callable[[], Any]) -> float:
        began = time.monotonic()
        assert call() is False
        return time.monotonic() - began

    assert took(Lock(r, "x", sleep=0.05, blocking_timeout=0.4).acquire) >= 0.4
    assert took(lambda: Lock(r, "x").acquire(blocking_timeout=0.3)) >= 0.3
    assert took(lambda: asyncio.run(AsyncLock(ar, "x", blocking_timeout=0.3).acquire())) >= 0.3
    # These return long before their time-outs: either a second attempt would come too late, or they are not to wait.
    assert took(Lock(r, "x", sleep=60, blocking_timeout=30).acquire) < 15
    assert took(lambda: Lock(r, "x").acquire(sleep=60, blocking_timeout=30)) < 15
    assert took(lambda: Lock(r, "x", blocking_timeout=30).acquire(blocking=False)) < 15
    assert took(Lock(r, "x", blocking=False, blocking_timeout=30).acquire) < 15
    assert took(Lock(r, "x", blocking_timeout=-1).acquire) < 15
    began = time.monotonic()
    with pytest.raises(LockError, match="^Unable to acquire lock within the time specified$") as raised:
        Lock(r, "x", blocking_timeout=0.2).__enter__()
    assert time.monotonic() - began >= 0.2
    assert raised.value.lock_name == "x"


def test_a_wait_ends_when_the_other_one_expires_or_releases(r: redis.Redis, server: Server) -> None:
    server.cli("SET", "x", "somebody's", "PX", "200")
    lock = Lock(r, "x", timeout=10)
    assert lock.acquire()
    other = Lock(r, "x", blocking_timeout=60)
    waiting = threading.Thread(target=other.acquire)
    waiting.start()
    eventually(lambda: server.listeners("x") == 1)
    lock.release()
    waiting.join(30)
    assert not waiting.is_alive()
    assert server.command("PTTL", "x") == -1


def test_errors_are_those_of_redis_py(r: redis.Redis, ar: redis.asyncio.Redis, server: Server) -> None:
    def check(act: Callable[[], Any], kind: type[LockError], message: str) -> None:
        with pytest.raises(kind) as raised:
            act()
        assert (type(raised.value), str(raised.value), raised.value.lock_name) == (kind, message, "x")
        assert isinstance(raised.value, ValueError)

    lock, timed = Lock(r, "x"), Lock(r, "x", timeout=10)
    check(lock.release, LockError, "Cannot release a lock that's not owned or is already unlocked.")
    check(lambda: timed.extend(1), LockError, "Cannot extend an unlocked lock")
    check(timed.reacquire, LockError, "Cannot reacquire an unlocked lock")
    assert lock.acquire()
    check(lambda: lock.extend(1), LockError, "Cannot extend a lock with no timeout")
    check(lock.reacquire, LockError, "Cannot reacquire a lock with no timeout")
    lock.release()
    assert timed.acquire()
    server.cli("SET", "x", "stolen")
    check(lambda: timed.extend(1), LockNotOwnedError, "Cannot extend a lock that's no longer owned")
    check(timed.reacquire, LockNotOwnedError, "Cannot reacquire a lock that's no longer owned")
    check(timed.release, LockNotOwnedError, "Cannot release a lock that's no longer owned")
    check(timed.release, LockError, "Cannot release a lock that's not owned or is already unlocked.")
    assert server.cli("GET", "x") == "stolen"

    async def main() -> None:
        async def of(call: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
            try:
                await call()
            except LockError as error:
                failure = error
                return lambda: (_ for _ in ()).throw(failure)
            return lambda: None

        lock, timed = AsyncLock(ar, "x"), AsyncLock(ar, "x", timeout=10)
        check(await of(lock.release), LockError, "Cannot release a lock that's not owned or is already unlocked.")
        # These raise before they are awaited, as in redis-py.
        check(lambda: timed.extend(1), LockError, "Cannot extend an unlocked lock")
        check(timed.reacquire, LockError, "Cannot reacquire an unlocked lock")
        server.cli("DEL", "x")
        assert await timed.acquire()
        server.cli("SET", "x", "stolen")
        check(await of(lambda: timed.extend(1)), LockNotOwnedError, "Cannot extend a lock that's no longer owned")
        check(await of(timed.reacquire), LockNotOwnedError, "Cannot reacquire a lock that's no longer owned")
        check(await of(timed.release), LockNotOwnedError, "Cannot release a lock that's no longer owned")
        assert timed.local.token is None

    asyncio.run(main())


def test_a_key_of_another_type_is_somebody_elses(r: redis.Redis, server: Server) -> None:
    lock = Lock(r, "x", timeout=10)
    assert lock.acquire()
    server.cli("DEL", "x")
    server.cli("RPUSH", "x", "somebody's data")
    assert not lock.owned()
    with pytest.raises(ResponseError, match="^WRONGTYPE"):
        lock.locked()
    with pytest.raises(LockNotOwnedError):
        lock.extend(1)
    with pytest.raises(LockNotOwnedError):
        lock.reacquire()
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(blocking_timeout=0.3) is False
    assert server.cli("LRANGE", "x", "0", "-1") == "somebody's data"


@pytest.mark.parametrize(
    ("name", "token", "settings"),
    [
        ("x", "text", {}),
        ("x", b"bytes", {"decode_responses": True}),
        (b"x", "häß", {}),
        (memoryview(b"x"), "häß", {"encoding": "utf-8"}),
    ],
)
def test_names_and_tokens_are_encoded_by_the_client(
    name: Any, token: Any, settings: dict[str, Any], server: Server
) -> None:
    lock = Lock(foreign(server, **settings), name)
    assert lock.acquire(token=token)
    expected = token if isinstance(token, bytes) else token.encode()
    assert lock.local.token == expected
    assert server.command("GET", "x").encode() == expected
    assert lock.owned()
    lock.release()
    assert server.keys("x") == []


def test_what_the_core_cannot_write_is_refused(r: redis.Redis, server: Server) -> None:
    for name in ("", "x" * 1025, "nul\0", b"\xff"):
        with pytest.raises(redlock.InvalidArgument, match="^name: "):
            Lock(r, name)
    with pytest.raises(redlock.InvalidArgument, match="^name: "):
        Lock(foreign(server, encoding="latin-1"), "häß")
    with pytest.raises(redlock.InvalidArgument, match="^token: "):
        Lock(r, "x").acquire(token=b"\xff")
    for timeout in (0.0001, -1):
        with pytest.raises(redlock.InvalidArgument, match="^ttl: "):
            Lock(r, "x", timeout=timeout).acquire()
    assert Lock(r, "x", timeout=0).acquire()
    assert server.command("PTTL", "x") == -1


# Together with redis-py


def test_it_and_redis_py_exclude_each_other_and_share_tokens(r: redis.Redis, server: Server) -> None:
    theirs = redis.Redis(host="127.0.0.1", port=server.port).lock("x", timeout=10, blocking=False)
    ours = Lock(r, "x", timeout=20, blocking=False)
    assert isinstance(theirs, redis.lock.Lock)
    assert theirs.acquire()
    assert not ours.acquire()
    ours.local.token = theirs.local.token
    assert ours.owned()
    assert ours.extend(5)
    assert 14_000 < server.command("PTTL", "x") <= 15_000
    assert ours.reacquire()
    assert 19_000 < server.command("PTTL", "x") <= 20_000
    ours.release()
    with pytest.raises(LockNotOwnedError):
        theirs.release()
    assert ours.acquire()
    assert not theirs.acquire()
    theirs.local.token = ours.local.token
    assert theirs.owned()
    assert theirs.reacquire()
    theirs.release()
    with pytest.raises(LockNotOwnedError):
        ours.release()


def test_nobody_is_inside_with_somebody_else(server: Server, ar: redis.asyncio.Redis) -> None:
    inside, most, entered = 0, 0, 0
    guard = threading.Lock()

    def hold() -> None:
        nonlocal inside, most, entered
        with guard:
            inside, entered = inside + 1, entered + 1
            most = max(most, inside)
        time.sleep(random.random() / 500)
        with guard:
            inside -= 1

    def threads(make: Callable[[], Any]) -> None:
        lock = make()
        for _ in range(25):
            with lock:
                hold()

    async def tasks() -> None:
        async def work() -> None:
            for _ in range(25):
                async with AsyncLock(ar, "x", timeout=30):
                    hold()

        await asyncio.gather(work(), work())

    theirs = redis.Redis(host="127.0.0.1", port=server.port)
    all_of_them = [
        threading.Thread(target=threads, args=(lambda: theirs.lock("x", timeout=30, sleep=0.002),)),
        threading.Thread(target=threads, args=(lambda: theirs.lock("x", timeout=30, sleep=0.002),)),
        threading.Thread(target=threads, args=(lambda: Lock(foreign(server), "x", timeout=30),)),
        threading.Thread(target=threads, args=(lambda: Lock(foreign(server), "x", timeout=30),)),
        threading.Thread(target=lambda: asyncio.run(tasks())),
    ]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join(60)
    assert (most, entered) == (1, 150)
    assert server.keys("x") == []


# The holder


def test_each_thread_has_a_token_unless_it_is_shared(r: redis.Redis, server: Server) -> None:
    for shared in (False, True):
        lock = Lock(r, "x", thread_local=not shared)
        assert lock.acquire()
        seen: list[Any] = []

        def release(lock: Lock = lock, seen: list[Any] = seen) -> None:
            seen.append(lock.local.token)
            try:
                lock.release()
            except LockError as error:
                seen.append(str(error))

        thread = threading.Thread(target=release)
        thread.start()
        thread.join()
        if shared:
            assert seen == [seen[0]]
            assert seen[0] is not None
            assert lock.local.token is None
        else:
            assert seen == [None, "Cannot release a lock that's not owned or is already unlocked."]
            lock.release()
        assert server.keys("x") == []


def test_a_task_does_not_release_what_another_one_holds(ar: redis.asyncio.Redis, server: Server) -> None:
    async def main() -> None:
        lock = AsyncLock(ar, "x", timeout=10)
        assert await lock.acquire()
        mine = lock.local.token
        server.cli("DEL", "x")
        assert await elsewhere(lock.acquire())
        # Another task on the same object, after this one's lock expired.
        server.cli("DEL", "x")
        theirs = await asyncio.create_task(elsewhere_acquires(lock))
        assert theirs != mine
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        with pytest.raises(LockError, match="already unlocked"):
            await lock.release()
        assert server.cli("GET", "x").encode() == theirs
        # A token that this task sets does not replace the other task's.
        lock.local.token = None

        async def seen() -> bytes | None:
            return lock.local.token

        assert await asyncio.create_task(seen()) == theirs

    async def elsewhere_acquires(lock: AsyncLock) -> bytes | None:
        assert await lock.acquire()
        return lock.local.token

    asyncio.run(main())


def test_a_lock_object_can_be_handed_to_another_task(ar: redis.asyncio.Redis, server: Server) -> None:
    async def main() -> None:
        for thread_local in (True, False):
            lock = AsyncLock(ar, "x", timeout=10, thread_local=thread_local)
            # Before Python 3.12, `wait_for` awaits in a task of its own.
            assert await asyncio.wait_for(lock.acquire(), 30)
            assert lock.local.token is not None

            async def release(lock: AsyncLock = lock) -> None:
                assert await lock.owned()
                assert await lock.extend(1)
                await lock.release()

            await asyncio.create_task(release())
            assert (server.keys("x"), lock.local.token) == ([], None)
            with pytest.raises(LockError, match="already unlocked"):
                await lock.release()
            lock.local.token = b"given"
            server.cli("SET", "x", "given")
            await lock.release()
            assert server.keys("x") == []

    asyncio.run(main())


FORK = """
import os, sys, redis
from redis.exceptions import LockError
from redlock.compat.redis_py import Lock
r = redis.Redis.from_url(os.environ["REDLOCK_URL"])
lock = Lock(r, "x", timeout=60, thread_local=sys.argv[1] == "local")
assert lock.acquire()
if os.fork() == 0:
    assert lock.local.token is None and not lock.owned() and lock.locked()
    try:
        lock.release()
    except LockError:
        pass
    else:
        os._exit(1)
    assert not lock.acquire(blocking=False)
    other = Lock(r, "y")
    assert other.acquire() and other.owned()
    other.release()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert lock.owned()
lock.release()
"""


@pytest.mark.parametrize("whose", ["local", "shared"])
def test_a_forked_child_holds_nothing(whose: str, run: Callable[..., str], server: Server) -> None:
    run(FORK, whose)
    assert server.keys("[xy]") == []


LAST_WORDS = """
import os, redis
from redlock.compat.redis_py import Lock
assert Lock(redis.Redis.from_url(os.environ["REDLOCK_URL"]), "x").acquire(token="kept")
"""


def test_a_lock_without_a_timeout_outlives_its_process(run: Callable[..., str], server: Server) -> None:
    # Nothing keeps the process alive, either.
    run(LAST_WORDS)
    assert (server.cli("GET", "x"), server.command("PTTL", "x")) == ("kept", -1)


# Faults of redis-py's lock that this one does not have


def test_a_cancelled_acquire_leaves_nothing_behind(ar: redis.asyncio.Redis, server: Server) -> None:
    async def main() -> None:
        got = 0
        for turns in range(120):
            lock = AsyncLock(ar, "x", blocking_timeout=10)
            task = asyncio.create_task(lock.acquire())
            for _ in range(turns % 12):
                await asyncio.sleep(random.random() / 3000)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            else:
                got += 1
                await lock.release()
            deadline = time.monotonic() + 10
            while server.command("EXISTS", "x"):
                assert time.monotonic() < deadline, "a key that nobody owns"
                await asyncio.sleep(0.001)
        assert got < 120

    asyncio.run(main())


def test_a_cancelled_release_goes_on(own_server: Server) -> None:
    async def main() -> None:
        lock = AsyncLock(async_foreign(own_server), "x", timeout=60)
        assert await lock.acquire()
        own_server.freeze()
        release = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await release
        own_server.thaw()
        while own_server.command("EXISTS", "x"):
            await asyncio.sleep(0.001)
        assert lock.local.token is not None
        # A second call returns the outcome of the first release.
        assert await lock.release() is None
        assert lock.local.token is None

    asyncio.run(main())


def test_a_lost_reply_leaves_nothing_behind(own_server: Server) -> None:
    lock = Lock(foreign(own_server, socket_timeout=0.2), "x")
    assert lock.acquire()
    lock.release()
    with own_server.frozen(), pytest.raises(RedisConnectionError) as raised:
        lock.acquire(blocking=False)
    assert isinstance(raised.value.__cause__, redlock.Unavailable)
    assert lock.local.token is None
    # The server runs the request now, and the client releases the lock again. Until then, the lock is held.
    assert lock.acquire(blocking_timeout=30)
    lock.release()
    eventually(lambda: not own_server.keys("x"))


def test_an_unconfirmed_release_goes_on(own_server: Server) -> None:
    lock = Lock(foreign(own_server, socket_timeout=0.2), "x")
    assert lock.acquire()
    with own_server.frozen(), pytest.raises(RedisConnectionError):
        lock.release()
    assert lock.local.token is None
    eventually(lambda: not own_server.keys("x"))

    async def main() -> None:
        lock = AsyncLock(async_foreign(own_server, socket_timeout=0.2), "x")
        assert await lock.acquire()
        with own_server.frozen(), pytest.raises(RedisConnectionError):
            await lock.release()
        # As in redis-py, the release can be tried again.
        assert lock.local.token is not None
        eventually(lambda: not own_server.keys("x"))

    asyncio.run(main())


def test_an_outage_is_a_connection_error(own_server: Server) -> None:
    lock, timed = Lock(foreign(own_server), "x"), Lock(foreign(own_server), "y", timeout=10)
    assert timed.acquire()
    own_server.kill()
    for act in (lambda: lock.acquire(blocking=False), lock.locked, timed.owned, lambda: timed.extend(1), timed.release):
        with pytest.raises(RedisConnectionError) as raised:
            act()
        assert isinstance(raised.value.__cause__, redlock.Unavailable)
    with pytest.raises(RedisConnectionError):
        asyncio.run(AsyncLock(async_foreign(own_server), "x").acquire(blocking=False))
    own_server.start()
    assert lock.acquire(blocking_timeout=30)


def test_a_blocks_own_error_is_never_masked(
    r: redis.Redis, ar: redis.asyncio.Redis, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def in_a_task() -> None:
        async with AsyncLock(ar, "x"):
            server.cli("DEL", "x")
            raise KeyError("of the body")

    with caplog.at_level(logging.WARNING), pytest.raises(KeyError, match="of the body"), Lock(r, "x"):
        server.cli("DEL", "x")
        raise KeyError("of the body")
    with caplog.at_level(logging.WARNING), pytest.raises(KeyError, match="of the body"):
        asyncio.run(in_a_task())
    with pytest.raises(LockNotOwnedError), Lock(r, "x"):
        server.cli("DEL", "x")
    with Lock(r, "x", raise_on_release_error=False):
        server.cli("DEL", "x")
    said = "Lock was unlocked or no longer owned when exiting context manager."
    assert [record.message for record in caplog.records] == [said] * 3


def test_an_expired_lock_is_not_returned(r: redis.Redis, server: Server) -> None:
    # The lease is over before its reply arrives, so the reply counts for nothing.
    with pytest.raises(RedisConnectionError):
        Lock(r, "x", timeout=0.001).acquire(blocking=False)
    eventually(lambda: not server.keys("x"))


# The client's settings


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], tuple[str, dict[str, Any]]]:
    """Return a function that turns a redis-py client's settings into a URL and options."""

    class Seen:
        def __init__(self, url: str, **options: Any) -> None:
            assert options.pop("wire") == "token"
            self.seen = (url, options)

    monkeypatch.setattr(_clients, "Redlock", Seen)
    return lambda client: _clients.client_of(client).seen  # type: ignore[attr-defined]


def test_settings_are_taken_over(urls: Callable[[Any], tuple[str, dict[str, Any]]]) -> None:
    def of(client: Any) -> tuple[str, dict[str, Any]]:
        url, options = urls(client)
        # The defaults of the time-outs differ between versions of redis-py.
        return url, {name: value for name, value in options.items() if not name.endswith("_timeout")}

    for kind in (redis.Redis, redis.asyncio.Redis):
        assert of(kind()) == ("redis://localhost:6379/0", {})
        assert of(kind(host="h", port=1, db=2, password="p")) == ("redis://h:1/2", {"password": "p"})
        both = ("redis://[::1]:1/0", {"username": "ü", "password": "p@/:"})
        assert of(kind(host="::1", port=1, username="ü", password="p@/:")) == both
        provider = UsernamePasswordCredentialProvider("u", "p")
        assert of(kind(credential_provider=provider))[1] == {"username": "u", "password": "p"}
        assert of(kind(unix_socket_path="/a b/ö", db=3)) == ("unix:///a%20b/%C3%B6?db=3", {})
        assert of(kind.from_url("unix:///a?db=3")) == ("unix:///a?db=3", {})
        assert of(kind.from_url("rediss://u:p%40@h:1/3")) == ("rediss://h:1/3", {"username": "u", "password": "p@"})
        paths = {"ssl_ca_certs": Path("ca"), "ssl_certfile": "cert", "ssl_keyfile": "key"}
        tls = kind(host="h", ssl=True, ssl_min_version=ssl.TLSVersion.TLSv1_2, **paths)
        assert of(tls) == ("rediss://h:6379/0", {"ca": "ca", "cert": "cert", "key": "key"})
        timed = urls(kind(socket_timeout=1.5, socket_connect_timeout=0.5))[1]
        assert timed == {"reply_timeout": 1.5, "connect_timeout": 0.5}
        assert of(kind(host="h", port=1, protocol=2)) == ("redis://h:1/0?protocol=2", {})
        assert of(kind(unix_socket_path="/a", protocol=2)) == ("unix:///a?db=0&protocol=2", {})
    user = {"username": "u", "password": "p@"}
    for sentinel in (redis.sentinel.Sentinel, redis.asyncio.sentinel.Sentinel):
        hosts = [("h1", 1), ("::1", 2)]
        known = sentinel(hosts).master_for("my/main", db=4, **user)
        assert of(known) == ("redis+sentinel://h1:1,[::1]:2/my%2Fmain/4", user)
        known = sentinel(hosts, sentinel_kwargs={"ssl": True}, ssl=True, ssl_ca_certs="ca").master_for("main")
        assert of(known) == ("rediss+sentinel://h1:1,[::1]:2/main/0", {"ca": "ca"})
        known = sentinel(hosts, sentinel_kwargs={"username": "s", "password": "q&"}).master_for("main")
        assert of(known)[0] == "redis+sentinel://h1:1,[::1]:2/main/0?sentinel_username=s&sentinel_password=q%26"
    nodes = [redis.asyncio.cluster.ClusterNode("h2", 2), redis.asyncio.cluster.ClusterNode("h1", 1)]
    cluster = redis.asyncio.RedisCluster(startup_nodes=nodes, password="p")
    assert of(cluster) == ("redis+cluster://h1:1,h2:2", {"password": "p"})
    cluster = redis.asyncio.RedisCluster(host="h", port=1, ssl=True, ssl_ca_certs="ca", protocol=2)
    assert of(cluster) == ("rediss+cluster://h:1?protocol=2", {"ca": "ca"})


class Provider(CredentialProvider):
    """Credentials that can differ with each connection."""

    def get_credentials(self) -> tuple[str]:
        return ("another each time",)


class OwnConnection(redis.Connection):
    """A connection class of the caller."""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("credential_provider", Provider()),
        ("redis_connect_func", print),
        ("ssl_cert_reqs", "none"),
        ("ssl_cert_reqs", ssl.CERT_OPTIONAL),
        ("ssl_check_hostname", False),
        ("ssl_ca_path", "/etc/certificates"),
        ("ssl_ca_data", b"der"),
        ("ssl_password", "secret"),
        ("ssl_validate_ocsp", True),
        ("ssl_ciphers", "ECDHE"),
        ("ssl_min_version", ssl.TLSVersion.TLSv1_3),
    ],
)
def test_what_cannot_be_taken_over_is_refused(setting: str, value: object) -> None:
    for kind, lock in ((redis.Redis, Lock), (redis.asyncio.Redis, AsyncLock)):
        client = kind(ssl=setting.startswith("ssl"))
        client.connection_pool.connection_kwargs[setting] = value
        with pytest.raises(redlock.InvalidArgument, match=f"^redis: cannot take over {setting}: ") as raised:
            lock(client, "x")
        assert "secret" not in str(raised.value)


def test_clients_of_another_kind_are_refused() -> None:
    own = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=OwnConnection))
    with pytest.raises(redlock.InvalidArgument, match="connection_class"):
        Lock(own, "x")
    replicas = redis.sentinel.Sentinel([("h", 1)]).slave_for("main")
    with pytest.raises(redlock.InvalidArgument, match="replicas"):
        Lock(replicas, "x")
    guarded = redis.sentinel.Sentinel([("h", 1)], sentinel_kwargs={"credential_provider": Provider()})
    with pytest.raises(redlock.InvalidArgument, match="credential_provider"):
        Lock(guarded.master_for("main"), "x")
    with pytest.raises(redlock.InvalidArgument, match="sentinels"):
        Lock(redis.sentinel.Sentinel([]).master_for("main"), "x")
    mixed = redis.sentinel.Sentinel([("h", 1)]).master_for("main", ssl=True)
    with pytest.raises(redlock.InvalidArgument, match="ssl"):
        Lock(mixed, "x")
    for nothing in (None, "redis://h", object()):
        with pytest.raises(redlock.InvalidArgument, match="^redis: must be a client of redis-py"):
            Lock(nothing, "x")


def test_equal_settings_share_a_client_for_as_long_as_one_needs_it(server: Server) -> None:
    one, same, other = foreign(server), foreign(server), foreign(server, db=1)
    shared = _clients.client_of(one)
    assert shared is _clients.client_of(same) is _clients.client_of(async_foreign(server)) is Lock(one, "x")._client
    assert shared is not _clients.client_of(other)
    gone = weakref.ref(shared)
    del shared, one
    gc.collect()
    assert gone() is not None
    del same
    gc.collect()
    assert gone() is None


def test_users_databases_and_unix_sockets(tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    with Server(tmp_path, "--unixsocket", str(socket)) as server:
        server.command("ACL", "SETUSER", "worker", "on", ">s3cret@/", "~*", "&*", "+@all")
        server.command("ACL", "SETUSER", "default", "off")
        user = {"username": "worker", "password": "s3cret@/"}
        tcp, unix = foreign(server, db=3, **user), redis.Redis(unix_socket_path=str(socket), db=3, **user)
        lock, same, apart = Lock(tcp, "x"), Lock(unix, "x"), Lock(foreign(server, **user), "x")
        assert lock.acquire()
        assert same.acquire(blocking=False) is False
        assert apart.acquire(blocking=False) is True
        assert redis.Redis(port=server.port, db=3, **user).get("x") == lock.local.token
        same.local.token = lock.local.token
        same.release()
        with pytest.raises(RedisConnectionError) as raised:
            Lock(foreign(server, username="worker", password="wr0ng"), "x").acquire()
        assert "wr0ng" not in str(raised.value)


def test_a_sentinels_master(server: Server, tmp_path: Path) -> None:
    port = free_port()
    settings = f"port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {server.port} 1\n"
    (tmp_path / "sentinel.conf").write_text(settings)
    sentinel = subprocess.Popen(
        ["redis-server", "sentinel.conf", "--sentinel"], cwd=tmp_path, stdout=subprocess.DEVNULL
    )
    try:
        known, aknown = (kind([("127.0.0.1", port)]) for kind in (redis.sentinel.Sentinel, AsyncSentinel))
        eventually(lambda: asks(known))
        lock = Lock(known.master_for("main", db=2), "x")
        assert lock.acquire()
        assert redis.Redis(port=server.port, db=2).get("x") == lock.local.token
        assert asyncio.run(AsyncLock(aknown.master_for("main", db=2), "x").acquire(blocking=False)) is False
        lock.release()
    finally:
        sentinel.terminate()
        sentinel.wait(10)


def asks(sentinel: redis.sentinel.Sentinel) -> bool:
    try:
        return bool(sentinel.discover_master("main"))
    except RedisConnectionError:
        return False


def test_a_cluster(tmp_path: Path) -> None:
    with Server(tmp_path, "--cluster-enabled", "yes") as server:
        server.cli("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        eventually(lambda: "cluster_state:ok" in server.cli("CLUSTER", "INFO"))
        cluster = redis.RedisCluster(host="127.0.0.1", port=server.port)
        lock = cluster.lock("x", timeout=10, lock_class=Lock)
        assert isinstance(lock, Lock)
        assert _clients.client_of(cluster)._native.urls == [f"redis+cluster://127.0.0.1:{server.port}"]
        assert lock.acquire()
        assert cluster.get("x") == lock.local.token
        assert lock.extend(1)

        async def main() -> None:
            other = AsyncLock(redis.asyncio.RedisCluster(host="127.0.0.1", port=server.port), "x")
            assert not await other.acquire(blocking=False)
            other.local.token = lock.local.token
            assert await other.owned()
            await other.release()

        asyncio.run(main())
        with pytest.raises(LockNotOwnedError):
            lock.release()


def test_tls_with_a_ca_and_a_certificate_of_its_own(tmp_path: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    for name in ("server", "client"):
        openssl("req", *new[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        sign = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem")
    port = free_port()
    tls = ("--tls-port", str(port), "--tls-ca-cert-file", "ca.pem")
    with Server(tmp_path, *tls, "--tls-cert-file", "server.pem", "--tls-key-file", "server.key") as server:
        files = {
            "ssl_ca_certs": tmp_path / "ca.pem",
            "ssl_certfile": tmp_path / "client.pem",
            "ssl_keyfile": tmp_path / "client.key",
        }
        lock = Lock(redis.Redis(host="127.0.0.1", port=port, ssl=True, **files), "x")
        assert lock.acquire()
        assert server.cli("GET", "x").encode() == lock.local.token
        lock.release()
        files["ssl_ca_data"] = files.pop("ssl_ca_certs").read_text()
        assert Lock(redis.Redis(host="127.0.0.1", port=port, ssl=True, **files), "x").acquire()
        with pytest.raises(RedisConnectionError):
            Lock(redis.Redis(host="127.0.0.1", port=port, ssl=True), "x").acquire(blocking=False)


def test_redlock_itself_needs_no_redis_py() -> None:
    code = "import sys, redlock, redlock.asyncio; sys.exit(any(name.split('.')[0] == 'redis' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


INTERRUPTED = """
import os, redis
from redlock.compat.redis_py import Lock
lock = Lock(redis.Redis.from_url(os.environ["REDLOCK_URL"]), "x")
print("ready", flush=True)
try:
    lock.acquire()
except KeyboardInterrupt:
    print(lock.local.token, flush=True)
"""


def test_ctrl_c_ends_a_wait_and_leaves_nothing(r: redis.Redis, server: Server, program: Program) -> None:
    import signal

    lock = Lock(r, "x", timeout=60)
    assert lock.acquire()
    process = program(INTERRUPTED)
    assert process.stdout.readline() == "ready\n"
    eventually(lambda: server.listeners("x") == 1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "None\n"
    assert process.wait(30) == 0, process.stderr.read()
    lock.release()
    assert server.keys("x") == []
