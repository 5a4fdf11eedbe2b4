"""Installs and uses packages on other kinds of machine, in the roots of `tests.emulated.roots`.

    python3 -m tests.emulated.elsewhere OUT NAME...      tries the packages of OUT in the roots of these names

In the root `musl`, it also runs the whole suite of Node. Prints the same table as `release.smoke`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from release import runtimes, suites
from release.commands import TIMEOUT, Refused, in_one_line, shown
from release.here import NPM, PIP, Here, unpacked, use
from release.smoke import packed
from release.targets import ROOT, version
from release.trial import CONSUMERS, JVM_MAIN, Trial, size_of, wanted
from tests.emulated import roots

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
    if name == "musl":
        print("== the whole suite of Node with musl", file=sys.stderr, flush=True)
        suites.node(Here(trial), there.root.on_host / there.root.recipe.node.strip("/"))
    for limit in there.root.recipe.limits:
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
        recipe = self.root.recipe
        for node in recipe.node.split():
            self.node(node)
        for python in recipe.python.split():
            self.python(python)
        if recipe.java:
            self.jvm(recipe.java.split())
        self.program()

    def node(self, node: str) -> None:
        """Install with npm into an empty folder, and run the consumer with Node."""
        if self.root.is_emulated or self.root.is_windows:
            # npm does the same everywhere and is slow in this root. So it runs here, with options for that machine.
            npm = self.target.npm
            platform = [f"--os={npm.os}", f"--cpu={npm.cpu}", *([f"--libc={npm.libc}"] if npm.libc else [])]
            folder, _, seconds = Here(self.trial).npm_install(runtimes.nodes()[0], *platform)
        else:
            folder = self.trial.folder("npm")
            (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
            install = [*self.root.npm, *NPM, "--registry", self.trial.npm, f"redlock-core@{version()}"]
            seconds = self.trial.installed(lambda: self.run(install, folder))
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        said = self.run([node, "use.mjs", *self.servers], folder)
        self.note("npm", seconds, size_of((folder / "node_modules").rglob("*")), said)

    def python(self, python: str) -> None:
        """Install with pip into an empty environment, and run the consumer."""
        folder = self.trial.folder("python")
        if self.root.is_windows:
            # A build on Linux makes a library for Windows, but no wheel: see release.native.
            shutil.copytree(ROOT / "python" / "redlock", folder / "redlock", ignore=shutil.ignore_patterns("*.so"))
            shutil.copy(self.trial.packages.parent / self.target.rust / "redlock" / "_native.pyd", folder / "redlock")
            shutil.copy(CONSUMERS / "python" / "use.py", folder)
            said = self.run([python, "use.py", *self.servers], folder)
            self.note("a folder", 0, size_of((folder / "redlock").rglob("*")), said)
            return
        self.run([python, "-m", "venv", f"{self.inside(folder)}/venv"], folder)
        own = f"{self.inside(folder)}/venv/bin/python"
        install = [own, *PIP, *self.trial.pip(self.inside), wanted("redlock-core")]
        seconds = self.trial.installed(lambda: self.run(install, folder))
        said = self.run([own, self.inside(CONSUMERS / "python" / "use.py"), *self.servers], folder)
        installed = size_of(path for path in folder.rglob("*") if "redlock" in str(path.relative_to(folder)))
        self.note("pip", seconds, installed, said)

    def jvm(self, javas: list[str]) -> None:
        """Run the consumer with the class path that Maven makes on this machine."""
        classpath, _ = Here(self.trial).jvm_consumer()
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        separator = ";" if self.root.is_windows else ":"
        command = ["-cp", separator.join(map(self.inside, classpath)), JVM_MAIN, *self.servers]
        for java in javas:
            self.note("the jar", 0, jar.stat().st_size, self.run([java, *command], self.trial.folder("java")))

    def program(self) -> None:
        """Run the program from its archive."""
        path = unpacked(self.trial, self.target)
        there, unix = self.inside(path), not self.root.is_windows
        said = use(self.trial.release.program, there, self.servers, self.run_program, unix=unix)
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


@in_one_line("tests.emulated.elsewhere")
def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.emulated.elsewhere", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="+", choices=list(roots.RECIPES))
    given = parser.parse_args()
    with packed(given.out) as trial:
        for name in given.names:
            run(trial, name)
    for line in runtimes.missing:
        print(f"left out: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
