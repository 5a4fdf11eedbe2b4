"""The demo: six processes compete for one lock on five private redis-servers, while servers and processes fail.

    python demo.py [--seconds 24] [--workers 6] [--languages python,node,kotlin]

The processes are written in several languages, which must be built. They change a file that shows if two of them ever
write at once. Meanwhile one server is frozen and thawed, one is killed and restarted empty, and one holder is killed
with -9. A live view shows who holds the lock; tables at the end sum up what happened. Exits with 1 if two holders
overlapped, a change was lost or a token did not increase.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))

import redlock  # noqa: E402
from rich.console import Console, Group  # noqa: E402
from rich.live import Live  # noqa: E402
from rich.table import Table  # noqa: E402
from servers import Server, eventually  # noqa: E402
from worker import LOCK, MAX_TTL, OPTIONS, WATCHDOG, now  # noqa: E402

QUARANTINE = MAX_TTL * 1.1
# The kinds of workers, in this order and repeated as needed; and the command that starts each kind.
MIX = ("Python", "Node", "Python asyncio", "Kotlin", "Node", "Python")
COMMANDS = {
    "Python": [sys.executable, str(HERE / "worker.py"), "sync"],
    "Python asyncio": [sys.executable, str(HERE / "worker.py"), "asyncio"],
    # The view shows the state of nodes already, so the library's warnings are not printed.
    "Node": ["node", "--no-warnings", str(HERE / "worker.mjs")],
    "Kotlin": [str(HERE.parent / "scripts" / "kotlin-run"), "dev.redlock.demo.WorkerKt"],
}


@dataclass
class Tenure:
    """One grant, as its holder logged it."""

    token: int
    pid: int
    granted: float
    waited: float
    done: bool = False
    released: float | None = None


@dataclass
class History:
    """Everything the workers logged so far."""

    tenures: list[Tenure] = field(default_factory=list)
    corrupt: int = 0
    interrupted: int = 0
    stale: int = 0
    errors: list[str] = field(default_factory=list)

    def overlaps(self) -> int:
        ordered = sorted(self.tenures, key=lambda t: t.granted)
        pairs = itertools.pairwise(ordered)
        return sum(first.released is not None and first.released > second.granted for first, second in pairs)

    def disorder(self) -> int:
        ordered = sorted(self.tenures, key=lambda t: t.granted)
        return sum(first.token >= second.token for first, second in itertools.pairwise(ordered))

    def hand_offs(self) -> list[float]:
        """Return the times between a release and the next grant to another process, sorted."""
        ordered = sorted(self.tenures, key=lambda t: t.granted)
        pairs = itertools.pairwise(ordered)
        return sorted(b.granted - a.released for a, b in pairs if a.released is not None and a.pid != b.pid)


class Logs:
    """Reads the workers' logs while they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = History()
        self._offsets: dict[Path, int] = {}
        self._open: dict[int, Tenure] = {}

    def read(self) -> History:
        for path in sorted(self.folder.glob("*.log")):
            text = path.read_text()
            end = text.rfind("\n") + 1
            for line in text[self._offsets.get(path, 0) : end].splitlines():
                self._take(int(path.stem), line.split(" ", 3))
            self._offsets[path] = end
        return self.history

    def _take(self, pid: int, words: list[str]) -> None:
        history, event = self.history, words[0]
        if event == "grant":
            tenure = Tenure(int(words[1]), pid, float(words[2]), float(words[3]))
            history.tenures.append(tenure)
            self._open[tenure.token] = tenure
        elif event == "done":
            self._open[int(words[1])].done = True
        elif event == "release":
            self._open.pop(int(words[1])).released = float(words[2])
        elif event == "corrupt":
            history.corrupt += 1
        elif event == "interrupted":
            history.interrupted += 1
        elif event == "stale":
            history.stale += 1
        elif event == "error":
            history.errors.append(f"{words[1]}: {words[3]}")


class Telling(logging.Handler):
    """Shows what the library logs among the events of the view."""

    def __init__(self, show: Show) -> None:
        super().__init__(logging.WARNING)
        self.show = show

    def emit(self, record: logging.LogRecord) -> None:
        self.show.tell(f"[dim]log: {record.getMessage()}[/]")


@dataclass
class Worker:
    """A process that competes for the lock."""

    kind: str
    process: subprocess.Popen[bytes]

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def __str__(self) -> str:
        return f"{self.kind} process {self.process.pid}"


class Show:
    """The servers, the workers, the faults, and the view of all of it."""

    def __init__(self, console: Console, folder: Path, seconds: float) -> None:
        self.console, self.folder, self.seconds = console, folder, seconds
        self.servers = [Server().start() for _ in range(5)]
        self.states = ["up"] * 5
        self.quarantined: dict[int, float] = {}
        self.urls = [server.url for server in self.servers]
        self.file = folder / "ledger"
        self.file.write_text("begin 0 0 0\nend 0 0 0\n".ljust(256))
        self.client = redlock.Redlock(self.urls, **OPTIONS)
        self.logs = Logs(folder)
        self.workers: list[Worker] = []
        self.started = now()
        self.told: list[str] = []
        self.victim: Worker | None = None
        logging.getLogger("redlock").addHandler(Telling(self))

    def begin(self, kinds: list[str]) -> None:
        """Starts the workers. Holds the lock until all of them wait for it, since some languages start slowly."""

        def all_wait() -> bool:
            for worker in self.workers:
                assert worker.running, f"{worker} has ended; was {worker.kind} built?"
            # A waiter listens on a majority of the servers: which ones depends on their addresses.
            return max(server.listeners(LOCK) for server in self.servers) == len(kinds)

        with self.client.lock(LOCK):
            self.workers = [self._start(kind) for kind in kinds]
            eventually(all_wait, within=60, every=0.05)
            self.started = now()

    def _start(self, kind: str) -> Worker:
        # The log has the pid as its name, which is known only after the start: the shell replaces itself with the
        # worker.
        command = 'log="$1/$$.log"; shift; exec "$@" "$log"'
        arguments = [str(self.folder), *COMMANDS[kind], ",".join(self.urls), str(self.file)]
        return Worker(kind, subprocess.Popen(["/bin/sh", "-c", command, "worker", *arguments]))

    # ---- what goes wrong ------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        elapsed = now() - self.started
        self.told.append(f"[dim]{elapsed:5.1f} s[/]  {text}")
        if not self.console.is_terminal:
            self.console.print(self.told[-1])

    def freeze(self) -> None:
        self.servers[0].freeze()
        self.states[0] = "frozen"
        self.tell(f"server {self.servers[0].port} is [cyan]frozen[/] (SIGSTOP)")

    def thaw(self) -> None:
        self.servers[0].thaw()
        self.states[0] = "up"
        self.tell(f"server {self.servers[0].port} is thawed")

    def kill_server(self) -> None:
        self.servers[1].kill()
        self.states[1] = "down"
        self.tell(f"server {self.servers[1].port} is [red]killed[/]; it keeps nothing")

    def restart_server(self) -> None:
        self.servers[1].start()
        self.states[1] = "quarantine"
        self.quarantined[1] = time.monotonic() + QUARANTINE
        self.tell(
            f"server {self.servers[1].port} is back, [yellow]empty[/]: in quarantine for {QUARANTINE:.0f} s, "
            "until no lock it forgot can still be held"
        )

    def kill_holder(self) -> None:
        """Kills a process while it holds the lock, and so in the middle of its change."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            running = {worker.process.pid: worker for worker in self.workers if worker.running}
            begin, end = (line.split() for line in self.file.read_text().split("\n")[:2])
            if begin[1:] != end[1:] and int(begin[3]) in running:
                victim = self.victim = running[int(begin[3])]
                victim.process.kill()
                victim.process.wait()
                self.tell(f"{victim} is [red]killed with -9[/], perhaps while it held the lock")
                # A process that died without the lock proves nothing: then another one is killed.
                begin, end = (line.split() for line in self.file.read_text().split("\n")[:2])
                self.workers.append(self._start(victim.kind))
                if begin[1:] != end[1:] and int(begin[3]) == victim.process.pid:
                    self.tell(f"it did: its lease of {WATCHDOG:.0f} s must end before the next one enters")
                    return

    def script(self) -> list[tuple[float, object]]:
        return [
            (0.10 * self.seconds, self.freeze),
            (0.25 * self.seconds, self.thaw),
            (0.35 * self.seconds, self.kill_server),
            (0.42 * self.seconds, self.restart_server),
            (0.55 * self.seconds, self.kill_holder),
        ]

    # ---- the view ---------------------------------------------------------------------------------------------

    def view(self) -> Group:
        history = self.logs.read()
        beside = Table.grid(expand=True, padding=(0, 1))
        beside.add_row(self._nodes(), self._workers(history))
        return Group(self._holder(history), beside, *self.told[-8:])

    def _nodes(self) -> Table:
        nodes = Table(title="nodes", expand=True)
        for column in ("server", "state"):
            nodes.add_column(column)
        for number, server in enumerate(self.servers):
            state = self.states[number]
            left = self.quarantined.get(number, 0) - time.monotonic()
            if state == "quarantine" and left > 0:
                state = f"quarantine, votes in {left:.0f} s"
            elif state == "quarantine":
                state = self.states[number] = "up"
                self.tell(f"server {server.port} votes again")
            colour = {"up": "green", "frozen": "cyan", "down": "red"}.get(state, "yellow")
            nodes.add_row(f"127.0.0.1:{server.port}", f"[{colour}]{state}[/]")
        return nodes

    def _workers(self, history: History) -> Table:
        workers = Table(title="workers", expand=True)
        for column in ("language", "process", "grants"):
            workers.add_column(column)
        for worker in self.workers:
            pid = worker.process.pid
            grants = sum(tenure.pid == pid for tenure in history.tenures)
            colour = "green" if worker.running else "red"
            workers.add_row(worker.kind, f"[{colour}]{pid}[/]", str(grants))
        return workers

    def _holder(self, history: History) -> Table:
        lock = Table(title=f"lock {LOCK!r}", expand=True)
        for column in ("holder", "token", "deadline", "grants", "overlaps"):
            lock.add_column(column)
        last = max(history.tenures, key=lambda t: t.granted, default=None)
        try:
            info = self.client.lock(LOCK).inspect()
        except redlock.LockError as error:
            info = None
            self.tell(f"inspect: {error}")
        kinds = {worker.process.pid: worker.kind for worker in self.workers}
        pid = "" if last is None else f" (last grant: {kinds[last.pid]})"
        holder = "nobody" if info is None else info.owner[:8] + "…"
        deadline = "" if info is None or info.ttl is None else f"in {info.ttl:.1f} s unless renewed"
        token = "" if info is None else str(info.token)
        lock.add_row(holder + pid, token, deadline, str(len(history.tenures)), str(history.overlaps()))
        return lock

    def run(self) -> History:
        plan = self.script()
        with Live(self.view(), console=self.console, refresh_per_second=8, transient=True, auto_refresh=False) as live:
            while (elapsed := now() - self.started) < self.seconds:
                while plan and elapsed >= plan[0][0]:
                    plan.pop(0)[1]()  # type: ignore[operator]
                if self.console.is_terminal:
                    live.update(self.view(), refresh=True)
                else:
                    self.view()
                time.sleep(0.12)
        for worker in self.workers:
            if worker.running:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.wait(timeout=30)
        return self.logs.read()

    def close(self) -> None:
        self.client.close()
        for worker in self.workers:
            if worker.running:
                worker.process.kill()
                worker.process.wait()
        for server in self.servers:
            server.stop()


def report(console: Console, show: Show, history: History) -> bool:
    """Prints the table at the end; returns whether every promise was kept."""
    begin, end = (line.split()[1:] for line in show.file.read_text().split("\n")[:2])
    counted = int(end[0])
    finished = sum(tenure.done for tenure in history.tenures)
    # The process killed with -9 may have died after it wrote its change and before it logged that.
    lost = max(0, finished - counted)
    hand_offs = history.hand_offs()
    longest = longest_wait(show, history.tenures)
    table = Table(title="What happened")
    table.add_column("")
    table.add_column("", justify="right")
    rows = {
        "grants": f"{len(history.tenures)}",
        "overlaps": f"{history.overlaps() + history.corrupt}",
        "lost updates": f"{lost}",
        "tokens out of order": f"{history.disorder() + history.stale}",
        "holders that died inside": f"{history.interrupted}",
        "errors the workers saw": f"{len(history.errors)}",
        f"longest wait (a dead holder's lease: {WATCHDOG:.0f} s)": f"{longest * 1000:.0f} ms",
        "hand-off between processes, p50": f"{percentile(hand_offs, 0.50) * 1000:.2f} ms",
        "hand-off between processes, p99": f"{percentile(hand_offs, 0.99) * 1000:.2f} ms",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    console.print(by_language(show, history))
    for text in sorted(set(history.errors))[:5]:
        console.print(f"[yellow]{text}[/]")
    kept = not (history.overlaps() or history.corrupt or lost or history.disorder() or history.stale)
    if begin != end and (show.victim is None or int(begin[2]) != show.victim.process.pid):
        console.print("[red]the file was left half-written[/]")
        kept = False
    console.print("[green]Every promise was kept.[/]" if kept else "[red]A promise was broken.[/]")
    return kept and len(history.tenures) > 0


def longest_wait(show: Show, tenures: list[Tenure]) -> float:
    """Return the longest wait, without the wait for the slowest language to start."""
    return max((min(tenure.waited, tenure.granted - show.started) for tenure in tenures), default=0.0)


def by_language(show: Show, history: History) -> Table:
    table = Table(title="By language")
    for column in ("", "processes", "grants", "longest wait"):
        table.add_column(column, justify="right" if column else "left")
    for kind in dict.fromkeys(worker.kind for worker in show.workers):
        pids = [worker.process.pid for worker in show.workers if worker.kind == kind]
        tenures = [tenure for tenure in history.tenures if tenure.pid in pids]
        wait = f"{longest_wait(show, tenures) * 1000:.0f} ms"
        table.add_row(kind, str(len(pids)), str(len(tenures)), wait)
    return table


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description="redlock under fire")
    parser.add_argument("--seconds", type=float, default=24, help="how long the processes fight (default: 24)")
    parser.add_argument("--workers", type=int, default=6, help="how many processes (default: 6)")
    parser.add_argument("--languages", default="python,node,kotlin", help="theirs (default: python,node,kotlin)")
    arguments = parser.parse_args()
    languages = arguments.languages.split(",")
    mix = [kind for kind in MIX if kind.split()[0].lower() in languages]
    kinds = list(itertools.islice(itertools.cycle(mix), arguments.workers))
    console = Console()
    random.seed()
    with tempfile.TemporaryDirectory(prefix="redlock-demo-") as folder:
        console.print(f"five redis-servers and {len(kinds)} processes on {os.cpu_count()} cores…")
        show = Show(console, Path(folder), arguments.seconds)
        try:
            show.begin(kinds)
            history = show.run()
            return 0 if report(console, show, history) else 1
        finally:
            show.close()


if __name__ == "__main__":
    sys.exit(main())
