"""Installs and uses packages on this machine as users do: without a compiler and cargo on the PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from release import kotlins, programs, runtimes
from release.refused import Refused
from release.targets import version
from release.trial import CONSUMERS, JVM_MAIN, NPM_QUIET, Trial, bare, ended, line, refused, run, shown, size_of, timed

LOAD = ["--eval", 'import("redlock-core").catch((error) => { console.error(error.message); process.exit(1); })']


class Here:
    """A trial of the packages with the interpreters of this machine."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial

    def note(self, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row to the table, for this machine."""
        self.trial.note(self.trial.release.host().rust, installer, seconds, size, said)

    def all(self) -> None:
        """Try the packages with every interpreter that is available."""
        for python in runtimes.pythons():
            self.python(python)
        if old := runtimes.old_python():
            self.old_python(old)
        combinations = pairs(runtimes.nodes(), runtimes.npms())
        for node, npm in combinations:
            self.node(node, npm)
        self.imitations(*combinations[0])
        self.node_refusals(*combinations[0])
        if old_node := runtimes.old_node():
            self.old_node(old_node, *combinations[0])
        self.jvm(runtimes.jdks())
        kotlins.use(self, runtimes.at_hand()[3], kotlins.ALL)
        self.programs(runtimes.pythons()[:1], combinations)

    def quick(self) -> None:
        """Try the packages with one interpreter of each language that this machine has; fetch none."""
        python, node, npm, jdk = runtimes.at_hand()
        self.python(python)
        self.node(node, npm)
        self.imitations(node, npm)
        self.node_refusals(node, npm)
        self.jvm([jdk])
        kotlins.use(self, jdk, [kotlins.OLDEST, kotlins.NEWEST])
        self.programs([python], [(node, npm)])

    def programs(self, pythons: list[runtimes.Python], nodes: list[tuple[runtimes.Node, runtimes.Npm]]) -> None:
        """Install each program with pip, with npm and from its archive, and run it."""
        host = self.trial.release.host()
        env = bare(self.trial.work, PATH="/nonexistent")
        for program in self.trial.release.programs:
            for python in pythons:
                programs.by_pip(self, program, python)
            for node, npm in nodes:
                programs.by_npm(self, program, node, npm)
            path = programs.unpacked(self.trial, program, host)
            unix = host.system != "windows"
            said = programs.use(program, path, self.trial.servers, lambda words: run(words, env=env), unix=unix)
            self.note("archive", 0, path.stat().st_size, said)

    def python(self, python: runtimes.Python) -> None:
        """Install with pip into an empty environment, and run the consumer."""
        venv = self.trial.folder("venv")
        interpreter = python.venv(venv)
        name = self.trial.release.python.folder
        env = bare(self.trial.work, PATH="/nonexistent")
        install = [interpreter, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        seconds = timed(lambda: run([*install, "--index-url", self.trial.urls.pip, "redlock-core"], env=env, cwd=venv))
        said = run([interpreter, CONSUMERS / name / "use.py", *self.trial.servers], env=env, cwd=venv)
        installed = size_of(path for path in venv.rglob("*") if "redlock" in str(path.relative_to(venv)))
        self.note(f"pip, Python {python.version}", seconds, installed, said)

    def old_python(self, python: runtimes.Python) -> None:
        """A Python that is too old: pip must fail with a line that names the required version."""
        venv = self.trial.folder("venv")
        interpreter = python.venv(venv)
        env = bare(self.trial.work, PATH="/nonexistent")
        install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check"]
        said = refused([*install, "--index-url", self.trial.urls.pip, "redlock-core"], env=env, cwd=venv)
        self.note(f"pip, Python {python.version}", 0, 0, line(said, ">=3.10"))

    def node(self, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """Install with npm into an empty folder, and run the consumer with Node."""
        folder = self.trial.folder("npm")
        env = self.npm_environment(node)
        seconds = timed(lambda: self.npm_install(npm.command(node), folder, env))
        said = self.use_node(node.path, folder, env)
        machine = f"npm {npm.version}, Node {node.version}"
        self.note(machine, seconds, size_of((folder / "node_modules").rglob("*")), said)

    def npm_environment(self, node: runtimes.Node) -> dict[str, str]:
        """The environment of a machine that has only Node and a shell."""
        return bare(self.trial.work, PATH=bare_path(self.trial.folder("path"), node.path, "sh", "env"))

    def npm_install(
        self, npm: list[str], folder: Path, env: dict[str, str], *options: str, package: str = "redlock-core"
    ) -> None:
        """Install a package into the folder. Raises Refused if npm fails or warns."""
        (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
        install = [*npm, "install", "--registry", self.trial.urls.npm, *NPM_QUIET, package, *options]
        done = ended(install, env, folder)
        if done.returncode or "warn" in done.stderr:
            raise Refused(f"{shown(done)}\nneither a failure nor a warning was expected")

    def use_node(self, node: Path, folder: Path, env: dict[str, str]) -> str:
        """Run the consumer."""
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        return run([node, "use.mjs", *self.trial.servers], env=env, cwd=folder)

    def imitations(self, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """Install with npm, and run the consumer with Bun and Deno."""
        folder = self.trial.folder("npm")
        env = self.npm_environment(node)
        seconds = timed(lambda: self.npm_install(npm.command(node), folder, env))
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        size = size_of((folder / "node_modules").rglob("*"))
        for host in runtimes.imitations():
            said = run([*host.command, "use.mjs", *self.trial.servers], env=env, cwd=folder)
            self.note(f"npm {npm.version}, {host.name}", seconds, size, said)

    def node_refusals(self, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """Without a native module for the platform, loading must fail with a line that says what to do."""
        without = self.trial.folder("npm")
        env = self.npm_environment(node)
        self.npm_install(npm.command(node), without, env, "--omit=optional")
        said = refused([node.path, *LOAD], env=env, cwd=without)
        self.note("npm --omit=optional", 0, 0, line(said, "without --omit=optional"))
        elsewhere = self.trial.folder("npm")
        self.npm_install(npm.command(node), elsewhere, env, "--os=openbsd", "--cpu=x64")
        said = refused([node.path, *LOAD], env=env, cwd=elsewhere)
        self.note("npm --os=openbsd", 0, 0, line(said, "no native module"))

    def old_node(self, old: runtimes.Node, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """A Node that is too old: loading must fail with a line that says so."""
        folder = self.trial.folder("npm")
        self.npm_install(npm.command(node), folder, self.npm_environment(node))
        said = refused([old.path, *LOAD], env=self.npm_environment(old), cwd=folder)
        self.note(f"Node {old.version}", 0, 0, line(said, "needs Node 20 or newer"))

    def jvm(self, jdks: list[runtimes.Jdk]) -> None:
        """Build the consumer with Maven and an empty local repository; run it with each of these JDKs."""
        classpath, seconds = self.jvm_consumer()
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        env = bare(self.trial.work, PATH="/nonexistent")
        for jdk in jdks:
            said = run([jdk.java, "-cp", os.pathsep.join(map(str, classpath)), JVM_MAIN, *self.trial.servers], env=env)
            self.note(f"Maven, Java {jdk.version}", seconds, jar.stat().st_size, said)

    def jvm_consumer(self) -> tuple[list[Path], float]:
        """Build a project that depends on the jar; return its class path and the build time in seconds."""
        folder = self.trial.folder("maven")
        project = folder / "project"
        shutil.copytree(CONSUMERS / "jvm", project)
        maven = [*("mvn", "-q", "-B", "-ntp", "-f", project), f"-Dmaven.repo.local={folder / 'repository'}"]
        maven += [f"-Dredlock.version={version()}", f"-Dredlock.repository=file://{self.trial.packages / 'maven'}"]
        env = os.environ | {"PATH": without_rust(self.trial.folder("path"))}
        seconds = timed(lambda: run([*maven, "package"], env=env))
        listed = (project / "target" / "classpath").read_text().strip().split(os.pathsep)
        return [project / "target" / "classes", *map(Path, listed)], seconds


def pairs(nodes: list[runtimes.Node], npms: list[runtimes.Npm]) -> list[tuple[runtimes.Node, runtimes.Npm]]:
    """Pairs in which every Node and every npm occurs at least once, and in which the two fit each other."""
    found = [(node, next(npm for npm in reversed(npms) if npm.fits(node))) for node in nodes]
    found += [
        (next(node for node in nodes if npm.fits(node)), npm) for npm in npms if npm not in [npm for _, npm in found]
    ]
    return found


def bare_path(folder: Path, *programs: str | Path) -> str:
    """A PATH with only these programs: no compiler, no cargo."""
    for program in programs:
        if found := shutil.which(program):
            (folder / Path(program).name).symlink_to(found)
    return str(folder)


def without_rust(folder: Path) -> str:
    """The PATH, preceded by a cargo and a rustc that fail."""
    for name in ("cargo", "rustc"):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} was called" >&2\nexit 1\n')
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
