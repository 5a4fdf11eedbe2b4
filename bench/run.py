"""Measures redlock against its peers: run.py [--smoke] [--only SUITE,…] [--rounds N]. See README.md."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import platform
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "python" / "tests"))

from servers import Server  # noqa: E402

RESULTS = HERE / "results"


def commands(root: Path) -> dict[str, list[str]]:
    """Say how the contenders of a checkout are started."""
    bench = root / "bench"
    python = sys.executable if root == ROOT else str(bench / ".venv" / "bin" / "python")
    rust = os.environ.get("BENCH_RUST") if root == ROOT else None
    return {
        "Rust": [rust or str(root / "target" / "release" / "contender")],
        "Python": [python, str(bench / "python" / "contender.py")],
        "Node": ["node", "--no-warnings", str(bench / "node" / "contender.mjs")],
        "JVM": ["java", "-jar", str(bench / "jvm" / "target" / "contender.jar")],
    }


@functools.cache
def bare_scripts(root: Path) -> str:
    """Say, in JSON, what the bare clients send: the scripts of the checkout."""
    return subprocess.run([*commands(root)["Rust"], "scripts"], stdout=subprocess.PIPE, text=True, check=True).stdout


OURS: dict[str, list[str]] = {
    "Rust": ["redlock", "redlock-blocking"],
    "Python": ["redlock-sync", "redlock-asyncio"],
    "Node": ["redlock-core"],
    "JVM": ["redlock", "redlock-java"],
}
PEERS: dict[str, list[str]] = {
    "Rust": ["bare", "bare-blocking", "rslock"],
    "Python": ["bare-sync", "bare-asyncio", "redis-py-sync", "redis-py-asyncio", "python-redis-lock", "pottery"],
    "Node": ["bare", "setnx", "redlock", "@sesamecare-oss/redlock", "redis-semaphore", "redlock-universal"],
    "JVM": ["bare", "redisson-rlock", "redisson-rfenced"],
}


def is_floor(library: str) -> bool:
    """Say whether it is a bare client, which cannot wait for a lock."""
    return library.split("-")[0] in ("bare", "setnx")


class Failed(Exception):
    """A contender could not do what it was asked for."""


class Contender:
    """A process that takes locks with one library."""

    def __init__(self, language: str, library: str, servers: list[Server], root: Path = ROOT) -> None:
        self.language, self.library, self.version = language, library, ""
        environment = {**os.environ, "REDIS_URLS": ",".join(server.url for server in servers)}
        if library.startswith("bare"):
            environment["BENCH_SCRIPTS"] = bare_scripts(root)
        self._process = subprocess.Popen(
            [*commands(root)[language], library],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __repr__(self) -> str:
        return f"{self.language} {self.library}"

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def tell(self, **work: Any) -> None:
        """Have it begin."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(work) + "\n")
        self._process.stdin.flush()

    def answer(self, within: float) -> dict[str, Any] | None:
        """Return what it answered; `None` when the library cannot do this."""
        try:
            line = self._lines.get(timeout=within)
        except queue.Empty:
            raise Failed(f"{self!r} did not answer within {within} s") from None
        if not line:
            raise Failed(f"{self!r} ended with {self._process.wait(10)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(f"{self!r}: {answer['error']}")
        return None if "unsupported" in answer else answer

    def ask(self, within: float = 60, **work: Any) -> dict[str, Any] | None:
        """Have it work, and return the answer."""
        self.tell(**work)
        return self.answer(within)

    def ready(self) -> bool:
        """Wait until it is connected; false when the library cannot serve such nodes."""
        answer = self.answer(60)
        if answer:
            self.version = f"{answer['version']}, {answer['runtime']}"
        return answer is not None

    def cpu(self) -> float:
        """Return how much CPU it used, in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Arena:
    """Servers and contenders for one suite; all end with it."""

    def __init__(self, nodes: int = 1) -> None:
        self._stack = contextlib.ExitStack()
        self.servers = [self._stack.enter_context(Server()) for _ in range(nodes)]

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def enter(self, wanted: list[tuple[str, str]], root: Path = ROOT) -> list[Contender]:
        """Start contenders, of this checkout or another; without those that cannot serve such nodes."""
        started = [Contender(language, library, self.servers, root) for language, library in wanted]
        for contender in started:
            self._stack.callback(contender.close)
        return [contender for contender in started if contender.ready()]

    def leave(self, contenders: list[Contender]) -> None:
        """End some of them early."""
        for contender in contenders:
            contender.close()

    def calls(self) -> dict[str, int]:
        """Return how often each command ran on the first server."""
        stats = {}
        for line in self.servers[0].command("INFO", "commandstats").splitlines():
            if line.startswith("cmdstat_"):
                name, rest = line.removeprefix("cmdstat_").split(":calls=")
                stats[name] = int(rest.split(",")[0])
        return stats

    def reset(self) -> None:
        """Start counting commands anew."""
        self.servers[0].command("CONFIG", "RESETSTAT")

    def cpu(self) -> float:
        """Return how much CPU the servers used, in seconds; a frozen one cannot say, and uses none."""
        used = 0.0
        for server in self.servers:
            if server.up:
                text = server.command("INFO", "cpu")
                fields = dict(line.split(":") for line in text.splitlines() if ":" in line)
                used += float(fields["used_cpu_user"]) + float(fields["used_cpu_sys"])
        return used


class Bench:
    """What is measured, and how long."""

    def __init__(self, smoke: bool, rounds: int, languages: list[str]) -> None:
        self.smoke, self.languages = smoke, languages
        self.rounds = 2 if smoke else rounds
        self.slice = 0.05 if smoke else 0.4
        self.failures: list[str] = []

    def everybody(self) -> list[tuple[str, str]]:
        return [(language, library) for language in self.languages for library in OURS[language] + PEERS[language]]

    def who_waits(self) -> list[tuple[str, str]]:
        """All that can wait for a lock: the bare clients cannot."""
        return [(language, library) for language, library in self.everybody() if not is_floor(library)]

    def rows(self, arena: Arena, contenders: list[Contender], work: dict[str, Any]) -> list[dict[str, Any]]:
        """Measure a work in rounds, each beginning with another contender."""
        seen: dict[Contender, list[dict[str, Any]]] = {contender: [] for contender in contenders}
        for turn in range(self.rounds + 1):
            first = turn % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                if turn and not seen[contender] and turn > 1:
                    continue  # not supported
                client, server = contender.cpu(), arena.cpu()
                answer = contender.ask(seconds=self.slice, **work)
                if answer and turn:  # the first round warms up
                    pairs = max(1, answer["count"])
                    answer |= {"client": (contender.cpu() - client) / pairs, "server": (arena.cpu() - server) / pairs}
                    seen[contender].append(answer)
        rows = []
        for contender, answers in seen.items():
            if answers:
                rows.append(
                    {
                        "language": contender.language,
                        "library": contender.library,
                        "version": contender.version,
                        "rates": [answer["count"] / answer["seconds"] for answer in answers],
                        "p50": statistics.median(answer["p50"] for answer in answers),
                        "p99": statistics.median(answer["p99"] for answer in answers),
                        "client": [answer["client"] for answer in answers],
                        "server": [answer["server"] for answer in answers],
                    }
                )
        return rows

    def pairs(self) -> Any:
        """Uncontended acquire and release: one after the other, a hundred in bursts and each by itself, nested."""
        works = {
            "sequential": {"work": "pair"},
            "100 at once": {"work": "parallel", "at_once": 100},
            "100 independent": {"work": "independent", "at_once": 100},
            "nested": {"work": "nested"},
        }
        result: dict[str, list[Any]] = {kind: [] for kind in works}
        for language in self.languages:
            with Arena() as arena:
                contenders = arena.enter([(language, library) for library in OURS[language] + PEERS[language]])
                for kind, work in works.items():
                    result[kind] += self.rows(arena, contenders, {**work, "prefix": "uncontended"})
        return result

    def growth(self) -> Any:
        """More and more locks at once: ours and, as far as its connections go, the floor."""
        result: dict[str, list[Any]] = {}
        for language in self.languages:
            with Arena() as arena:
                floor = [library for library in PEERS[language] if is_floor(library)]
                contenders = arena.enter([(language, library) for library in OURS[language] + floor])
                for size in (1, 10, 100, 1_000):
                    work = {"work": "parallel", "at_once": size, "prefix": "growing"}
                    able = [one for one in contenders if size <= 100 or not is_floor(one.library)]
                    result.setdefault(str(size), []).extend(self.rows(arena, able, work))
        return result

    def quorum(self) -> Any:
        """The same on three and five nodes, all well and with one of them frozen."""
        result: dict[str, Any] = {}
        for nodes in (1, 3) if self.smoke else (1, 3, 5):
            with Arena(nodes) as arena:
                contenders = arena.enter(self.everybody())
                result[f"{nodes}"] = self.rows(arena, contenders, {"work": "pair", "prefix": "uncontended"})
                if nodes > 1:
                    arena.servers[-1].freeze()
                    ours = [contender for contender in contenders if contender.library in OURS[contender.language]]
                    result[f"{nodes}, one frozen"] = self.rows(arena, ours, {"work": "pair", "prefix": "uncontended"})
                    arena.servers[-1].thaw()
        return result

    def handoff(self) -> Any:
        """Processes on one lock, 2 ms each: how soon the next has it, who waits longest, what it costs."""
        result = []
        seconds = 0.5 if self.smoke else 3.0
        for processes in (2,) if self.smoke else (2, 4, 8):
            with Arena() as arena:
                for turn, (language, library) in itertools.product(range(1 if self.smoke else 3), self.who_waits()):
                    contenders = arena.enter([(language, library)] * processes)
                    if not contenders:
                        continue
                    for contender in contenders:
                        contender.ask(work="pair", seconds=0.1, prefix="warm")
                    arena.reset()
                    until = time.monotonic_ns() + int(seconds * 1e9)
                    name = f"shared-{turn}-{language}-{library}"
                    for contender in contenders:
                        contender.tell(work="contend", name=name, hold=0.002, rest=0.002, until=until)
                    answers = [contender.answer(60) for contender in contenders]
                    calls = arena.calls()
                    version = contenders[0].version
                    arena.leave(contenders)
                    turns = [answer["turns"] for answer in answers if answer]
                    row = {"processes": processes, "language": language, "library": library, "version": version}
                    result.append({**row, **handed_over(turns, calls)})
        return result

    def herd(self) -> Any:
        """Many waiters of one process on one lock, which is released."""
        result = []
        sizes = (50,) if self.smoke else (200, 1_000, 10_000)
        for size in sizes:
            for language, library in self.who_waits():
                with Arena() as arena:
                    for contender in arena.enter([(language, library)]):
                        contender.ask(work="pair", seconds=0.1, prefix="warm")
                        arena.reset()
                        try:
                            answer = contender.ask(work="herd", name="herd", waiters=size, within=90)
                        except Failed as error:
                            self.failures.append(str(error))
                            continue
                        if answer:
                            calls = scripts(arena.calls())
                            row = {"language": language, "library": library, "version": contender.version}
                            result.append({"waiters": size, **row, **answer, "calls": calls / size})
        return result

    def watchdog(self) -> Any:
        """Locks that are held for minutes: what keeping them costs."""
        result = []
        for count in (100,) if self.smoke else (1_000, 10_000, 100_000):
            seconds = 1 if self.smoke else 300 if count == 100_000 else 60
            with Arena() as arena:
                (contender,) = arena.enter([("Rust", "redlock")])
                arena.servers[0].command("CONFIG", "SET", "slowlog-log-slower-than", "0")
                contender.tell(work="hold", count=count, seconds=seconds)
                time.sleep(seconds / 3)
                before, began = arena.cpu(), time.monotonic()
                arena.servers[0].command("SLOWLOG", "RESET")
                arena.servers[0].command("CONFIG", "SET", "slowlog-log-slower-than", "200")
                time.sleep(seconds / 3)
                used, took = arena.cpu() - before, time.monotonic() - began
                slow = arena.servers[0].command("SLOWLOG", "GET", "-1")
                answer = contender.answer(seconds * 3 + 60)
                assert answer
                slowest = max((entry[2] for entry in slow), default=200)
                row = {"held": count, "client": answer["cpu"] / answer["kept"], "server": used / took}
                result.append({**row, "slowest": slowest / 1e6, **answer})
        return result


def scripts(calls: dict[str, int]) -> int:
    """Count what clients sent to take and release locks: scripts, or single commands of libraries without."""
    inner = ("evalsha", "eval", "evalsha_ro", "set", "blpop")
    sent = sum(calls.get(name, 0) for name in inner[:3])
    # `set` counts those inside scripts too: only libraries whose scripts do not use it send it themselves.
    return (
        sent
        + (calls.get("blpop", 0))
        + (calls.get("set", 0) if not calls.get("hset") and not calls.get("hincrby") else 0)
    )


def handed_over(turns: list[list[list[int]]], calls: dict[str, int]) -> dict[str, Any]:
    """Say how soon the next process had the lock, of those that were waiting for it when it was released."""
    grants = sorted(
        (granted, asked, releasing, number) for number, of in enumerate(turns) for asked, granted, releasing, _ in of
    )
    gaps, overlaps = [], 0
    for (_, _, releasing, holder), (granted, asked, _, number) in itertools.pairwise(grants):
        overlaps += granted < releasing
        if number != holder and asked < releasing:
            gaps.append((granted - releasing) / 1e9)
    waits = [(granted - asked) / 1e9 for of in turns for asked, granted, _, _ in of]
    counts = [len(of) for of in turns]
    gaps.sort()
    at = lambda share: gaps[int((len(gaps) - 1) * share)] if gaps else None  # noqa: E731
    return {
        "grants": len(grants),
        "overlaps": overlaps,
        "handoffs": len(gaps),
        "p50": at(0.5),
        "p99": at(0.99),
        "worst_wait": max(waits, default=None),
        "fairness": min(counts) / max(counts) if counts and max(counts) else None,
        "calls": scripts(calls) / max(1, len(grants)),
    }


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Keep each core from its sleep states, as those of a busy machine are, without taking time from anybody."""
    code = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main() -> int:
    suites = ["pairs", "growth", "quorum", "handoff", "herd", "watchdog"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="only whether everything runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(suites), help="some of " + ", ".join(suites))
    parser.add_argument("--languages", default=",".join(OURS))
    parser.add_argument("--sleepy", action="store_true", help="let cores sleep between two requests")
    arguments = parser.parse_args()
    languages = arguments.languages.split(",")
    bench = Bench(arguments.smoke, arguments.rounds, languages)
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / ("smoke.json" if arguments.smoke else "results.json")
    results = json.loads(target.read_text()) if target.exists() and not arguments.smoke else {}
    redis = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    results["machine"] = {
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "redis": redis.removeprefix("v="),
    }
    with contextlib.nullcontext() if arguments.sleepy else awake():
        for suite in arguments.only.split(","):
            print(f"== {suite}", flush=True)
            results[suite] = getattr(bench, suite)()
            # After each, so that what was measured is kept.
            target.write_text(json.dumps(results, indent=1) + "\n")
    for failure in bench.failures:
        print(failure, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
