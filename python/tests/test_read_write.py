"""Tests of read/write locks, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import pytest

import redlock
import redlock.asyncio
from servers import elsewhere

if TYPE_CHECKING:
    from servers import Server


def test_many_read_or_one_writes(client: redlock.Redlock) -> None:
    config = client.read_write_lock("config")
    assert config.name == config.read().name == "config"
    with config.read() as first, config.read():
        reading = elsewhere(config.read().acquire)
        info = config.read().inspect()
        assert info is not None
        assert (info.kind, len(info.owners)) == ("read", 2)
        assert info.owner in info.owners
        assert info.token == first.token == reading.token
        reading.release()
        other = client.read_write_lock("config")
        seen = elsewhere(lambda: (other.read().acquire(blocking=False), other.write().acquire(blocking=False)))
        assert seen[0] is not None
        assert seen[1] is None
        seen[0].release()
        with pytest.raises(redlock.WouldDeadlock, match="try_upgrade"):
            config.write().acquire()
    with config.write() as lease:
        info = config.write().inspect()
        assert info is not None
        assert (info.kind, info.owners) == ("write", (lease.owner,))
        assert lease.token > first.token
        with config.read() as inside:
            assert inside.token == lease.token
        assert elsewhere(lambda: config.read().acquire(blocking=False)) is None
    assert not config.read().locked()


def test_a_writer_becomes_a_reader_and_a_reader_a_writer(client: redlock.Redlock) -> None:
    config = client.read_write_lock("config", wait=0)
    lease = config.write().acquire()
    token = lease.token
    lease.downgrade()
    assert lease.token == token + 1
    reading = elsewhere(config.read().acquire)
    assert reading.token == lease.token
    assert not lease.try_upgrade()
    assert lease.held
    reading.release()
    assert lease.try_upgrade()
    assert lease.token > token + 1
    assert elsewhere(lambda: config.read().acquire(blocking=False)) is None
    lease.release()
    with client.lock("plain") as plain, pytest.raises(redlock.InvalidArgument):
        plain.downgrade()


def test_with_asyncio(server: Server) -> None:
    async def in_task(lock: redlock.asyncio.Lock) -> redlock.asyncio.Lease | None:
        return await lock.acquire(blocking=False)

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url) as client:
            config = client.read_write_lock("config", ttl=10)
            async with config.read() as one:
                reading = await asyncio.create_task(in_task(config.read()))
                assert reading is not None
                assert reading.token == one.token
                assert await asyncio.create_task(in_task(config.write())) is None
                await reading.release()
                assert await one.try_upgrade()
                assert await asyncio.create_task(in_task(config.read())) is None
                await one.downgrade()
                info = await config.read().inspect()
                assert info is not None
                assert (info.kind, info.owners) == ("read", (one.owner,))
            again = pickle.loads(pickle.dumps(config))
            assert (again.name, repr(again)) == ("config", repr(config))
            assert isinstance(again, redlock.asyncio.ReadWriteLock)

    asyncio.run(main())


def test_they_survive_pickling(client: redlock.Redlock) -> None:
    config = client.read_write_lock("config", wait=0.5)
    again = pickle.loads(pickle.dumps(config))
    assert repr(again) == repr(config)
    reading = pickle.loads(pickle.dumps(config.read()))
    assert repr(reading) == repr(config.read())
    assert "to read" in repr(reading)
    with config.write():
        assert elsewhere(again.read().acquire) is None
        assert elsewhere(lambda: reading.acquire(blocking=False)) is None


def test_of_the_default_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDLOCK_URL", server.url)
    config = redlock.read_write_lock("config")
    with config.read():
        assert not elsewhere(lambda: redlock.lock("config").acquire(blocking=False))


@pytest.mark.parametrize("options", [{"fair": True}, {"owner": "me"}, {"ttl": 0}])
def test_what_makes_no_sense_is_refused(client: redlock.Redlock, options: dict[str, object]) -> None:
    for make in (client.read_write_lock, redlock.read_write_lock, redlock.asyncio.read_write_lock):
        with pytest.raises(redlock.InvalidArgument, match=next(iter(options))):
            make("config", **options)  # type: ignore[operator]
