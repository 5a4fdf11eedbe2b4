"""Pitfall: a master with an asynchronous replica fails over, and the promoted replica lacks the lock.

The master acknowledges the lock, then dies before the replica receives it, and the replica takes its place. No client
can prevent this on one server: for a moment, two owners hold the lock. A quorum of five survives it: the promoted
server does not vote until every lease from before is over.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import redis

import redlock
from tools import Proxy, eventually, running
from workers import fenced_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


@dataclass
class Pair:
    """A master, its replica, and the network between them."""

    master: Server
    replica: Server
    between: Proxy

    def replicated(self) -> bool:
        """Whether the replica has received all that the master has written."""
        with redis.Redis.from_url(self.master.url) as master, redis.Redis.from_url(self.replica.url) as replica:
            offset = master.info("replication")["master_repl_offset"]
            return replica.info("replication").get("slave_repl_offset") == offset

    def stop_replication(self) -> None:
        """Stop the data to the replica without the master noticing."""
        # Freezing the replica is not enough: its socket would keep the data until it reads again.
        eventually(self.replicated)
        self.between.swallow()

    def fail_over(self) -> None:
        """Kill the master and promote the replica."""
        self.master.kill()
        self.between.cut()
        with redis.Redis.from_url(self.replica.url) as replica:
            replica.execute_command("REPLICAOF", "NO", "ONE")


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A master and a replica that is in sync."""
    with (
        running("--repl-diskless-sync-delay", "0") as master,
        Proxy(master.port) as between,
        running("--replicaof", f"127.0.0.1 {between.port}") as replica,
    ):
        pair = Pair(master, replica, between)
        with redis.Redis.from_url(replica.url) as peer:
            eventually(lambda: peer.info("replication")["master_link_status"] == "up")
        eventually(pair.replicated)
        yield pair


def test_one_server_with_a_replica_lets_two_believe_and_the_token_protects(pair: Pair) -> None:
    """After a failover, two owners hold the lock. The second token is larger: the resource refuses the first owner."""
    with (
        Proxy(pair.master.port) as address,
        redlock.Redlock(address.url) as a,
        redlock.Redlock(pair.replica.url) as b,
        running() as resource,
        redis.Redis.from_url(resource.url) as database,
    ):
        with a.lock("unrelated"):
            pass
        pair.stop_replication()
        first = a.lock("x").acquire()
        assert first is not None
        pair.fail_over()

        # The second client reaches the new master first. Even at best, the first one notices the failover no earlier.
        second = b.lock("x").acquire(timeout=10)
        assert second is not None
        assert first.held, "two holders: one server cannot do better"
        assert second.held
        assert second.token > first.token

        assert fenced_write(database, "of the second holder", second.token) == "written"
        assert fenced_write(database, "of the first holder", first.token) == "refused"
        assert database.get("fenced") == b"of the second holder"

        # When the first client reaches the new master, it checks its lock there and finds that it is lost.
        address.mend(pair.replica.port)
        assert first.lost.wait(20)
        assert first.lost.reason in ("taken", "deleted")
        assert not first.held
        assert first.release() == "lost"
        assert second.release() == "released", "the release of the first owner has changed the second one's lock"


@contextlib.contextmanager
def quorum_after_failover(pair: Pair, *, quarantine: bool) -> Iterator[tuple[redlock.Lease, redlock.Redlock]]:
    """A lease that three of five nodes granted, after one of the three failed over and lost it; and a second client.

    The second client can reach another quorum: the two nodes that never had the lock, and the one that lost it.
    """
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(running()) for _ in range(4)]
        roads_a = [stack.enter_context(Proxy(server.port)) for server in (pair.master, *others)]
        road_b = stack.enter_context(Proxy(pair.master.port))
        urls_b = [road_b.url, *(server.url for server in others)]
        options: redlock.ClientOptions = {"max_ttl": 3, "watchdog": 3, "quarantine": quarantine, "reply_timeout": 0.5}
        a = stack.enter_context(redlock.Redlock([road.url for road in roads_a], **options))
        b = stack.enter_context(redlock.Redlock(urls_b, **options))
        # The deployment has been in use: with a quarantine, every node has its marker, and so has the replica.
        for client in (a, b):
            with client.lock("before"):
                pass
        servers = [redis.Redis.from_url(server.url) for server in (pair.master, *others)]
        if quarantine:
            eventually(lambda: all(server.exists("redlock_node") for server in servers))
        eventually(lambda: not any(server.exists("before") for server in servers))

        pair.stop_replication()
        for road in roads_a[3:]:
            road.cut()
        first = a.lock("x", ttl=3).acquire(timeout=10)
        assert first is not None
        assert [server.exists("x") for server in servers] == [1, 1, 1, 0, 0], "the smallest quorum"
        pair.fail_over()
        road_b.mend(pair.replica.port)
        for server in servers:
            server.close()
        yield first, b


def test_naive_quorum_lets_a_second_one_in(pair: Pair) -> None:
    """Without a quarantine, as most libraries build the algorithm, the node that lost the lock votes a second time."""
    with quorum_after_failover(pair, quarantine=False) as (first, b):
        second = b.lock("x", ttl=3).acquire(timeout=2)
        assert second is not None
        assert first.held
        assert second.token > first.token, "the tokens still tell them apart"


def test_quorum_of_five_survives_the_same(pair: Pair) -> None:
    """With a quarantine, the promoted server does not vote, because its marker is from another run.

    Nobody else gets the lock before the first lease is over.
    """
    with quorum_after_failover(pair, quarantine=True) as (first, b):
        with contextlib.suppress(redlock.Unavailable):
            assert b.lock("x", ttl=3).acquire(blocking=False) is None
        assert first.held
        second = b.lock("x", ttl=3).acquire(timeout=20)
        believed = first.held
        assert second is not None
        assert not believed, "the first lease was over"
        assert second.held
        assert second.token > first.token
