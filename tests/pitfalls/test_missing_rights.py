"""Pitfall: a Redis user lacks one right, so a script stops in the middle and leaves half a lock.

Redis does not roll a script back when it refuses one of the script's commands. A script that writes a lock before its
time to live then leaves a lock for ever, if the user may run the first command and not the second. These tests take
each right away, one at a time, and run every operation of a client without it. They read the rights from the scripts.
"""

from __future__ import annotations

import logging
import re
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis

import redlock
from tools import Proxy, bounded, eventually, lock_keys, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

    Wire = Literal["redisson", "token"]

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "core" / "src" / "protocol" / "lua"
WIRES: tuple[Wire, ...] = ("redisson", "token")
USER, PASSWORD = "limited", "correct-horse-battery"
NAMES = (f"right-{number}" for number in count())


def source(script: str) -> str:
    """The text of a script without its comments."""
    lines = (SCRIPTS / f"{script}.lua").read_text().splitlines()
    return "\n".join(line.split("--")[0] for line in lines)


def commands_in(text: str) -> set[str]:
    """The Redis commands in Lua code."""
    literal = re.findall(r"redis\.p?call\('([A-Z]+)'", text)
    assert len(literal) == len(re.findall(r"redis\.p?call", text)), f"a command that is not spelled out: {text}"
    return {command.lower() for command in literal}


def commands_of(script: str, wire: Wire) -> set[str]:
    """The commands that a script may run, including the wire's functions and the shared functions that it calls."""
    text = source(script)
    _, *shared = re.split(r"^local function (\w+)", source("wire"), flags=re.MULTILINE)
    called = (body for name, body in zip(shared[::2], shared[1::2], strict=True) if f"{name}(" in text)
    return commands_in(text) | commands_in(source(f"wire_{wire}")) | commands_in("".join(called))


def all_scripts() -> set[str]:
    return {path.stem for path in SCRIPTS.glob("*.lua") if not path.stem.startswith("wire")}


def all_commands(wire: Wire) -> list[str]:
    return sorted(set[str]().union(*(commands_of(script, wire) for script in all_scripts())))


# Without EVAL, a client cannot load a script into a server that does not know it; without EVALSHA, nothing works.
CASES = [(wire, command) for wire in WIRES for command in [*all_commands(wire), "eval", "evalsha"]]


def test_the_scripts_were_read() -> None:
    """The list of cases is read from the scripts, so check that it is not empty by accident."""
    assert {"acquire", "bump", "renew", "release", "end", "inspect", "attach", "learn", "provision"} <= all_scripts()
    assert {"hset", "pexpire", "publish", "time"} <= set(all_commands("redisson"))
    assert {"set", "del"} <= set(all_commands("token"))


@dataclass
class Stage:
    """Servers, a client whose user loses and regains rights (`limited`), and a client with all rights (`full`)."""

    servers: list[Server]
    peers: list[redis.Redis]
    limited: redlock.Redlock
    full: redlock.Redlock

    def acl(self, *rules: str) -> None:
        """Change the limited user's rights on all servers. The change applies to open connections at once."""
        for peer in self.peers:
            acl(peer, *rules)

    def assert_every_lock_ends(self) -> None:
        """Check that every key of a lock has a ttl. This must hold whichever command was refused."""
        for peer in self.peers:
            assert -1 not in lock_keys(peer).values(), lock_keys(peer)


def acl(peer: redis.Redis, *rules: str) -> None:
    peer.execute_command("ACL", "SETUSER", USER, *rules)


def url(server: Server | Proxy) -> str:
    return server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Server]]:
    """Three servers, shared by all tests of this module."""
    with ExitStack() as stack:
        yield [stack.enter_context(running()) for _ in range(3)]


@pytest.fixture
def stage(machines: list[Server], request: pytest.FixtureRequest) -> Iterator[Stage]:
    """One empty server or a quorum of three; at the start, the limited user has every right."""
    wire, nodes = request.param
    servers = machines[:nodes]
    options: redlock.ClientOptions = {"wire": wire, "watchdog": 2, "reply_timeout": 1}
    with ExitStack() as stack:
        peers = [stack.enter_context(redis.Redis.from_url(server.url)) for server in servers]
        for peer in peers:
            peer.flushall()
            acl(peer, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        full = stack.enter_context(redlock.Redlock([server.url for server in servers], **options))
        limited = stack.enter_context(redlock.Redlock([url(server) for server in servers], **options))
        yield Stage(servers, peers, limited, full)


Action = tuple["tuple[str, ...]", "Callable[[Stage, str], Callable[[], Any]]"]


def held(lease: redlock.Lease | None) -> redlock.Lease:
    assert lease is not None
    return lease


def acquire(stage: Stage, name: str) -> Callable[[], Any]:
    return lambda: held(stage.limited.lock(name, ttl=3).acquire(timeout=1)).release()


def acquire_adaptive(stage: Stage, name: str) -> Callable[[], Any]:
    return lambda: held(stage.limited.lock(name, ttl="adaptive").acquire(timeout=1)).release()


def acquire_held_by_another(stage: Stage, name: str) -> Callable[[], Any]:
    held(stage.full.lock(name, ttl=3).acquire())
    return lambda: stage.limited.lock(name).acquire(timeout=0.2)


def join(stage: Stage, name: str) -> Callable[[], Any]:
    held(stage.full.lock(name, ttl=3, owner="o").acquire())
    # With wire="token", a key has no room for a second tenure: the lock counts as held by another owner.
    return lambda: stage.limited.lock(name, ttl=3, owner="o").acquire(blocking=False)


def renew(stage: Stage, name: str) -> Callable[[], Any]:
    lease = held(stage.limited.lock(name, ttl=3).acquire())
    return lambda: lease.extend(3)


def release(stage: Stage, name: str) -> Callable[[], Any]:
    lease = held(stage.limited.lock(name, ttl=3).acquire())

    def action() -> None:
        # The lock is held, so any other outcome would be wrong.
        assert (outcome := lease.release()) in ("released", "unconfirmed"), outcome

    return action


def release_of_an_owner_elsewhere(stage: Stage, name: str) -> Callable[[], Any]:
    held(stage.full.lock(name, ttl=3, owner="o").acquire())
    return lambda: stage.limited.lock(name, owner="o").release()


def force_release(stage: Stage, name: str) -> Callable[[], Any]:
    held(stage.full.lock(name, ttl=3).acquire())
    return lambda: stage.limited.force_release(name)


def inspect(stage: Stage, name: str) -> Callable[[], Any]:
    held(stage.full.lock(name, ttl=3).acquire())
    return lambda: (stage.limited.lock(name).inspect(), stage.limited.lock(name).locked())


def attach(stage: Stage, name: str) -> Callable[[], Any]:
    text = held(stage.limited.lock(name, ttl=3).acquire()).detach()
    return lambda: stage.limited.attach(text).release()


def detach(stage: Stage, name: str) -> Callable[[], Any]:
    lease = held(stage.limited.lock(name, ttl=3).acquire())
    return lease.detach


def bump(stage: Stage, name: str) -> Callable[[], Any]:
    # The token counters of the three nodes lie far apart: whichever two answer first, the client may have to write the
    # larger token back to the other.
    for peer, ahead in zip(stage.peers, (10_000_000, 20_000_000, 0), strict=False):
        seconds, micros = peer.time()
        peer.set(f"redlock_token:{{{name}}}", seconds * 1_000_000 + micros + ahead, px=60_000)
    return lambda: held(stage.limited.lock(name, ttl=3).acquire(timeout=1)).release()


def provision(stage: Stage, name: str) -> Callable[[], Any]:
    return stage.limited.init_nodes


# Each action with the scripts that it may send. It must succeed without any right that none of them uses.
ACTIONS: list[Action] = [
    (("acquire", "bump", "release", "provision"), acquire),
    (("acquire", "bump", "release", "provision", "learn"), acquire_adaptive),
    (("acquire", "bump", "release", "provision"), acquire_held_by_another),
    (("acquire", "bump", "release", "provision"), join),
    (("renew",), renew),
    (("release",), release),
    (("end",), release_of_an_owner_elsewhere),
    (("end",), force_release),
    (("inspect",), inspect),
    (("attach", "release"), attach),
    ((), detach),
]
QUORUM_ACTIONS: list[Action] = [
    (("acquire", "bump", "release", "provision"), bump),
    (("provision",), provision),
]


def refused(action: Callable[[], Any]) -> redlock.Unavailable | None:
    """Run the action, for 15 s at most. Return the `Unavailable` that it raises, or None; pass on any other error."""
    try:
        bounded(action, within=15)
    except redlock.Unavailable as error:
        return error
    return None


def assert_names_the_right(error: redlock.Unavailable, command: str, peer: redis.Redis) -> None:
    """Check that the message names the missing right if the server's reply does, and contains no password."""
    text = f"{error} {error!r} {error.causes}"
    assert PASSWORD not in text
    # For a script, Redis up to 7.0 reports only that some right is missing; newer versions name it.
    assert re.search(rf"'{command}'|can't run this command|NOPERM", text), text
    with redis.Redis.from_url(f"redis://{USER}:{PASSWORD}@127.0.0.1:{peer_port(peer)}") as same:
        try:
            same.eval("return redis.call(ARGV[1], 'probe', '1', '1')", 0, command)
        except redis.exceptions.ResponseError as answer:
            if f"'{command}'" in str(answer):
                assert f"'{command}'" in text


def peer_port(peer: redis.Redis) -> int:
    return int(peer.connection_pool.connection_kwargs["port"])


def try_everything(stage: Stage, wire: Wire, command: str, actions: list[Action]) -> dict[str, str]:
    """Run each action once; the right is taken away after the action's preparation and given back afterwards."""
    outcomes: dict[str, str] = {}
    for scripts, prepare in actions:
        name = next(NAMES)
        action = prepare(stage, name)
        stage.acl(f"-{command}")
        try:
            error = refused(action)
        except (redlock.LockError, AssertionError) as wrong:
            outcomes[prepare.__name__] = f"wrong: {wrong!r}"
        else:
            outcomes[prepare.__name__] = "refused" if error else "done"
            if error is not None:
                assert_names_the_right(error, command, stage.peers[0])
                if command != "evalsha" and not any(command in commands_of(script, wire) for script in scripts):
                    outcomes[prepare.__name__] = f"wrong: needs no {command}, but {error!r}"
        stage.assert_every_lock_ends()
        stage.acl(f"+{command}")
        # Nothing is broken permanently: once the right is back, the same client works again.
        lock = stage.limited.lock(next(NAMES))
        lease = bounded(lambda lock=lock: lock.acquire(timeout=10))  # type: ignore[misc]
        assert held(lease).release() == "released"
    assert [outcome for outcome in outcomes.items() if outcome[1].startswith("wrong")] == []
    return outcomes


@pytest.mark.parametrize(
    ("stage", "wire", "command"),
    [pytest.param((wire, 1), wire, command, id=f"{wire}-{command}") for wire, command in CASES],
    indirect=["stage"],
)
def test_one_right_missing(stage: Stage, wire: Wire, command: str, caplog: pytest.LogCaptureFixture) -> None:
    """On one server, each command of the scripts is refused in turn, in every action."""
    caplog.set_level(logging.DEBUG, "redlock")
    outcomes = try_everything(stage, wire, command, ACTIONS)
    assert PASSWORD not in caplog.text
    if command == "evalsha":
        assert {name for name, outcome in outcomes.items() if outcome == "done"} == {"release", "detach"}
    if command in ("eval", "publish", "spublish"):
        assert "refused" not in outcomes.values(), "works without, since the scripts are known and waiters poll"


@pytest.mark.parametrize(
    ("stage", "wire", "command"),
    [pytest.param((wire, 3), wire, command, id=f"{wire}-{command}") for wire, command in CASES],
    indirect=["stage"],
)
def test_one_right_missing_on_a_quorum(stage: Stage, wire: Wire, command: str) -> None:
    """On three servers, the same for what only a quorum does: provisioning nodes and writing tokens back."""
    # No client has used the deployment yet, so the first acquire has to write the markers.
    name = next(NAMES)
    stage.acl(f"-{command}")
    error = refused(acquire(stage, name))  # fails if the acquire reports that another owner holds the lock
    if error is not None:
        assert_names_the_right(error, command, stage.peers[0])
    stage.assert_every_lock_ends()
    stage.acl(f"+{command}")
    bounded(stage.full.init_nodes)
    try_everything(stage, wire, command, QUORUM_ACTIONS)


@pytest.mark.parametrize("stage", [("redisson", 3)], indirect=True, ids=[""])
@pytest.mark.parametrize("command", [*all_commands("redisson"), "eval", "evalsha", "info"])
def test_one_right_missing_on_one_node_of_three_changes_nothing(stage: Stage, command: str) -> None:
    """If one node of three refuses a command, acquires and releases succeed, as if that node were down."""
    with stage.full.lock("before"):
        pass
    acl(stage.peers[0], f"-{command}")
    for _ in range(3):
        lease = bounded(lambda: stage.limited.lock("x", ttl=3).acquire(timeout=5))
        assert bounded(held(lease).release) == "released"
    stage.assert_every_lock_ends()


# Commands that the library uses on one server and does not need.
COMFORTS = [
    "client|kill",
    "client|info",
    "client|list",
    "client|setinfo",
    "client|setname",
    "config|get",
    "hello",
    "info",
    "ping",
    "publish",
    "subscribe",
]


@pytest.mark.parametrize("stage", [("redisson", 1)], indirect=True, ids=[""])
@pytest.mark.parametrize("command", COMFORTS)
def test_works_without_comforts(stage: Stage, command: str, caplog: pytest.LogCaptureFixture) -> None:
    """Two owners contend for a lock and one lacks an optional right: both acquire it, with one warning at most."""
    caplog.set_level(logging.DEBUG, "redlock")
    if command == "client|setinfo" and "client|setinfo" not in known_commands(stage.peers[0]):
        pytest.skip("this server has no CLIENT SETINFO")
    stage.acl(f"-{command}")
    peer, channel = stage.peers[0], "redisson_lock__channel:{x}"
    for number in range(2):
        peer.acl_log_reset()
        with stage.full.lock("x"):
            obtained: list[redlock.Lease | None] = []
            waiter = threading.Thread(target=lambda to: to.append(stage.limited.lock("x").acquire()), args=(obtained,))
            waiter.start()
            if command != "subscribe":
                eventually(lambda: peer.pubsub_numsub(channel)[0][1] > 0)
            elif number == 0:
                eventually(lambda: any(entry["object"] == "subscribe" for entry in peer.acl_log()))
        waiter.join(20)
        assert not waiter.is_alive()
        assert held(obtained[0]).held
        assert stage.full.lock("x").acquire(blocking=False) is None
        assert held(obtained[0]).release() == "released"
        held(stage.full.lock("x").acquire(timeout=10)).release()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) <= 1, warnings
    if command == "subscribe":
        assert len(warnings) == 1
        assert "subscribe" in warnings[0].lower()
    assert PASSWORD not in caplog.text
    stage.assert_every_lock_ends()


def known_commands(peer: redis.Redis) -> set[str]:
    """The commands and subcommands of the ACL category `connection` that the server knows, those of CLIENT included."""
    return {name.decode() for name in peer.execute_command("ACL", "CAT", "connection")}


@pytest.mark.parametrize("stage", [("redisson", 1)], indirect=True, ids=[""])
def test_lost_replies_without_client_kill(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Without CLIENT KILL, an acquire whose reply was lost is still released, and exactly one warning is logged."""
    with stage.full.lock("warm"):
        pass
    stage.acl("-client|kill")
    with Proxy(stage.servers[0].port) as proxy, redlock.Redlock(url(proxy), reply_timeout=1) as client:
        for number in range(3):
            with client.lock("unrelated"):
                pass
            name = f"lost-reply-{number}"
            proxy.lose_reply(name.encode())
            if (lease := refused_or(lambda name=name: client.lock(name).acquire(timeout=5))) is not None:  # type: ignore[misc]
                lease.release()
            assert proxy.lost.is_set()
            # The ttl is 30 s, so the key did not expire.
            eventually(lambda name=name: not stage.peers[0].exists(name), within=10)  # type: ignore[misc]
    warnings = [record.getMessage() for record in caplog.records if "kill" in record.getMessage().lower()]
    assert len(warnings) == 1, caplog.text


def refused_or(action: Callable[[], redlock.Lease | None]) -> redlock.Lease | None:
    """The result of the action, or None if it raised `Unavailable`."""
    try:
        return bounded(action)
    except redlock.Unavailable:
        return None


def documented_rules() -> list[str]:
    """The ACL rules that `docs/deployments.md` gives as sufficient for a server."""
    page = (ROOT / "docs" / "deployments.md").read_text()
    lines = re.findall(r"^ACL SETUSER locks on >secret (.+ ~app:.+)$", page, re.M)
    assert len(lines) == 1
    return str(lines[0]).split()


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("wire", WIRES)
def test_the_documented_rights_are_enough(
    machines: list[Server], wire: Wire, nodes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With exactly the documented rights, no command is refused and no warning is logged."""
    caplog.set_level(logging.DEBUG, "redlock")
    servers = machines[:nodes]
    options: redlock.ClientOptions = {"wire": wire, "watchdog": 2, "prefix": "app:"}
    with ExitStack() as stack:
        peers = [stack.enter_context(redis.Redis.from_url(server.url)) for server in servers]
        for peer in peers:
            peer.flushall()
            acl(peer, "reset", "on", f">{PASSWORD}", *documented_rules())
            peer.acl_log_reset()
        full = stack.enter_context(redlock.Redlock([server.url for server in servers], **options))
        limited = stack.enter_context(redlock.Redlock([url(server) for server in servers], **options))
        stage = Stage(servers, peers, limited, full)
        for _, prepare in [*ACTIONS, *(QUORUM_ACTIONS if nodes > 1 else [])]:
            error = refused(prepare(stage, next(NAMES)))
            assert error is None, f"{prepare.__name__}: {error}"
        with stage.full.lock("waited for"):
            obtained: list[redlock.Lease | None] = []
            waiter = threading.Thread(target=lambda: obtained.append(limited.lock("waited for").acquire()))
            waiter.start()
            # A waiter subscribes on a majority, which differs with the addresses of the nodes.
            channel = "redisson_lock__channel:{app:waited for}"
            eventually(lambda: sum(peer.pubsub_numsub(channel)[0][1] for peer in peers) > nodes // 2)
        waiter.join(20)
        assert held(obtained[0]).release() == "released"
        denied = {entry["object"] for peer in peers for entry in peer.acl_log()}
        # These commands are optional. Servers before 7.2 do not know the first one.
        assert denied <= {"client|setinfo", "client|setname", "client|list"}
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
