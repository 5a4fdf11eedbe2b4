"""Installs and uses packages on this machine as users do: without a compiler and cargo on the PATH."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from release import kotlins, runtimes
from release.commands import Refused, ended, run, shown
from release.runtimes import Node, Runtime
from release.targets import Program, Target, version
from release.trial import CONSUMERS, JVM_MAIN, Trial, bare, refused, size_of, wanted

LOAD = ["--eval", 'import("redlock-core").catch((error) => { console.error(error.message); process.exit(1); })']
PIP = ["-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
NPM = ["install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn"]
WINDOWS = os.name == "nt"


class Here:
    """A trial of the packages with the interpreters of this machine."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.program = trial.release.program
        # No compiler and no cargo.
        self.bare = bare(trial.work, PATH="/nonexistent")

    def note(self, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row to the table, for this machine."""
        self.trial.note(self.trial.release.host().rust, installer, seconds, size, said)

    def all(self) -> None:
        """Try the packages with every interpreter that is available."""
        pythons = runtimes.pythons()
        if not list(self.trial.packages.glob("python/redlock_core-*t-*.whl")):
            # Built with `--abi abi3` alone.
            runtimes.missing += [f"Python {each.version}: no wheel" for each in pythons if each.version.endswith("t")]
            pythons = [each for each in pythons if not each.version.endswith("t")]
        self._with(pythons, runtimes.nodes(), runtimes.jdks(), kotlins.ALL)
        if old_node := runtimes.old_node():
            self.old_node(old_node, runtimes.nodes()[0])

    def quick(self) -> None:
        """Try the packages with one interpreter of each language that this machine has; fetch none."""
        python, node, jdk = runtimes.at_hand()
        self._with([python], [node], [jdk], [kotlins.OLDEST, kotlins.NEWEST])

    def _with(
        self, pythons: list[Runtime], nodes: list[Node], jdks: list[Runtime], versions: list[kotlins.Versions]
    ) -> None:
        for python in pythons:
            self.python(python)
        for node in nodes:
            self.node(node)
        self.node_refusals(nodes[0])
        self.jvm(jdks)
        kotlins.use(self, jdks[0], versions)
        self.pip_program(pythons[0])
        for node in nodes:
            self.npm_program(node)
        if self.trial.out:
            path = unpacked(self.trial, self.trial.release.host())
            self.note("archive", 0, path.stat().st_size, self._use(path, self.bare))

    # ---- Python -----------------------------------------------------------------------------------------------------

    def python(self, python: Runtime) -> None:
        """Install with pip into an empty environment, and run the consumer."""
        interpreter, seconds = self._pip(python, wanted("redlock-core"))
        use = CONSUMERS / self.trial.release.python.folder / "use.py"
        venv = interpreter.parent.parent
        said = run([interpreter, use, *self.trial.servers], env=self.bare, cwd=venv)
        installed = size_of(path for path in venv.rglob("*") if "redlock" in str(path.relative_to(venv)))
        self.note(f"pip, Python {python.version}", seconds, installed, said)

    def _pip(self, python: Runtime, *packages: str) -> tuple[Path, float]:
        """Install packages into a new environment; return its interpreter and the seconds."""
        venv = self.trial.folder("venv")
        interpreter = python.venv(venv)
        install = [interpreter, *PIP, *self.trial.pip(), *packages]
        return interpreter, self.trial.installed(lambda: run(install, env=self.bare, cwd=venv))

    # ---- Node -------------------------------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        """Install with npm into an empty folder, and run the consumer with Node, and with what imitates it."""
        folder, env, seconds = self.npm_install(node)
        size = size_of((folder / "node_modules").rglob("*"))
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        hosts = [(f"Node {node.version}", [str(node.path)]), *runtimes.imitations()]
        for name, command in hosts:
            said = run([*command, "use.mjs", *self.trial.servers], env=env, cwd=folder)
            self.note(f"npm {node.npm_version}, {name}", seconds, size, said)

    def npm_install(
        self, node: Node, *options: str, package: str = "redlock-core"
    ) -> tuple[Path, dict[str, str], float]:
        """Install a package into a new folder; return the folder, the environment and the seconds. Raises Refused if
        npm fails or warns.
        """
        folder = self.trial.folder("npm")
        # A machine that has only Node and a shell.
        env = bare(self.trial.work, PATH=bare_path(self.trial.folder("path"), node.path, "sh", "env"))
        (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
        install = [*node.npm, *NPM, "--registry", self.trial.npm, f"{package}@{version()}", *options]

        def run_npm() -> None:
            done = ended(install, env, folder)
            if done.returncode or "warn" in done.stderr:
                raise Refused(f"{shown(done)}\nneither a failure nor a warning was expected")

        return folder, env, self.trial.installed(run_npm)

    def node_refusals(self, node: Node) -> None:
        """Without a native module for the platform, loading must fail with a line that says what to do."""
        for options, about in {
            ("--omit=optional",): "without --omit=optional",
            ("--os=openbsd", "--cpu=x64"): "no native module",
        }.items():
            folder, env, _ = self.npm_install(node, *options)
            self.note(f"npm {options[0]}", 0, 0, refused([node.path, *LOAD], about, env=env, cwd=folder))

    def old_node(self, old: Path, node: Node) -> None:
        """A Node that is too old: loading must fail with a line that says so."""
        folder, env, _ = self.npm_install(node)
        self.note("Node 18", 0, 0, refused([old, *LOAD], "needs Node 20 or newer", env=env, cwd=folder))

    # ---- the JVM ----------------------------------------------------------------------------------------------------

    def jvm(self, jdks: list[Runtime]) -> None:
        """Build the consumer with Maven and an empty local repository; run it with each of these JDKs."""
        classpath, seconds = self.jvm_consumer()
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        for jdk in jdks:
            command = [jdk.path, "-cp", os.pathsep.join(map(str, classpath)), JVM_MAIN, *self.trial.servers]
            self.note(f"Maven, Java {jdk.version}", seconds, jar.stat().st_size, run(command, env=self.bare))

    def jvm_consumer(self) -> tuple[list[Path], float]:
        """Build a project that depends on the jar; return its class path and the build time in seconds."""
        folder = self.trial.folder("maven")
        shutil.copytree(CONSUMERS / "jvm", folder / "project")
        env = os.environ | {"PATH": without_rust(self.trial.folder("path"))}
        return self.maven(folder / "project", env, {"maven.repo.local": str(folder / "repository")})

    def maven(self, project: Path, env: dict[str, str], settings: dict[str, str]) -> tuple[list[Path], float]:
        """Build a project that depends on the jar; return its class path and the seconds."""
        settings = {"redlock.version": version(), "redlock.repository": self.trial.maven, **settings}
        # -U: Maven remembers for a day that a repository lacked a version.
        maven = [*("mvn", "-q", "-B", "-ntp", "-U", "-f", project), *(f"-D{key}={settings[key]}" for key in settings)]
        seconds = self.trial.installed(lambda: run([*maven, "package"], env=env))
        listed = (project / "target" / "classpath").read_text().strip().split(os.pathsep)
        return [project / "target" / "classes", *map(Path, listed)], seconds

    # ---- the program ---------------------------------------------------------------------------------------------

    def pip_program(self, python: Runtime) -> None:
        """Install with pip into an empty environment: by its name, and as an extra of the library, which pins it."""
        interpreter, seconds = self._pip(python, wanted(self.program.python), wanted("redlock-core[cli]"))
        command = interpreter.with_name(f"{self.program.name}.exe" if WINDOWS else self.program.name)
        said = self._use(command, self.bare)
        self.note(f"pip, Python {python.version}", seconds, command.stat().st_size, said)

    def npm_program(self, node: Node) -> None:
        """Install with npm into an empty folder. Without the package for this machine, a line must say what to do."""
        folder, env, seconds = self.npm_install(node, package=self.program.npm)
        command = folder / "node_modules" / ".bin" / (f"{self.program.name}.cmd" if WINDOWS else self.program.name)
        said, size = self._use(command, env), size_of((folder / "node_modules").rglob("*"))
        self.note(f"npm {node.npm_version}, Node {node.version}", seconds, size, said)
        shutil.rmtree(folder / "node_modules" / Path(self.program.platforms).parent)
        said = refused([command, "--version"], "without --omit=optional", env=env, cwd=folder)
        self.note(f"{self.program.npm} without its platform package", 0, 0, said)

    def _use(self, command: Path, env: dict[str, str]) -> str:
        start = lambda words: run(words, env=env)  # noqa: E731
        return use(self.program, command, self.trial.servers, start, unix=not WINDOWS)

    def crate(self) -> None:
        """Add the published crate to a new project, which the compiler must accept. It alone needs Rust."""
        folder, env = self.trial.folder("crate"), dict(os.environ)
        run(["cargo", "init", "--quiet", "--vcs", "none", "--name", "published", folder], env=env)
        (folder / "src" / "main.rs").write_text("use redlock as _;\n\nfn main() {}\n")
        add = ["cargo", "add", "--quiet", f"redlock-core@={version()}"]
        seconds = self.trial.installed(lambda: run(add, env=env, cwd=folder))
        run(["cargo", "check", "--quiet", "--target-dir", folder / "target"], env=env, cwd=folder)
        self.note("cargo", seconds, 0, f"redlock-core {version()}: compiles")


def use(
    program: Program,
    command: str | Path,
    servers: list[str],
    start: Callable[[list[str | Path]], str],
    *,
    unix: bool,
) -> str:
    """Run an installed program; return a line about what it did. `start` runs words and returns their output. The
    command `exec` is for Unix.
    """
    said = start([command, "--version"])
    if said != f"{program.name} {version()}":
        raise Refused(f"{command} --version says {said}, not {program.name} {version()}")
    if not servers:
        return said
    url, tls, ca = servers
    secured = ["--url", tls, "--ca", ca]
    lease = start([command, "acquire", "smoke", "--ttl", "10s", *secured])
    start([command, "release", lease, *secured])
    if not unix:
        return f"{said}: acquire; release; TLS"
    # Its own command is the one that every machine of a trial has.
    under_lock = start([command, "exec", "smoke", "--url", url, "--", command, "--version"])
    if under_lock != said:
        raise Refused(f"{command} exec: {under_lock}")
    return f"{said}: acquire; release; exec; TLS"


def unpacked(trial: Trial, target: Target) -> Path:
    """Unpack the archive of a target; return the path of the program."""
    folder, program = trial.folder("archive"), trial.release.program
    (archive,) = (trial.packages / "archives").glob(f"{program.name}-{version()}-{target.rust}.*")
    shutil.unpack_archive(archive, folder)
    (path,) = folder.glob(f"*/{target.program(program.name)}")
    # Python unpacks no modes from a zip.
    path.chmod(0o755)
    return path


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
