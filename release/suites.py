"""Runs the packages' own tests against packages installed from OUT/packages instead of the checkout's files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from release import runtimes
from release.emulated import roots
from release.refused import Refused
from release.targets import ROOT, version

if TYPE_CHECKING:
    from release.here import Here

PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def run(here: Here) -> None:
    """Run all suites on this machine, and Node's again with a Node for musl and this machine's servers."""
    _said("Python")
    _python(here)
    _said("Node")
    _node(here, None)
    _said("JVM")
    _jvm(here)
    if not (here.trial.out / roots.RECIPES["musl"].target).is_dir():
        print("left out: whole suites with musl: nothing was built for it", file=sys.stderr)
        return
    try:
        musl = roots.root("musl")
    except roots.Unsupported as error:
        print(f"left out: whole suites with musl: {error}", file=sys.stderr)
        return
    _said("Node with musl")
    _node(here, musl.on_host / str(musl.node).lstrip("/"))


def _said(name: str) -> None:
    print(f"== the whole suite of {name}, against what is installed", file=sys.stderr, flush=True)


def _python(here: Here) -> None:
    """Runs in a copy of the checkout without the folder `redlock`, so that it imports the installed package."""
    folder = here.trial.folder("suite")
    chosen = next(python for python in runtimes.pythons() if python.minor == sys.version_info[:2])
    python = chosen.venv(folder / "venv")
    _run([python, *PIP, "-r", ROOT / "python" / "requirements-dev.txt"], ROOT)
    _run([python, *PIP, "--no-cache-dir", "--index-url", here.trial.urls.pip, "redlock-core"], ROOT)
    copy = _copy(folder / "checkout")
    shutil.rmtree(copy / "python" / "redlock")
    where = "import redlock; print(redlock.__file__)"
    found = subprocess.run([python, "-c", where], cwd=copy, check=True, stdout=subprocess.PIPE, text=True).stdout
    if not Path(found.strip()).is_relative_to(folder / "venv"):
        raise Refused(f"the suite would test {found.strip()}")
    _run([python, "-m", "pytest", "-q", "tests", "examples"], copy / "python")


def _node(here: Here, node: Path | None) -> None:
    """Runs in a copy of the package's folder, with the installed compiled files."""
    folder = here.trial.folder("suite")
    client, npm = runtimes.nodes()[0], runtimes.npms()[1]
    libc = ["--libc=musl"] if node else []
    here.npm_install(npm.command(client), folder, here.npm_environment(client), *libc)
    installed = folder / "node_modules"
    copy = _copy(folder / "checkout") / "node"
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
    program = str(node or shutil.which("node"))
    tests = sorted(
        str(path.relative_to(copy)) for kind in ("test", "examples") for path in (copy / kind).glob("*.test.mjs")
    )
    if node:
        # Jest and Vitest are installed for this machine's C library and do not run with musl.
        tests.remove("test/runners.test.mjs")
    _run([program, "--test", "--test-reporter=dot", "--test-timeout=240000", *tests], copy)


def _jvm(here: Here) -> None:
    """Runs with the jar in place of the compiled classes."""
    (jar,) = here.trial.packages.glob(f"maven/dev/redlock/redlock-core/{version()}/redlock-core-{version()}.jar")
    _run(["mvn", "-q", "-B", "-ntp", "-f", "kotlin", "-Dredlock.profile=dev", "test", f"-Dredlock.tested={jar}"], ROOT)


def _copy(folder: Path) -> Path:
    """Copy all files to a folder that git tracks or would track, and return the folder."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _run(command: list[str | Path], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=os.environ, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command[:6]))} …: exit {done.returncode}")
