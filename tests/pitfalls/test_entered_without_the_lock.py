"""Two pitfalls: a `with` block that runs without the lock, and failed attempts that keep their votes.

Some locks enter their `with` block although the acquire failed: its result is a flag, and nothing checks the flag. On
several servers, a failed attempt that keeps its votes blocks every client, its own first.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import redis

import redlock
from tools import eventually, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


class NaiveLock:
    """Reports a failed acquire only in the attribute `valid`, which the block does not check."""

    def __init__(self, peer: redis.Redis, name: str) -> None:
        self.peer, self.name, self.valid = peer, name, False

    def __enter__(self) -> NaiveLock:
        self.valid = bool(self.peer.set(self.name, "me", nx=True, px=60_000))
        return self

    def __exit__(self, *_: object) -> None:
        if self.valid:
            self.peer.delete(self.name)


def test_naive_block_runs_without_the_lock(peer: redis.Redis) -> None:
    """Another owner holds the lock, and the body runs."""
    inside = 0
    with NaiveLock(peer, "x"):
        inside += 1
        with NaiveLock(peer, "x"):
            inside += 1
    assert inside == 2


def test_a_block_without_the_lock_raises(client: redlock.Redlock, other: redlock.Redlock) -> None:
    """A block that cannot acquire the lock in time raises `LockTimeout`, a subclass of Python's `TimeoutError`."""
    with other.lock("x"):
        with pytest.raises(redlock.LockTimeout) as caught, client.lock("x", wait=0.1):
            pytest.fail("the body runs")
        assert isinstance(caught.value, TimeoutError)


@pytest.fixture
def four() -> Iterator[list[Server]]:
    """Four servers: an even number, so that votes can split in halves."""
    with ExitStack() as stack:
        yield [stack.enter_context(running()) for _ in range(4)]


def test_naive_partial_votes_block_everybody(four: list[Server]) -> None:
    """Two clients get two of four votes each. Neither gives its votes back, so neither ever gets three."""
    peers = [redis.Redis.from_url(server.url) for server in four]
    votes = {"a": 0, "b": 0}
    for _ in range(3):
        for client, order in (("a", peers), ("b", peers[::-1])):
            votes[client] = sum(bool(peer.set("x", client, nx=True, px=60_000)) for peer in order[:2])
    assert max(votes.values()) < 3
    assert [peer.get("x") for peer in peers] == [b"a", b"a", b"b", b"b"]


def test_split_votes_are_given_back(four: list[Server]) -> None:
    """Six clients acquire one lock on four servers, four times each: all succeed, and no vote is left behind."""
    urls = [server.url for server in four]
    tokens: list[int] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with redlock.Redlock(urls) as client:
                for _ in range(4):
                    with client.lock("x", wait=30) as lease:
                        tokens.append(lease.token)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(tokens) == 24
    assert tokens == sorted(set(tokens)), "appended while the lock was held: in order"
    for server in four:
        with redis.Redis.from_url(server.url) as peer:
            eventually(lambda peer=peer: not peer.exists("x"))  # type: ignore[misc]
