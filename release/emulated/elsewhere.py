"""Installs and uses packages on other kinds of machine, in the roots of `release.emulated.roots`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from release import programs, runtimes
from release.emulated import roots
from release.here import Here
from release.refused import Refused
from release.targets import ROOT
from release.trial import CONSUMERS, JVM_MAIN, NPM_QUIET, TIMEOUT, Trial, line, shown, size_of, timed
from release.trial import run as run_here

# The paths of the trial's folder and of the checkout inside a root.
WORK, CHECKOUT = "/mnt/work", "/mnt/redlock"


def run(trial: Trial, name: str) -> None:
    """Try every package in a root. A line on standard error names each thing that cannot be tried."""
    try:
        there = Elsewhere(trial, roots.root(name))
    except roots.Unsupported as error:
        print(f"left out: {error}", file=sys.stderr)
        return
    if there.root.seconds:
        print(f"(made the root {name} in {there.root.seconds:.0f} s)", file=sys.stderr)
    there.all()
    for limit in there.root.limits:
        print(f"left out in {name}: {limit}", file=sys.stderr)


class Elsewhere:
    """A trial of the packages in one root."""

    def __init__(self, trial: Trial, root: roots.Root) -> None:
        self.trial = trial
        self.root = root
        self.target = trial.release.target(root.recipe.target)
        self.servers = [self.inside(Path(word)) if word.endswith(".pem") else word for word in trial.servers]

    def all(self) -> None:
        """Try the packages with every interpreter of the root."""
        if self.root.node:
            self.node(self.root.node)
        if self.root.python:
            self.python(self.root.python)
        if self.root.old_python:
            self.old_python(self.root.old_python)
        if self.root.java:
            self.jvm(self.root.java)
        self.programs()

    def node(self, node: str) -> None:
        """Install with npm into an empty folder, and run the consumer with Node."""
        folder = self.trial.folder("npm")
        (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
        install = ["install", "--registry", self.trial.urls.npm, *NPM_QUIET, "redlock-core"]
        if self.root.is_emulated or self.root.is_windows:
            # npm does the same everywhere and is slow in this root. So it runs here, with options for that machine.
            npm = self.target.npm
            platform = [f"--os={npm.os}", f"--cpu={npm.cpu}", *([f"--libc={npm.libc}"] if npm.libc else [])]
            here, client = runtimes.nodes()[0], runtimes.npms()[1]
            env = Here(self.trial).npm_environment(here)
            seconds = timed(lambda: run_here([*client.command(here), *install, *platform], env=env, cwd=folder))
        else:
            seconds = timed(lambda: self.run([*(self.root.npm or []), *install], folder))
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        said = self.run([node, "use.mjs", *self.servers], folder)
        self.note("npm", seconds, size_of((folder / "node_modules").rglob("*")), said)

    def python(self, python: str) -> None:
        """Install with pip into an empty environment, and run the consumer."""
        folder = self.trial.folder("python")
        if self.root.is_windows:
            # A build on Linux makes a library for Windows, but no wheel: see release.native.
            shutil.copytree(ROOT / "python" / "redlock", folder / "redlock", ignore=shutil.ignore_patterns("*.so"))
            shutil.copy(self.trial.out / self.target.rust / "redlock" / "_native.pyd", folder / "redlock")
            shutil.copy(CONSUMERS / "python" / "use.py", folder)
            said = self.run([python, "use.py", *self.servers], folder)
            self.note("a folder", 0, size_of((folder / "redlock").rglob("*")), said)
            return
        own, install = self.environment(python, folder)
        seconds = timed(lambda: self.run(install, folder))
        said = self.run([own, self.inside(CONSUMERS / "python" / "use.py"), *self.servers], folder)
        installed = size_of(path for path in folder.rglob("*") if "redlock" in str(path.relative_to(folder)))
        self.note("pip", seconds, installed, said)

    def old_python(self, python: str) -> None:
        """A Python that is too old: its pip, which is as old, must fail with a line that names the package."""
        folder = self.trial.folder("python")
        _, install = self.environment(python, folder)
        said = self.run(["/bin/sh", "-c", " ".join([*install, "2>&1; test $? -ne 0"])], folder)
        self.note("pip, a Python that is too old", 0, 0, line(said, "redlock-core"))

    def environment(self, python: str, folder: Path) -> tuple[str, list[str]]:
        """Make a new environment; return its interpreter and the command that installs the package."""
        self.run([python, "-m", "venv", f"{self.inside(folder)}/venv"], folder)
        own = f"{self.inside(folder)}/venv/bin/python"
        install = [own, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        return own, [*install, "--index-url", self.trial.urls.pip, "redlock-core"]

    def jvm(self, java: str) -> None:
        """Run the consumer with the class path that Maven makes on this machine."""
        classpath, _ = Here(self.trial).jvm_consumer()
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        separator = ";" if self.root.is_windows else ":"
        command = [java, "-cp", separator.join(map(self.inside, classpath)), JVM_MAIN, *self.servers]
        self.note("the jar", 0, jar.stat().st_size, self.run(command, self.trial.folder("java")))

    def programs(self) -> None:
        """Run the programs from their archives."""
        for program in self.trial.release.programs:
            path = programs.unpacked(self.trial, program, self.target)
            there, unix = self.inside(path), not self.root.is_windows
            said = programs.use(program, there, self.servers, self.run_program, unix=unix)
            self.note("archive", 0, path.stat().st_size, said)

    def run_program(self, words: list[str | Path]) -> str:
        """Run a command in the root, in an empty folder."""
        return self.run([*map(str, words)], self.trial.folder("program"))

    def note(self, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row to the table, for this kind of machine."""
        self.trial.note(self.root.recipe.about, installer, seconds, size, said)

    def run(self, argv: list[str], folder: Path) -> str:
        """Run a command in the root and return its output. Raises Refused if it fails."""
        binds = {self.trial.work: WORK, ROOT: CHECKOUT}
        cwd = f"{WORK}/{folder.relative_to(self.trial.work)}"
        done = self.root.run(argv, cwd=cwd, binds=binds, timeout=TIMEOUT)
        if done.returncode:
            raise Refused(f"{self.root.name}: {shown(done)}")
        return done.stdout.strip()

    def inside(self, path: Path) -> str:
        """The path inside the root of a path on this machine."""
        for outer, inner in ((self.trial.work, WORK), (ROOT, CHECKOUT)):
            if path.is_relative_to(outer):
                return self.root.path(f"{inner}/{path.relative_to(outer)}")
        raise ValueError(f"{path} is not in {self.trial.work} or {ROOT}")
