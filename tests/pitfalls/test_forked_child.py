"""A forked child frees its parent's lock.

A fork copies the lock object, with the token that proves ownership. When the child leaves the block, or exits, its copy
releases what the parent still holds. With redis-py's lock the child even says that it owns it.
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
    """Run something in a forked child, and return what it returned."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Forking a process with threads is what this is about.
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
    """SET NX with a token, released only by whoever knows the token: as a copy does."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name, self.token = url, name, os.urandom(8).hex()

    def __enter__(self) -> None:
        assert redis.Redis.from_url(self.url).set(self.name, self.token, nx=True, px=60_000)

    def __exit__(self, *_: object) -> None:
        peer = redis.Redis.from_url(self.url)
        if peer.get(self.name) == self.token.encode():
            peer.delete(self.name)


def test_naive_child_frees_the_parents_lock(server: Server, peer: redis.Redis) -> None:
    """The child leaves the parent's block."""
    lock = NaiveLock(server.url, "x")
    lock.__enter__()
    in_child(lambda: lock.__exit__(None, None, None))
    assert not peer.exists("x"), "the parent is inside, without a lock"


def test_the_child_holds_nothing(client: redlock.Redlock, peer: redis.Redis) -> None:
    """The child is told so, releases nothing, and the parent's lock is renewed as before."""
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
    """It connects afresh, waits for the parent, and has a larger token."""

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
    """With everything that Python does at an exit, unlike above."""
    with client.lock("x") as lease:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                # What the exit handlers of the library do.
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
