"""The state of a trial of packages: the packages, a registry, servers, a working folder, the table of results."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from release.refused import Refused
from release.registry import Urls
from release.targets import ROOT, Release

CONSUMERS = ROOT / "release" / "consumers"
# The time limit of one command, in seconds.
TIMEOUT = 900
NPM_QUIET = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn"]
JVM_MAIN = "dev.redlock.consumer.Use"


@dataclass(frozen=True)
class Row:
    """A row of the table: one installation, and the consumer's output."""

    machine: str
    installer: str
    seconds: float
    size: int
    said: str

    def __str__(self) -> str:
        return f"| {self.machine} | {self.installer} | {self.seconds:.1f} | {self.size / 1e6:.2f} | {self.said} |"


HEAD = "| machine | installed by | s | MB | what ran |\n|---|---|---|---|---|"


class Trial:
    """The packages of OUT, a registry that serves them, and servers for locks."""

    def __init__(self, release: Release, out: Path, work: Path, urls: Urls, servers: list[str]) -> None:
        self.release = release
        self.out = out
        self.packages = out / "packages"
        self.work = work
        self.urls = urls
        self.servers = servers
        self.rows: list[Row] = []

    def note(self, machine: str, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row to the table, and print it."""
        row = Row(machine, installer, seconds, size, said)
        if not self.rows:
            print(HEAD)
        self.rows.append(row)
        print(row, flush=True)

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))


def run(command: list[str | Path], *, env: dict[str, str], cwd: Path | None = None) -> str:
    """Run a command and return its output. Raises Refused if it fails."""
    done = ended(command, env, cwd)
    if done.returncode:
        raise Refused(shown(done))
    return done.stdout.strip()


def refused(command: list[str | Path], *, env: dict[str, str], cwd: Path) -> str:
    """Run a command that must fail, and return its error output. Raises Refused if it succeeds."""
    done = ended(command, env, cwd)
    if not done.returncode:
        raise Refused(f"{shown(done)}\na failure was expected")
    return done.stderr


def ended(command: list[str | Path], env: dict[str, str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    """Run a command and return the finished process."""
    words = list(map(str, command))
    return subprocess.run(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def shown(done: subprocess.CompletedProcess[str]) -> str:
    """A command with its exit code and output."""
    return f"{' '.join(done.args)}: exit {done.returncode}\n{done.stdout}{done.stderr}".strip()


def line(said: str, about: str) -> str:
    """The first line of an output that contains `about`. Raises Refused if there is none."""
    for candidate in said.splitlines():
        if about in candidate:
            return candidate.strip()
    raise Refused(f"nothing about “{about}” in:\n{said}")


def bare(home: Path, **variables: str) -> dict[str, str]:
    """Environment variables that inherit nothing from this process, except three that Windows needs."""
    kept = {name: os.environ[name] for name in ("SystemRoot", "TMP", "TEMP") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **variables}


def timed(work: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def size_of(paths: Iterable[Path]) -> int:
    """The size of all files together, in bytes."""
    return sum(path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())
