"""Measures redlock against its peers: run.py [--smoke] [--only SUITE,…] [--rounds N]. See README.md."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import math
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
    """Return the commands that start the contenders of a checkout."""
    bench = root / "bench"
    python = sys.executable if root == ROOT else str(bench / ".venv" / "bin" / "python")
    rust = os.environ.get("BENCH_RUST") if root == ROOT else None
    return {
        "Rust": [rust or str(root / "target" / "release" / "bench-contender")],
        "Python": [python, str(bench / "python" / "contender.py")],
        "Node": ["node", "--no-warnings", str(bench / "node" / "contender.mjs")],
        "JVM": ["java", "-jar", str(bench / "jvm" / "target" / "contender.jar")],
    }


@functools.cache
def bare_scripts(root: Path) -> str:
    """Return, as JSON, the checkout's scripts, which the bare clients send."""
    return subprocess.run([*commands(root)["Rust"], "scripts"], stdout=subprocess.PIPE, text=True, check=True).stdout


OURS: dict[str, list[str]] = {
    "Rust": ["redlock", "redlock-blocking"],
    "Python": ["redlock-sync", "redlock-asyncio"],
    "Node": ["redlock-core"],
    "JVM": ["redlock", "redlock-java"],
}
# Ours with the format of `SET name value NX PX`, measured beside the libraries that write the same.
TOKEN_WIRE = {"Rust": ["redlock-token"]}
# Ours with fair locks, measured beside ours without.
FAIR = {"Rust": ["redlock-fair"], "Python": ["redlock-fair"]}
# The kinds of locks of each library that has read/write locks or semaphores, ours first. `redisson-rlock` has
# Redisson's `RReadWriteLock` and `RPermitExpirableSemaphore`.
KINDS = ("lock", "read", "write", "semaphore")
SHARED = {
    "Rust": {"redlock": KINDS},
    "Python": {"redlock-asyncio": KINDS},
    "Node": {"redlock-core": KINDS, "redis-semaphore": ("semaphore",)},
    "JVM": {"redlock": KINDS, "redisson-rlock": KINDS},
}
PEERS: dict[str, list[str]] = {
    "Rust": ["bare", "bare-blocking", "rslock"],
    "Python": ["bare-sync", "bare-asyncio", "redis-py-sync", "redis-py-asyncio", "python-redis-lock", "pottery"],
    "Node": ["bare", "setnx", "redlock", "@sesamecare-oss/redlock", "redis-semaphore", "redlock-universal"],
    "JVM": ["bare", "redisson-rlock", "redisson-rfenced"],
}


# Libraries whose acquire is a `SET` by itself; with the others `SET` is a part of scripts.
SENDS_SET = {
    *("rslock", "redis-py-sync", "redis-py-asyncio", "python-redis-lock", "pottery"),
    *("setnx", "redis-semaphore", "redlock-universal"),
}


def is_ours(language: str, library: str) -> bool:
    return library in OURS[language] + TOKEN_WIRE.get(language, []) + FAIR.get(language, [])


def is_floor(library: str) -> bool:
    """Return whether it is a bare client, which cannot wait for a lock."""
    return library.split("-")[0] in ("bare", "setnx")


class Failed(Exception):
    """A contender could not do its work."""


class Contender:
    """A process that acquires and releases locks with one library."""

    def __init__(
        self, language: str, library: str, servers: list[Server], root: Path = ROOT, token_ttl: int | None = None
    ) -> None:
        self.language, self.library, self.version = language, library, ""
        environment = {**os.environ, "REDIS_URLS": ",".join(server.url for server in servers)}
        if token_ttl:
            environment["BENCH_TOKEN_TTL"] = str(token_ttl)
            # Limits the heap, so that the figure is the memory that is kept. By default a heap may grow to a quarter of
            # the machine.
            environment["JDK_JAVA_OPTIONS"] = "-Xmx128m"
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
        """Send it a work, without waiting for the answer."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(work) + "\n")
        self._process.stdin.flush()

    def answer(self, within: float) -> dict[str, Any] | None:
        """Return its next answer; `None` when the library cannot do this work."""
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
        """Send it a work, and return the answer."""
        self.tell(**work)
        return self.answer(within)

    def ready(self) -> bool:
        """Wait until it is connected; false when the library does not support such nodes."""
        answer = self.answer(60)
        if answer:
            self.version = f"{answer['version']}, {answer['runtime']}"
        return answer is not None

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu(self) -> float:
        """Return how much CPU time it used, in seconds."""
        # clock_getcpuclockid(3): the id of a process's clock is computed from the pid.
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def leave(self) -> None:
        """Close its input, so that it ends."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """Close its input and wait for its end; kill it after 10 s."""
        self.leave()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Arena:
    """The servers and contenders of one suite; all of them end with it."""

    def __init__(self, nodes: int = 1) -> None:
        self._stack = contextlib.ExitStack()
        self._contenders: list[Contender] = []
        self.servers = [self._stack.enter_context(Server()) for _ in range(nodes)]

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        for contender in self._contenders:
            contender.leave()  # all at once: some take seconds
        self._stack.close()

    def enter(self, wanted: list[tuple[str, str]], root: Path = ROOT, token_ttl: int | None = None) -> list[Contender]:
        """Start contenders of this checkout or another; leave out those that do not support such nodes."""
        started = [Contender(language, library, self.servers, root, token_ttl) for language, library in wanted]
        self._contenders += started
        for contender in started:
            self._stack.callback(contender.close)
        return [contender for contender in started if contender.ready()]

    def commands(self, library: str) -> tuple[int, float]:
        """Return how many scripts and lock commands the servers ran for a library, and for how long, in seconds."""
        sent = {"evalsha", "eval", "evalsha_ro", "blpop", *(["set"] if library in SENDS_SET else [])}
        calls, took = 0, 0.0
        for server in self._well():
            for line in server.command("INFO", "commandstats").splitlines():
                name, _, rest = line.removeprefix("cmdstat_").partition(":")
                if name in sent:
                    fields = dict(field.split("=") for field in rest.split(","))
                    calls += int(fields["calls"])
                    took += int(fields["usec"]) / 1e6
        return calls, took

    def record_scripts(self, at_least: int = 0) -> None:
        """Start a record of the next scripts that take `at_least` so many µs, and of the time that each takes.

        The server also records the commands of a script, and the time for that is the script's. A limit above the time
        of a command, and below that of the scripts in question, leaves them out.
        """
        for server in self.servers:
            server.command("CONFIG", "SET", "slowlog-max-len", "100000")
            server.command("CONFIG", "SET", "slowlog-log-slower-than", str(at_least))
            server.command("SLOWLOG", "RESET")

    def recorded_scripts(self) -> list[tuple[str, float]]:
        """Return the SHA-1 of each such script since then, in order, and its time in seconds."""
        entries = [entry for server in self.servers for entry in server.command("SLOWLOG", "GET", "-1")]
        entries = sorted((entry for entry in entries if entry[3][0] == "EVALSHA"), key=lambda entry: entry[0])
        return [(entry[3][1], entry[2] / 1e6) for entry in entries]

    @contextlib.contextmanager
    def together(self, contender: Contender) -> Iterator[None]:
        """Let a contender and its server run on the same core; several servers stay where they are."""
        processes = [contender.pid, *(server.pid for server in self.servers)] if len(self.servers) == 1 else []
        every = os.sched_getaffinity(0)
        use_cores(processes, {max(every)})
        try:
            yield
        finally:
            use_cores(processes, every)

    def cpu(self) -> float:
        """Return how much CPU time the servers used, in seconds; a frozen one does not answer, and uses none."""
        fields = [self._info(server, "cpu") for server in self._well()]
        return sum(float(of["used_cpu_user"]) + float(of["used_cpu_sys"]) for of in fields)

    def memory(self) -> int:
        """Return how much memory the servers use, in bytes."""
        return sum(int(self._info(server, "memory")["used_memory"]) for server in self._well())

    def keys(self) -> int:
        return sum(server.command("DBSIZE") for server in self._well())

    def expire(self) -> None:
        """Make every key expire at once."""
        script = "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('PEXPIRE', key, 1) end"
        for server in self._well():
            server.command("EVAL", script, "0")

    def _well(self) -> list[Server]:
        return [server for server in self.servers if server.up]

    @staticmethod
    def _info(server: Server, section: str) -> dict[str, str]:
        return dict(line.split(":", 1) for line in server.command("INFO", section).splitlines() if ":" in line)


class Bench:
    """The suites, and how long each work takes."""

    def __init__(self, smoke: bool, rounds: int, languages: list[str]) -> None:
        self.smoke, self.languages = smoke, languages
        self.rounds = 1 if smoke else rounds
        self.slice = 0.05 if smoke else 0.4
        self.failures: list[str] = []

    def warm(self, contender: Contender) -> float:
        """Return for how long it works before it is measured, in seconds: meanwhile a JVM compiles."""
        return self.slice * (8 if contender.language == "JVM" and not self.smoke else 2)

    def everybody(self) -> list[tuple[str, str]]:
        return [(language, library) for language in self.languages for library in OURS[language] + PEERS[language]]

    def who_waits(self) -> list[tuple[str, str]]:
        """Return all contenders that can wait for a lock: bare clients cannot."""
        return [(language, library) for language, library in self.everybody() if not is_floor(library)]

    def rows(self, arena: Arena, contenders: list[Contender], work: dict[str, Any]) -> list[dict[str, Any]]:
        """Measure a work in rounds, each of which starts with another contender."""
        return self.turns(arena, [(contender, work, {}) for contender in contenders])

    def turns(
        self, arena: Arena, entries: list[tuple[Contender, dict[str, Any], dict[str, str]]]
    ) -> list[dict[str, Any]]:
        """Measure works in rounds, each of which starts with another one. An entry has the contender, its work, and
        the fields of its row.
        """
        seen: list[list[dict[str, Any]]] = [[] for _ in entries]
        for turn in range(self.rounds + 1):
            first = turn % len(entries)
            order = [*range(first, len(entries)), *range(first)]
            for at in order:
                contender, work, _ = entries[at]
                if not seen[at] and turn > 1:
                    continue  # not supported
                before = contender.cpu(), arena.cpu(), *arena.commands(contender.library)
                with arena.together(contender) if turn and takes_turns(work) else contextlib.nullcontext():
                    answer = contender.ask(seconds=self.slice if turn else self.warm(contender), **work)
                if answer and turn:  # the first round warms up
                    after = contender.cpu(), arena.cpu(), *arena.commands(contender.library)
                    pairs = max(1, answer["count"])
                    for of, late, early in zip(("client", "server", "calls", "script"), after, before, strict=True):
                        answer[of] = (late - early) / pairs
                    seen[at].append(answer)
        rows = []
        for (contender, _, fields), answers in zip(entries, seen, strict=True):
            if answers:
                rows.append(
                    {
                        "language": contender.language,
                        "library": contender.library,
                        "version": contender.version,
                        **fields,
                        "rates": [answer["count"] / answer["seconds"] for answer in answers],
                        **{of: [answer[of] for answer in answers] for of in ("client", "server", "calls", "script")},
                        **{of: statistics.median(x[of] for x in answers) for of in ("p50", "p99") if of in answers[0]},
                    }
                )
        return rows

    def pairs(self) -> Any:
        """Uncontended acquire and release, with kept lock objects and in blocks; nested; making lock objects."""
        works = {
            "100 independent": {"work": "independent", "at_once": 100},
            "100 independent, blocks": {"work": "blocks", "at_once": 100},
            "sequential": {"work": "pair"},
            "sequential, blocks": {"work": "block"},
            "100 at once": {"work": "parallel", "at_once": 100},
            "nested": {"work": "nested"},
        }
        result: dict[str, list[Any]] = {kind: [] for kind in works}
        for language in self.languages:
            with Arena() as arena:
                libraries = OURS[language] + TOKEN_WIRE.get(language, []) + PEERS[language]
                contenders = arena.enter([(language, library) for library in libraries])
                for kind, work in works.items():
                    result[kind] += self.rows(arena, contenders, {**work, "prefix": "uncontended"})
        if "Node" in self.languages:
            with Arena() as arena:
                contenders = arena.enter([("Node", "redlock-core")])
                result["lock objects"] = self.rows(arena, contenders, {"work": "objects", "prefix": "unused"})
        return result

    def growth(self) -> Any:
        """More and more locks at once: ours and, as far as its connections allow, the bare client."""
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
        """Sequential acquires and releases on one, three and five nodes, with all of them up and with one frozen."""
        result: dict[str, Any] = {}
        for nodes in (1, 3) if self.smoke else (1, 3, 5):
            with Arena(nodes) as arena:
                contenders = arena.enter(self.everybody())
                result[f"{nodes}"] = self.rows(arena, contenders, {"work": "pair", "prefix": "uncontended"})
                if nodes > 1:
                    arena.servers[-1].freeze()
                    ours = [one for one in contenders if is_ours(one.language, one.library)]
                    result[f"{nodes}, one frozen"] = self.rows(arena, ours, {"work": "pair", "prefix": "uncontended"})
                    arena.servers[-1].thaw()
        return result

    def handoff(self) -> Any:
        """Several processes on one lock, 2 ms each: time to the next grant, longest wait, costs."""
        result = []
        seconds = 0.2 if self.smoke else 1.0
        sizes = [(1, 2), (3, 2)] if self.smoke else [(1, 2), (1, 4), (1, 8), (5, 2), (5, 6)]
        for (nodes, processes), language in itertools.product(sizes, self.languages):
            libraries = [library for of, library in self.who_waits() if of == language]
            result += self.contests(nodes, processes, language, libraries, seconds)
        return result

    def contests(
        self, nodes: int, processes: int, language: str, libraries: list[str], seconds: float
    ) -> list[dict[str, Any]]:
        """Measure a number of processes of each library on one lock, library by library, in rounds."""
        result = []
        with Arena(nodes) as arena:
            groups = {library: arena.enter([(language, library)] * processes) for library in libraries}
            able = {library: contenders for library, contenders in groups.items() if warmed_up(contenders)}
            for turn, (library, contenders) in itertools.product(range(self.rounds + 1), able.items()):
                row = {"nodes": nodes, "processes": processes, "language": language, "library": library}
                try:
                    contested = contest(arena, contenders, f"{library}-{turn}", seconds)
                except Failed as error:
                    self.failures.append(f"{row}: {error}")
                else:
                    if turn:  # the first round warms up
                        result.append({**row, **contested})
        return result

    def fair(self) -> Any:
        """Fair locks beside plain ones, and beside the one other library that has a queue."""
        result: dict[str, list[Any]] = {"pairs": [], "handoff": [], "queue": []}
        plain = {"Rust": "redlock", "Python": "redlock-sync"}
        for language in [language for language in self.languages if language in FAIR]:
            libraries = [plain[language], *FAIR[language]]
            with Arena() as arena:
                contenders = arena.enter([(language, library) for library in libraries])
                result["pairs"] += self.rows(arena, contenders, {"work": "pair", "prefix": "uncontended"})
            libraries += ["python-redis-lock"] if language == "Python" else []
            for processes in [2] if self.smoke else [4, 8]:
                result["handoff"] += self.contests(1, processes, language, libraries, 0.2 if self.smoke else 1.0)
        if "Rust" in self.languages:
            for size in [50] if self.smoke else [100, 1_000, 10_000]:
                with Arena() as arena:
                    (contender,) = arena.enter([("Rust", *FAIR["Rust"])])
                    arena.record_scripts()
                    contender.ask(work="pair", seconds=0.1, prefix="warm")
                    # The script that ends a pair is the one that hands the lock over.
                    hands_over = arena.recorded_scripts()[-1][0]
                    arena.record_scripts(at_least=5)
                    start = arena.commands(contender.library)
                    contender.ask(work="pair", seconds=self.slice, prefix="alone")
                    before = arena.commands(contender.library)
                    arena.record_scripts(at_least=5)
                    answer = contender.ask(work="herd", name="herd", waiters=size, within=45)
                    after = arena.commands(contender.library)
                    handed = [took for sha, took in arena.recorded_scripts() if sha == hands_over]
                    row = {"language": "Rust", "library": contender.library, "version": contender.version}
                    row |= {
                        "calls": (after[0] - before[0]) / size,
                        "script": (after[1] - before[1]) / size,
                        "handover": statistics.mean(handed),
                        "alone": (before[1] - start[1]) / (before[0] - start[0]),
                    }
                    result["queue"].append({"waiters": size, **row, **answer})
        return result

    def shared(self) -> Any:
        """Read/write locks beside plain ones, and semaphores, each beside the other libraries that have them."""
        one, many = {"at_once": 1}, {"at_once": 100}
        works: dict[str, dict[str, dict[str, Any]]] = {
            "one caller": {
                "lock": {"work": "independent", **one},
                **{kind: {"work": "shared", "kind": kind, "hold": 0, **one} for kind in ("read", "write")},
            },
            "100 callers": {
                "lock": {"work": "independent", **many},
                "read": {"work": "shared", "kind": "read", "hold": 0, **many},
            },
            "semaphore": {"semaphore": {"work": "shared", "kind": "semaphore", "hold": 0, **many}},
            "semaphore, 2 ms": {"semaphore": {"work": "shared", "kind": "semaphore", "hold": 0.002, **many}},
        }
        result: dict[str, list[Any]] = {title: [] for title in works}
        for language in self.languages:
            with Arena() as arena:
                contenders = arena.enter([(language, library) for library in SHARED[language]])
                for title, kinds in works.items():
                    entries = [
                        (contender, {**work, "prefix": f"{contender.library}-{kind}"}, {"kind": kind})
                        for contender in contenders
                        for kind, work in kinds.items()
                        if kind in SHARED[language][contender.library]
                    ]
                    result[title] += self.turns(arena, entries)
        return result

    def herd(self) -> Any:
        """One lock is released for which many waiters of one process wait."""
        result = []
        sizes = (50,) if self.smoke else (200, 1_000, 10_000)
        for size in sizes:
            for language, library in self.who_waits():
                with Arena() as arena:
                    for contender in arena.enter([(language, library)]):
                        contender.ask(work="pair", seconds=0.1, prefix="warm")
                        before = arena.commands(library)[0]
                        try:
                            answer = contender.ask(work="herd", name="herd", waiters=size, within=45)
                        except Failed as error:
                            self.failures.append(str(error))
                            continue
                        if answer:
                            calls = arena.commands(library)[0] - before
                            row = {"language": language, "library": library, "version": contender.version}
                            result.append({"waiters": size, **row, **answer, "calls": calls / size})
        return result

    def watchdog(self) -> Any:
        """The cost of keeping locks for minutes."""
        result = []
        for count in (0, 100) if self.smoke else (0, 1, 1_000, 10_000, 100_000):
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

    def names(self) -> Any:
        """Very many names, each used once: the memory that stays in use on the server and in the client."""
        result = []
        count, at_once = (1_000, 100) if self.smoke else (1_000_000, 100)
        # Long enough for the first counter to exist still when the last one is made.
        token_ttl = 60 if self.smoke else 240
        with contextlib.ExitStack() as stack:
            left = []
            for language in self.languages:
                library = {"Python": "redlock-asyncio", "Node": "redlock-core"}.get(language, "redlock")
                arena = stack.enter_context(Arena())
                (contender,) = arena.enter([(language, library)], token_ttl=token_ttl)
                empty = arena.memory()
                warm = contender.ask(work="names", prefix="warm", count=count // 100, at_once=at_once)
                answer = contender.ask(within=1_000, work="names", prefix="once", count=count, at_once=at_once)
                assert warm
                assert answer
                used, keys = arena.memory() - empty, arena.keys()
                row = {"language": language, "library": library, "version": contender.version}
                row |= {"names": count, "rss_before": warm["rss"], "rss_after": answer["rss"]}
                result.append({**row, "keys": keys, "server": used / max(1, keys)})
                left.append((result[-1], arena, empty))
                contender.close()
            for row, arena, empty in left:
                if self.smoke:
                    arena.expire()
                until = time.monotonic() + token_ttl + 60
                while arena.keys() and time.monotonic() < until:
                    time.sleep(0.5)
                row |= {"keys_left": arena.keys(), "server_left": (arena.memory() - empty) / count}
        return result


def warmed_up(contenders: list[Contender]) -> bool:
    """Have them work for a moment; false when their library cannot do it, or not on such nodes."""
    return bool(contenders) and all(one.ask(work="pair", seconds=0.1, prefix="warm") for one in contenders)


def contest(arena: Arena, contenders: list[Contender], name: str, seconds: float) -> dict[str, Any]:
    """Have processes of one library compete for a lock for a while."""

    def used() -> tuple[float, float, int]:
        client = sum(contender.cpu() for contender in contenders)
        return client, arena.cpu(), arena.commands(contenders[0].library)[0]

    before, until = used(), time.monotonic_ns() + int(seconds * 1e9)
    for contender in contenders:
        contender.tell(work="contend", name=name, hold=0.002, rest=0.002, until=until)
    answers = [contender.answer(60) for contender in contenders]
    after = used()
    row = handed_over([answer["turns"] for answer in answers if answer])
    failures = sum(len(answer.get("failures", [])) for answer in answers if answer)
    costs = {
        of: (late - early) / max(1, row["grants"])
        for of, late, early in zip(("client", "server", "calls"), after, before, strict=True)
    }
    return {"version": contenders[0].version, **row, **costs, "failures": failures}


def handed_over(turns: list[list[list[int]]]) -> dict[str, Any]:
    """Return how long the lock was free after a release while others waited for it, whoever got it next."""
    grants = sorted((granted, asked, releasing) for of in turns for asked, granted, releasing, _ in of)
    gaps, overlaps, first_asked = [], 0, math.inf
    for (_, _, releasing), (granted, asked, _) in reversed(list(itertools.pairwise(grants))):
        overlaps += granted < releasing
        first_asked = min(first_asked, asked)  # of all later grants
        if first_asked < releasing:
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
    }


def takes_turns(work: dict[str, Any]) -> bool:
    """Whether one caller does it, so that either the contender or its server runs at any time."""
    return work["work"] in {"pair", "block", "nested"} or work.get("at_once") == 1


def use_cores(processes: list[int], cores: set[int]) -> None:
    """Let all threads of these processes run on these cores alone. A new thread runs where its creator does."""
    for process in processes:
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread), cores)


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Keep each core out of its sleep states, as on a busy machine, without taking time from other processes."""
    code = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while True: pass"""
    spinning = [subprocess.Popen([sys.executable, "-c", code, str(core)]) for core in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main() -> int:
    suites = ["pairs", "growth", "quorum", "handoff", "herd", "fair", "shared", "watchdog", "names"]
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
    today = time.strftime("%Y-%m-%d", time.gmtime())
    results["machine"] = {
        "date": today,
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "redis": redis.removeprefix("v="),
        "rounds": bench.rounds,
        "load": os.getloadavg()[0],
    }
    with contextlib.nullcontext() if arguments.sleepy else awake():
        for suite in arguments.only.split(","):
            began = time.monotonic()
            results[suite] = getattr(bench, suite)()
            results.setdefault("measured", {})[suite] = {"date": today, "rounds": bench.rounds}
            print(f"{suite}: {time.monotonic() - began:.0f} s", flush=True)
            # After each suite, so that an interrupted run keeps its results.
            target.write_text(json.dumps(results, indent=1) + "\n")
    for failure in bench.failures:
        print(failure, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
