"""Runs the packages' own tests against packages installed from OUT/packages instead of the checkout's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from release import runtimes
from release.commands import Refused
from release.targets import ROOT, version
from release.trial import wanted

if TYPE_CHECKING:
    from release.here import Here

PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def run(here: Here) -> None:
    """Run all suites on this machine."""
    for name, suite in {"Python": _python, "Node": node, "JVM": _jvm}.items():
        print(f"== the whole suite of {name}, against what is installed", file=sys.stderr, flush=True)
        suite(here)


def _python(here: Here) -> None:
    """Runs in a copy of the checkout without the folder `redlock`, so that it imports the installed package."""
    folder = here.trial.folder("suite")
    python = runtimes.at_hand()[0].venv(folder / "venv")
    _run([python, *PIP, "-r", ROOT / "python" / "requirements-dev.txt"], ROOT)
    _run([python, *PIP, "--no-cache-dir", *here.trial.pip(), wanted("redlock-core")], ROOT)
    copy = copied(folder / "checkout")
    shutil.rmtree(copy / "python" / "redlock")
    _run([python, "-m", "pytest", "-q", "tests", "examples"], copy / "python")


def node(here: Here, musl: Path | None = None) -> None:
    """Runs in a copy of the package's folder, with the installed compiled files. `musl` is a Node for musl that runs on
    this machine; the default is this machine's own Node.
    """
    libc = ["--libc=musl"] if musl else []
    folder, _, _ = here.npm_install(runtimes.nodes()[0], *libc)
    installed = folder / "node_modules"
    copy = copied(folder / "checkout") / "node"
    shutil.copytree(installed / "redlock-core" / "dist", copy / "dist")
    # The development dependencies come from the checkout's node_modules, only the package itself does not.
    (copy / "node_modules").mkdir()
    for entry in (ROOT / "node" / "node_modules").iterdir():
        (copy / "node_modules" / entry.name).symlink_to(entry)
    (copy / "node_modules" / "@redlock").symlink_to(installed / "@redlock")
    fixtures = copy / "test" / "fixtures" / "node_modules"
    fixtures.mkdir()
    for entry in (ROOT / "node" / "test" / "fixtures" / "node_modules").iterdir():
        (fixtures / entry.name).symlink_to(copy if entry.name == "redlock-core" else entry)
    program = str(musl or shutil.which("node"))
    tests = sorted(
        str(path.relative_to(copy)) for kind in ("test", "examples") for path in (copy / kind).glob("*.test.mjs")
    )
    if musl:
        # Jest, Vitest, Bun and Deno are installed for this machine's C library and do not run with musl.
        tests.remove("test/runners.test.mjs")
        tests.remove("test/hosts.test.mjs")
    _run([program, "--test", "--test-reporter=dot", "--test-timeout=240000", *tests], copy)


def _jvm(here: Here) -> None:
    """Runs with the jar in place of the compiled classes."""
    (jar,) = here.trial.packages.glob(f"maven/dev/redlock/redlock-core/{version()}/redlock-core-{version()}.jar")
    _run(["mvn", "-q", "-B", "-ntp", "-f", "kotlin", "-Dredlock.profile=dev", "test", f"-Dredlock.tested={jar}"], ROOT)


def copied(folder: Path) -> Path:
    """Make the folder, copy all files to it that git tracks or would track, and return it."""
    folder.mkdir()
    files = "git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 ls -d 2>/dev/null"
    subprocess.run(["bash", "-c", f'{files} | tar -cf- -T- | tar -xf- -C "$0"', folder], cwd=ROOT, check=True)
    return folder


def _run(command: list[str | Path], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=os.environ, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command[:6]))} …: exit {done.returncode}")
