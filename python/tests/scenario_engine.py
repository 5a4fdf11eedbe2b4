"""The verbs of the shared scenarios in Python, for threads and for asyncio alike.

It owns what their words mean: calls of the library, faults as something done to a server, and the judgement of each
step, as `tests/scenarios/README.md` defines them. Who runs an actor's steps, a thread or a task, is the runner's,
`test_scenarios.py`. The verbs are written once: a call of the asyncio library is awaited, one of the sync library has
returned already.
"""

from __future__ import annotations

import inspect
import json
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Protocol

import redlock
from servers import Server

Step = dict[str, Any]
PATIENCE = 15.0
DIRECTORY = Path(__file__).parents[2] / "tests" / "scenarios"


class Host(Protocol):
    """Runs what actors do."""

    library: Any

    def start(self, actor: str, work: Any) -> Future[Any]: ...
    def cancel(self, actor: str, future: Future[Any]) -> None: ...
    def close(self) -> None: ...


def scenarios() -> dict[str, Step]:
    """Every scenario by theme and name."""
    files = sorted(DIRECTORY.glob("*.json"))
    return {f"{file.stem}: {one['name']}": one for file in files for one in json.loads(file.read_text())}


def text(value: Any) -> str:
    return value[0] * value[1] if isinstance(value, list) else value


def seconds(value: Any) -> Any:
    return value if value == "adaptive" else float("nan") if value == "nan" else value / 1000


def options(given: Step) -> Step:
    """Options as Python spells them: times in seconds."""
    plain = {name: float("nan") if value == "nan" else value for name, value in given.items()}
    return {
        name.removesuffix("_ms"): seconds(value) if name.endswith("_ms") else value for name, value in plain.items()
    }


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


class World:
    """One scenario with its servers, clients and leases."""

    def __init__(self, scenario: Step, host: Host) -> None:
        self.scenario, self.host = scenario, host
        self.nodes = [Server().start() for _ in range(scenario.get("nodes", 1))]
        self.clients: dict[str, Any] = {}
        self.leases: dict[str, Any] = {}
        self.homes: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.cycles: dict[str, tuple[bool, int]] = {}

    def client(self, actor: str) -> Any:
        shared = self.scenario.get("clients", {}).items()
        name, own = next(((name, own) for name, own in shared if actor in own["actors"]), (actor, {}))
        if name not in self.clients:
            given = {**self.scenario.get("options", {}), **own}
            given.pop("actors", None)
            self.clients[name] = self.host.library.Redlock([node.url for node in self.nodes], **options(given))
        return self.clients[name]

    def lock(self, step: Step) -> Any:
        given = {key: step[key] for key in ("ttl_ms", "wait_ms", "max_hold_ms", "reentrant") if key in step}
        if "owner" in step:
            given["owner"] = text(step["owner"])
        return self.client(step["by"]).lock(text(step["lock"]), **options(given))

    def keep(self, step: Step, lease: Any) -> Step:
        if lease is None:
            raise redlock.LockTimeout("not obtained in time")
        assert lease.token > 0
        assert "lock" not in step or lease.name == text(step["lock"])
        # One without a name is held to the end all the same.
        name = step.get("as", f"unnamed {len(self.leases)}")
        self.leases[name], self.homes[name] = lease, step["by"]
        return {"token": lease.token, "name": lease.name, "owner": lease.owner}

    async def cycle(self, step: Step) -> None:
        name = step["lock"]
        for _ in range(step["times"]):
            lease = await settle(self.lock(step).acquire())
            inside, last = self.cycles.get(name, (False, 0))
            self.cycles[name] = (True, lease.token)
            assert not inside, "two are inside"
            assert last < lease.token, f"token {lease.token} after {last}"
            self.cycles[name] = (False, lease.token)
            assert await settle(lease.release()) == "released"

    async def perform(self, step: Step) -> Any:
        """Do what a step says, on its actor's thread or task."""
        match step["do"]:
            case "acquire":
                return self.keep(step, await settle(self.lock(step).acquire()))
            case "try_acquire":
                return self.keep(step, await settle(self.lock(step).acquire(blocking=False)))
            case "unlock":
                return await settle(self.lock(step).release())
            case "owned":
                return self.lock(step).owned()
            case "locked":
                return await settle(self.lock(step).locked())
            case "inspect":
                info = await settle(self.lock(step).inspect())
                return info and {"owner": info.owner, "token": info.token, "ttl_ms": info.ttl and info.ttl * 1000}
            case "force_release":
                return await settle(self.client(step["by"]).force_release(text(step["lock"])))
            case "cycle":
                return await self.cycle(step)
            case "attach":
                known = self.texts.get(step["text"], step["text"])
                return self.keep(step, await settle(self.client(step["by"]).attach(known)))
            case "close":
                return await settle(self.client(step["by"]).close())
            case "client":
                urls = step["options"].get("urls", ["{0}"] if len(self.nodes) == 1 else [n.url for n in self.nodes])
                given = {key: value for key, value in step["options"].items() if key != "urls"}
                client = self.host.library.Redlock(
                    [u.replace("{0}", self.nodes[0].url) for u in urls], **options(given)
                )
                return await settle(client.close())
        lease = self.leases[step["lease"]]
        match step["do"]:
            case "release":
                return await settle(lease.release())
            case "held":
                return lease.held
            case "remaining":
                return lease.remaining() * 1000
            case "check":
                return lease.check()
            case "extend":
                return await settle(lease.extend(seconds(step["ttl_ms"])))
            case "detach":
                self.texts[step.get("as", "")] = lease.detach()
                return None
            case "wait_lost":
                return lease.lost.reason if await settle(lease.lost.wait()) else None
        raise AssertionError(f"unknown verb {step['do']}")

    def on_nodes(self, step: Step) -> list[Any]:
        """Do something to, or look at, each of the nodes a step is about."""
        chosen = step.get("node", [number for number, node in enumerate(self.nodes) if node.up])
        return [self.on_node(step, self.nodes[number]) for number in (chosen if isinstance(chosen, list) else [chosen])]

    def on_node(self, step: Step, node: Server) -> Any:
        key = step.get("key", "")
        match step["do"]:
            case "stop_node":
                node.kill()
            case "start_node":
                node.start()
            case "freeze_node":
                node.freeze()
            case "thaw_node":
                node.thaw()
            case "flush_node":
                node.command("FLUSHALL")
            case "steal":
                node.command("DEL", key)
            case "put":
                node.command(*(["HSET", key, "somebody", 1] if step["type"] == "hash" else ["SET", key, "somebody"]))
                if "ttl_ms" in step:
                    node.command("PEXPIRE", key, step["ttl_ms"])
            case "expire":
                node.command("PEXPIRE", key, step["ttl_ms"])
            case "type":
                return node.command("TYPE", key)
            case "exists":
                return bool(node.command("EXISTS", key))
            case "until" if "exists" in step:
                return bool(node.command("EXISTS", key)) == step["exists"]
            case "until":
                channel = "redisson_lock__channel:" + (key if "{" in key else f"{{{key}}}")
                return node.command("PUBSUB", "NUMSUB", channel)[1] == step["waiting"]
            case verb:
                raise AssertionError(f"unknown verb {verb}")
        return None

    def start(self, step: Step) -> Future[Any]:
        """Start a step where it belongs; its result is (value, error, ms)."""
        started = time.monotonic()

        async def work() -> Any:
            value = error = None
            try:
                value = await self.perform(step)
            except redlock.LockError as raised:
                error = raised
            return value, error, (time.monotonic() - started) * 1000

        return self.host.start(self.actor(step), work)

    def actor(self, step: Step) -> str:
        return step.get("by") or self.homes[step["lease"]]

    def run(self) -> None:
        """Run the steps; raise for the first that does not do what it must."""
        spawned: dict[str, tuple[Step, Future[Any]]] = {}
        try:
            for index, step in enumerate(self.scenario["steps"]):
                try:
                    self.step(step, spawned)
                except Exception as error:
                    raise AssertionError(f"step {index} {json.dumps(step)}: {error or type(error).__name__}") from error
            assert not spawned, f"left running: {list(spawned)}"
        finally:
            for node in self.nodes:
                node.stop()
            self.host.close()

    def step(self, step: Step, spawned: dict[str, tuple[Step, Future[Any]]]) -> None:
        started = time.monotonic()
        match step:
            case {"spawn": id}:
                spawned[id] = (step, self.start(step))
                return None
            case {"do": "sleep", "ms": ms}:
                time.sleep(ms / 1000)
            case {"do": "until"}:
                while not all(self.on_nodes(step)):
                    assert time.monotonic() - started < PATIENCE, "it did not become so"
                    time.sleep(0.005)
            case {"do": "join", "id": id}:
                judged, future = spawned.pop(id)
                self.judge(judged, *future.result(PATIENCE))
            case {"do": "cancel", "id": id}:
                cancelled, future = spawned.pop(id)
                self.host.cancel(self.actor(cancelled), future)
                try:
                    raise AssertionError(f"it was over before: {future.result(PATIENCE)}")
                except CancelledError:
                    pass
            case {"by": _} | {"lease": _}:
                return self.judge(step, *self.start(step).result(PATIENCE))
            case _:
                seen = self.on_nodes(step)
                assert all(one == seen[0] for one in seen), f"the nodes differ: {seen}"
                return self.judge(step, seen[0], None, (time.monotonic() - started) * 1000)
        limits(step, (time.monotonic() - started) * 1000)
        return None

    def judge(self, step: Step, value: Any, error: redlock.LockError | None, took: float) -> None:
        """Raise unless a step ended as it must."""
        shown = f"not {value!r}" if error is None else f"not {type(error).__name__}: {error}"
        assert (error and error.code) == step.get("error"), f"ends with {step.get('error', 'success')}, {shown}"
        if error is not None:
            message = str(error)
            assert step.get("reason") in (None, getattr(error, "reason", "")), f"another reason, {shown}"
            assert plain(step.get("argument", "")) in plain(message), f"names the argument, {shown}"
            assert step.get("says", "") in message, f"says so, {shown}"
            assert "hides" not in step or step["hides"] not in message, f"hides it, {shown}"
            for number in step.get("causes", []):
                assert self.nodes[number].url.removeprefix("redis://") in message, f"names node {number}, {shown}"
        elif "equals" in step:
            wanted = step["equals"]
            same = {key: value[key] for key in wanted} == wanted if isinstance(wanted, dict) else value == wanted
            assert same, f"equals {wanted!r}, {shown}"
        above = step.get("greater_than", [])
        for name in above if isinstance(above, list) else [above]:
            assert value["token"] > self.leases[name].token, f"a greater token than that of {name}, {shown}"
        if "same_as" in step:
            assert value["token"] == self.leases[step["same_as"]].token, f"the same token, {shown}"
        if "owned_by" in step:
            assert value["owner"] == self.leases[step["owned_by"]].owner, f"the same owner, {shown}"
        assert step.get("min", float("-inf")) <= value if "min" in step else True, f"at least {step['min']}, {shown}"
        assert value <= step["max"] if "max" in step else True, f"at most {step['max']}, {shown}"
        limits(step, took)


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def limits(step: Step, took: float) -> None:
    assert took <= step.get("within_ms", PATIENCE * 1000), f"took {took:.0f} ms"
    assert took >= step.get("at_least_ms", 0), f"took only {took:.0f} ms"
