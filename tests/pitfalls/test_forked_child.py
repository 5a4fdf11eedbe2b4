"""Pitfall: a forked child releases its parent's lock.

A fork copies the lock object, with the token that proves ownership. When the child leaves the block, or exits, its copy
releases the lock that the parent still holds. With redis-py's lock, the child even reports that it owns the lock.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

import redis

import redlock
from tools import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server


def in_child(action: Callable[[], Any]) -> Any:
    """Run an action in a forked child, and return its result."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of a fork in a process with threads; these tests do exactly that.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            answer = action()
        except BaseException as error:
            answer = f"raised {error!r}"
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        text = answers.read()
    os.waitpid(pid, 0)
    return json.loads(text)


class NaiveLock:
    """SET NX with a token, released only with the same token. A copy of the object has the token too."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name, self.token = url, name, os.urandom(8).hex()

    def __enter__(self) -> None:
        assert redis.Redis.from_url(self.url).set(self.name, self.token, nx=True, px=60_000)

    def __exit__(self, *_: object) -> None:
        peer = redis.Redis.from_url(self.url)
        if peer.get(self.name) == self.token.encode():
            peer.delete(self.name)


def test_naive_child_frees_the_parents_lock(server: Server, peer: redis.Redis) -> None:
    """The child leaves the parent's block, and deletes the key."""
    lock = NaiveLock(server.url, "x")
    lock.__enter__()
    in_child(lambda: lock.__exit__(None, None, None))
    assert not peer.exists("x"), "the parent is inside, without a lock"


def test_the_child_holds_nothing(client: redlock.Redlock, peer: redis.Redis) -> None:
    """The child's lease is lost ("forked") and releases nothing; the parent's lock is renewed as before."""
    lock = client.lock("x")
    lease = lock.__enter__()

    def child() -> list[object]:
        answers: list[object] = [lease.held, lease.lost.reason, lock.owned(), lease.release()]
        try:
            lock.__exit__(None, None, None)
        except redlock.LockLost as error:
            answers.append(error.reason)
        answers.append(lock.acquire(blocking=False) is None)
        return answers

    assert in_child(child) == [False, "forked", False, "lost", "forked", True]
    assert peer.exists("x")
    assert not lease.lost.wait(1.5), "longer than a lease: it was renewed"
    assert lease.held
    lock.__exit__(None, None, None)
    assert not peer.exists("x")


def test_the_child_takes_its_turn_like_any_other_process(client: redlock.Redlock, peer: redis.Redis) -> None:
    """It opens connections of its own, waits for the lock, and gets a larger token."""

    def child() -> int:
        lease = client.lock("x").acquire(timeout=20)
        assert lease is not None
        assert peer.exists("x")
        lease.release()
        return lease.token

    with client.lock("x") as before:
        pass
    token = in_child(child)
    assert token > before.token
    with client.lock("x") as after:
        assert after.token > token


def test_a_child_that_exits_leaves_the_parents_lock_alone(client: redlock.Redlock, peer: redis.Redis) -> None:
    """The child also closes all clients, as the library's exit handlers do: only its own locks are released."""
    with client.lock("x") as lease:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                # The library's exit handlers call `close_all` too.
                from redlock import _native

                client.lock("of the child").acquire()
                _native.close_all()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not peer.exists("of the child")
        assert peer.exists("x")
        assert lease.held
        eventually(lambda: peer.pttl("x") > 800)
