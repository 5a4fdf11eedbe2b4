"""The state of a trial of packages: where they are installed from, servers, a working folder, the table of results."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from release.commands import Refused, ended, shown
from release.targets import ROOT, Release, version

CONSUMERS = ROOT / "release" / "consumers"
# The pause between two tries to install from a public registry, in seconds.
PAUSE = 30
JVM_MAIN = "dev.redlock.consumer.Use"


@dataclass
class Trial:
    """A trial of the packages of OUT, or of the published ones."""

    release: Release
    work: Path
    servers: list[str]
    """The arguments of the consumers: a URL, a URL with TLS, and the file of its authority. Or none."""
    out: Path | None = None
    """The folder with the packages. None: the public registries have them."""
    npm: str = "https://registry.npmjs.org/"
    patience: float = 0
    """For how many seconds to try again if an installation fails: a registry needs time to give out what is new."""
    rows: list[str] = field(default_factory=list)

    @property
    def packages(self) -> Path:
        """The folder with the packages."""
        assert self.out
        return self.out / "packages"

    def pip(self, inside: Callable[[Path], str] = str) -> list[str]:
        """pip's options for this place. `inside` gives the name of a path on the machine that pip runs on."""
        if not self.out:
            return ["--only-binary", ":all:"]
        return ["--no-index", "--only-binary", ":all:", "--find-links", inside(self.packages / "python")]

    @property
    def maven(self) -> str:
        """The URL of the Maven repository."""
        return f"file://{self.packages / 'maven'}" if self.out else "https://repo1.maven.org/maven2"

    def installed(self, install: Callable[[], object]) -> float:
        """Call `install` until it succeeds or the patience is over. Returns the seconds of the last call."""
        end = time.monotonic() + self.patience
        while True:
            began = time.monotonic()
            try:
                install()
                return time.monotonic() - began
            except Refused:
                if began >= end:
                    raise
            time.sleep(PAUSE)

    def note(self, machine: str, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row to the table, and print it."""
        if not self.rows:
            print("| machine | installed by | s | MB | what ran |\n|---|---|---|---|---|")
        self.rows.append(f"| {machine} | {installer} | {seconds:.1f} | {size / 1e6:.2f} | {said} |")
        print(self.rows[-1], flush=True)

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))


def refused(command: list[str | Path], about: str, *, env: dict[str, str], cwd: Path) -> str:
    """Run a command that must fail, and return the line of its error output that contains `about`."""
    done = ended(command, env, cwd)
    if not done.returncode:
        raise Refused(f"{shown(done)}\na failure was expected")
    for candidate in done.stderr.splitlines():
        if about in candidate:
            return candidate.strip()
    raise Refused(f"{shown(done)}\nnothing about “{about}”")


def bare(home: Path, **variables: str) -> dict[str, str]:
    """Environment variables that inherit nothing from this process, except three that Windows needs."""
    kept = {name: os.environ[name] for name in ("SystemRoot", "TMP", "TEMP") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **variables}


def size_of(paths: Iterable[Path]) -> int:
    """The size of all files together, in bytes."""
    return sum(path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())


def wanted(package: str) -> str:
    """pip's name of this version of a package."""
    return f"{package}=={version().replace('-rc.', 'rc')}"
