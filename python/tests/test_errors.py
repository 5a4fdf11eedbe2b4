"""Tests of the exceptions, and of pickling errors, clients, locks and leases."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

import redlock
import redlock.asyncio
from redlock import errors

CODES = {
    "timeout": redlock.LockTimeout,
    "lost": redlock.LockLost,
    "not_held": redlock.NotHeld,
    "unavailable": redlock.Unavailable,
    "conflict": redlock.KeyConflict,
    "deadlock": redlock.WouldDeadlock,
    "invalid": redlock.InvalidArgument,
    "closed": redlock.Closed,
}


def test_codes() -> None:
    assert errors.BY_CODE == CODES
    for code, error in CODES.items():
        assert error.code == code
        assert issubclass(error, redlock.LockError)
    assert issubclass(redlock.LockTimeout, TimeoutError)
    assert issubclass(redlock.InvalidArgument, ValueError)


@pytest.mark.parametrize("error", CODES.values())
def test_errors_pickle(error) -> None:
    restored = pickle.loads(pickle.dumps(error("what happened")))
    assert type(restored) is error
    assert str(restored) == "what happened"


def test_details_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(redlock.LockLost("m", "taken"))).reason == "taken"
    assert copy.copy(redlock.Unavailable("m", {"a": "b"})).causes == {"a": "b"}


@pytest.mark.parametrize("module", [redlock, redlock.asyncio])
def test_clients_and_locks_pickle_as_configuration(module, server) -> None:
    client = module.Redlock([server.url], prefix="app:", password=None)
    lock = client.lock("x", ttl=3, owner="me")
    restored_client, restored = pickle.loads(pickle.dumps((client, lock)))
    assert repr(restored_client) == repr(client)
    assert restored.name == "x"
    assert restored._client is restored_client

    async def use() -> None:
        async with restored as lease:
            assert lease.owner == "me"
            assert server.keys("app:x")

    if module is redlock:
        with restored as lease:
            assert lease.owner == "me"
            assert server.keys("app:x")
    else:
        asyncio.run(use())


@pytest.mark.parametrize("module", [redlock, redlock.asyncio])
def test_default_locks_pickle_as_such(module) -> None:
    restored = pickle.loads(pickle.dumps(module.lock("x", ttl=3)))
    assert repr(restored).endswith("'x' of the default client>")


def test_leases_refuse_to_pickle(client: redlock.Redlock, server) -> None:
    with client.lock("x") as lease, pytest.raises(TypeError, match=r"detach\(\)"):
        pickle.dumps(lease)

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url).lock("y") as lease:
            with pytest.raises(TypeError, match=r"detach\(\)"):
                pickle.dumps(lease)
            with pytest.raises(TypeError):
                copy.deepcopy(lease)

    asyncio.run(main())
