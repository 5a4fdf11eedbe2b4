"""Installs what was packed, as its users do, and uses it: no cargo on the PATH, no registry but one on loopback.

    python3 -m release.smoke OUT [--quick] [--root NAME]... [--suites]

On this machine into every Python, Node and JDK at hand, or with --quick into one of each; in roots for other kinds of
machine with --root. Each takes locks: in memory, and on a real server where there is one, nested, kept alive, fought
for by processes, by TLS. --suites runs the packages' own tests against what was installed. Prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from release import roots, runtimes, suites
from release.registry import Urls, serving
from release.targets import ROOT, Refused, Release, Target, load, version

CONSUMERS = ROOT / "release" / "consumers"
# The servers of the tests.
sys.path.append(str(ROOT / "python" / "tests"))
from servers import Server, free_port  # noqa: E402

TIMEOUT = 900


@dataclass(frozen=True)
class Row:
    """What was installed where, and what it did."""

    machine: str
    installer: str
    seconds: float
    size: int
    said: str

    def __str__(self) -> str:
        return f"| {self.machine} | {self.installer} | {self.seconds:.1f} | {self.size / 1e6:.2f} | {self.said} |"


HEAD = "| machine | installed by | s | MB | what ran |\n|---|---|---|---|---|"


class Smoke:
    """The packages of OUT, a registry that has them, and servers to lock on."""

    def __init__(self, release: Release, out: Path, work: Path, urls: Urls, servers: list[str]) -> None:
        self.release = release
        self.packages = out / "packages"
        self.work = work
        self.urls = urls
        self.servers = servers
        self.rows: list[Row] = []

    def note(self, machine: str, installer: str, seconds: float, size: int, said: str) -> None:
        """Add a row, and print it."""
        row = Row(machine, installer, seconds, size, said)
        if not self.rows:
            print(HEAD)
        self.rows.append(row)
        print(row, flush=True)

    def folder(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.work))

    def bare_path(self, *programs: str | Path) -> str:
        """A PATH with these programs alone: no compiler, no cargo."""
        folder = self.folder("path")
        for program in programs:
            found = shutil.which(program)
            if found:
                (folder / Path(program).name).symlink_to(found)
        return str(folder)

    # ---- Python -------------------------------------------------------------------------------------------------

    def python(self, python: runtimes.Python) -> None:
        """pip, in an empty environment."""
        venv = self.folder("venv")
        interpreter = python.venv(venv)
        name = self.release.python.folder
        env = bare(self.work, PATH="/nonexistent")
        install = [interpreter, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        seconds = timed(lambda: run([*install, "--index-url", self.urls.pip, "redlock-core"], env=env, cwd=venv))
        said = run([interpreter, CONSUMERS / name / "use.py", *self.servers], env=env, cwd=venv)
        installed = size_of(path for path in venv.rglob("*") if "redlock" in str(path.relative_to(venv)))
        self.note(self.machine, f"pip, Python {python.version}", seconds, installed, said)

    def old_python(self, python: runtimes.Python) -> None:
        """One that is too old is told so."""
        venv = self.folder("venv")
        interpreter = python.venv(venv)
        env = bare(self.work, PATH="/nonexistent")
        install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--index-url", self.urls.pip]
        said = refused([*install, "redlock-core"], env=env, cwd=venv)
        self.note(self.machine, f"pip, Python {python.version}", 0, 0, line(said, ">=3.10"))

    # ---- Node ---------------------------------------------------------------------------------------------------

    def node(self, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """npm, in an empty folder."""
        folder = self.folder("npm")
        env = self.npm_environment(node)
        seconds = timed(lambda: self.npm_install(npm.command(node), folder, env))
        said = self.use_node(node.path, folder, env)
        machine = f"npm {npm.version}, Node {node.version}"
        self.note(self.machine, machine, seconds, size_of((folder / "node_modules").rglob("*")), said)

    def npm_environment(self, node: runtimes.Node) -> dict[str, str]:
        """That of a machine with Node and nothing else."""
        return bare(self.work, PATH=self.bare_path(node.path, "sh", "env"))

    def npm_install(self, npm: list[str], folder: Path, env: dict[str, str], *options: str) -> None:
        """Install the package there; a warning is a failure."""
        (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
        install = [*npm, "install", "--registry", self.urls.npm, *NPM_QUIET, "redlock-core", *options]
        done = ended(install, env, folder)
        if done.returncode or "warn" in done.stderr:
            raise Refused(f"{shown(done)}\nneither a failure nor a warning was expected")

    def use_node(self, node: Path, folder: Path, env: dict[str, str]) -> str:
        """Run the program that uses it."""
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        return run([node, "use.mjs", *self.servers], env=env, cwd=folder)

    def node_refusals(self, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """Where there is no module, and where Node is too old: a line that says what to do."""
        without = self.folder("npm")
        env = self.npm_environment(node)
        self.npm_install(npm.command(node), without, env, "--omit=optional")
        said = refused([node.path, *LOAD], env=env, cwd=without)
        self.note(self.machine, "npm --omit=optional", 0, 0, line(said, "without --omit=optional"))
        elsewhere = self.folder("npm")
        self.npm_install(npm.command(node), elsewhere, env, "--os=openbsd", "--cpu=x64")
        said = refused([node.path, *LOAD], env=env, cwd=elsewhere)
        self.note(self.machine, "npm --os=openbsd", 0, 0, line(said, "no native module"))

    def old_node(self, old: runtimes.Node, node: runtimes.Node, npm: runtimes.Npm) -> None:
        """One that is too old says so."""
        folder = self.folder("npm")
        self.npm_install(npm.command(node), folder, self.npm_environment(node))
        said = refused([old.path, *LOAD], env=self.npm_environment(old), cwd=folder)
        self.note(self.machine, f"Node {old.version}", 0, 0, line(said, "needs Node 20 or newer"))

    # ---- JVM ----------------------------------------------------------------------------------------------------

    def jvm(self, jdks: list[runtimes.Jdk]) -> None:
        """Maven, with an empty local repository; then every Java with what it put on the class path."""
        classpath, seconds = self.jvm_consumer()
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        env = bare(self.work, PATH="/nonexistent")
        for jdk in jdks:
            said = run([jdk.java, "-cp", os.pathsep.join(map(str, classpath)), *JVM_MAIN, *self.servers], env=env)
            self.note(self.machine, f"Maven, Java {jdk.version}", seconds, jar.stat().st_size, said)

    def jvm_consumer(self) -> tuple[list[Path], float]:
        """A project that depends on the jar, built; its class path, and how long it took."""
        folder = self.folder("maven")
        project = folder / "project"
        shutil.copytree(CONSUMERS / "jvm", project)
        maven = [*("mvn", "-q", "-B", "-ntp", "-f", project), f"-Dmaven.repo.local={folder / 'repository'}"]
        maven += [f"-Dredlock.version={version()}", f"-Dredlock.repository=file://{self.packages / 'maven'}"]
        env = os.environ | {"PATH": without_cargo()}
        seconds = timed(lambda: run([*maven, "package"], env=env))
        listed = (project / "target" / "classpath").read_text().strip().split(os.pathsep)
        return [project / "target" / "classes", *map(Path, listed)], seconds

    # ---- here ---------------------------------------------------------------------------------------------------

    @property
    def machine(self) -> str:
        """What this machine is called in the table."""
        return self.release.host().rust

    def here(self) -> None:
        """Everything on this machine."""
        for python in runtimes.pythons():
            self.python(python)
        if old := runtimes.old_python():
            self.old_python(old)
        combinations = pairs(runtimes.nodes(), runtimes.npms())
        for node, npm in combinations:
            self.node(node, npm)
        self.node_refusals(*combinations[0])
        if old_node := runtimes.old_node():
            self.old_node(old_node, *combinations[0])
        self.jvm(runtimes.jdks())

    def quick(self) -> None:
        """One of each, which this machine has."""
        python, node, npm, jdk = runtimes.at_hand()
        self.python(python)
        self.node(node, npm)
        self.node_refusals(node, npm)
        self.jvm([jdk])

    # ---- elsewhere ----------------------------------------------------------------------------------------------

    def there(self, name: str) -> None:
        """Everything that runs in a root."""
        root = roots.root(name)
        target = self.release.target(roots.RECIPES[name].target)
        if root.seconds:
            print(f"(made the root {name} in {root.seconds:.0f} s)", file=sys.stderr)
        binds = {str(self.work): "/mnt/work", str(ROOT): "/mnt/redlock"}

        def inside(path: Path) -> str:
            for outer, inner in ((self.work, "/mnt/work"), (ROOT, "/mnt/redlock")):
                if path.is_relative_to(outer):
                    return root.path(f"{inner}/{path.relative_to(outer)}")
            raise ValueError(path)

        def run_inside(argv: list[str], folder: Path) -> str:
            done = root.run(argv, cwd=f"/mnt/work/{folder.relative_to(self.work)}", binds=binds, timeout=TIMEOUT)
            if done.returncode:
                raise Refused(f"{name}: {shown(done)}")
            return done.stdout.strip()

        servers = [inside(Path(server)) if server.endswith(".pem") else server for server in self.servers]
        if root.node:
            self._node_there(root, target, run_inside, servers)
        if root.python:
            self._python_there(root, target, run_inside, inside, servers)
        if root.old_python:
            self._old_python_there(root, run_inside, inside)
        if root.java:
            self._jvm_there(root, target, run_inside, inside, servers)
        for limit in root.limits:
            print(f"left out in {name}: {limit}", file=sys.stderr)

    def _node_there(
        self, root: roots.Root, target: Target, run_inside: Callable[[list[str], Path], str], servers: list[str]
    ) -> None:
        folder = self.folder("npm")
        (folder / "package.json").write_text('{"name": "consumer", "private": true}\n')
        install = ["install", "--registry", self.urls.npm, *NPM_QUIET, "redlock-core"]
        node, npm = runtimes.nodes()[0], runtimes.npms()[1]
        if root.is_emulated or root.is_windows:
            # npm is the same everywhere, and slow there: it is told for which machine it installs.
            platform = [f"--os={target.npm.os}", f"--cpu={target.npm.cpu}"]
            platform += [f"--libc={target.npm.libc}"] if target.npm.libc else []
            env = self.npm_environment(node)
            seconds = timed(lambda: run([*npm.command(node), *install, *platform], env=env, cwd=folder))
        else:
            seconds = timed(lambda: run_inside([*root.npm, *install], folder))
        shutil.copy(CONSUMERS / "node" / "use.mjs", folder)
        said = run_inside([root.node, "use.mjs", *servers], folder)
        self.note(root.recipe.about, "npm", seconds, size_of((folder / "node_modules").rglob("*")), said)

    def _python_there(
        self,
        root: roots.Root,
        target: Target,
        run_inside: Callable[[list[str], Path], str],
        inside: Callable[[Path], str],
        servers: list[str],
    ) -> None:
        folder = self.folder("python")
        if root.is_windows:
            # What is built here for it is no wheel: see release.native.
            shutil.copytree(ROOT / "python" / "redlock", folder / "redlock", ignore=shutil.ignore_patterns("*.so"))
            shutil.copy(self.packages.parent / target.rust / "redlock" / "_native.pyd", folder / "redlock")
            shutil.copy(CONSUMERS / "python" / "use.py", folder)
            said = run_inside([root.python, "use.py", *servers], folder)
            self.note(root.recipe.about, "a folder", 0, size_of((folder / "redlock").rglob("*")), said)
            return
        python = f"{inside(folder)}/venv/bin/python"
        run_inside([root.python, "-m", "venv", f"{inside(folder)}/venv"], folder)
        install = [python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        seconds = timed(lambda: run_inside([*install, "--index-url", self.urls.pip, "redlock-core"], folder))
        said = run_inside([python, inside(CONSUMERS / "python" / "use.py"), *servers], folder)
        installed = size_of(path for path in folder.rglob("*") if "redlock" in str(path.relative_to(folder)))
        self.note(root.recipe.about, "pip", seconds, installed, said)

    def _old_python_there(
        self, root: roots.Root, run_inside: Callable[[list[str], Path], str], inside: Callable[[Path], str]
    ) -> None:
        folder = self.folder("python")
        python = f"{inside(folder)}/venv/bin/python"
        run_inside([root.old_python, "-m", "venv", f"{inside(folder)}/venv"], folder)
        install = [python, "-m", "pip", "install", "--disable-pip-version-check", "--index-url", self.urls.pip]
        script = " ".join([*install, "redlock-core", "2>&1;", "test $? -ne 0"])
        said = run_inside(["/bin/sh", "-c", script], folder)
        self.note(root.recipe.about, "pip, Python 3.9", 0, 0, line(said, "redlock-core"))

    def _jvm_there(
        self,
        root: roots.Root,
        target: Target,
        run_inside: Callable[[list[str], Path], str],
        inside: Callable[[Path], str],
        servers: list[str],
    ) -> None:
        classpath, _ = self.jvm_consumer()
        separator = ";" if root.is_windows else ":"
        jar = next(path for path in classpath if path.name.startswith("redlock-core"))
        command = [root.java, "-cp", separator.join(map(inside, classpath)), *JVM_MAIN, *servers]
        said = run_inside(command, self.folder("java"))
        self.note(root.recipe.about, "the jar", 0, jar.stat().st_size, said)


NPM_QUIET = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn"]
LOAD = ["--eval", 'import("redlock-core").catch((error) => { console.error(error.message); process.exit(1); })']
JVM_MAIN = ["dev.redlock.consumer.Use"]


def pairs(nodes: list[runtimes.Node], npms: list[runtimes.Npm]) -> list[tuple[runtimes.Node, runtimes.Npm]]:
    """Every Node and every npm at least once, each with one that fits."""
    found = [(node, next(npm for npm in reversed(npms) if npm.fits(node))) for node in nodes]
    found += [
        (next(node for node in nodes if npm.fits(node)), npm) for npm in npms if npm not in [npm for _, npm in found]
    ]
    return found


def bare(home: Path, **variables: str) -> dict[str, str]:
    """An environment with nothing of this one's."""
    kept = {name: os.environ[name] for name in ("SystemRoot", "TMP", "TEMP") if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **variables}


def without_cargo() -> str:
    """The PATH without the folders that have a cargo."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not shutil.which("cargo", path=folder))


def run(command: list[str | Path], *, env: dict[str, str], cwd: Path | None = None) -> str:
    """Run it; what it said."""
    done = ended(command, env, cwd)
    if done.returncode:
        raise Refused(shown(done))
    return done.stdout.strip()


def refused(command: list[str | Path], *, env: dict[str, str], cwd: Path) -> str:
    """Run it; what it said when it failed, which it must."""
    done = ended(command, env, cwd)
    if not done.returncode:
        raise Refused(f"{shown(done)}\na failure was expected")
    return done.stderr


def ended(command: list[str | Path], env: dict[str, str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    words = list(map(str, command))
    return subprocess.run(
        words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


def shown(done: subprocess.CompletedProcess[str]) -> str:
    """A command, and what came of it."""
    return f"{' '.join(done.args)}: exit {done.returncode}\n{done.stdout}{done.stderr}".strip()


def line(said: str, about: str) -> str:
    """The line of what was said that tells what to do; there must be one."""
    for candidate in said.splitlines():
        if about in candidate:
            return candidate.strip()
    raise Refused(f"nothing about “{about}” in:\n{said}")


def timed(work: Callable[[], object]) -> float:
    """How many seconds it takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def size_of(paths: Iterator[Path]) -> int:
    """How many bytes files have."""
    return sum(path.stat().st_size for path in paths if path.is_file() and not path.is_symlink())


@contextlib.contextmanager
def locking(work: Path) -> Iterator[list[str]]:
    """A real server, with and without TLS, as arguments of the programs that use packages; none where there is none."""
    if not shutil.which("redis-server"):
        print("no redis-server here: memory:// alone", file=sys.stderr)
        yield []
        return
    certificates(work)
    tls = free_port()
    options = ["--tls-port", str(tls), "--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]
    with Server(work, *options, "--tls-auth-clients", "no") as server:
        yield [server.url, f"rediss://127.0.0.1:{tls}", str(work / "ca.pem")]


def certificates(folder: Path) -> None:
    """A private authority, and a certificate of its making for a server on loopback."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=private", "-days", "2")
    openssl("req", *new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1")
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions", "-days", "2"]
    openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.smoke", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--quick", action="store_true", help="one Python, one Node, one JDK; fetches nothing")
    parser.add_argument("--root", action="append", choices=list(roots.RECIPES), default=[], help="there, not here")
    parser.add_argument("--suites", action="store_true", help="the packages' own tests instead, on what was installed")
    given = parser.parse_args()
    out = given.out.resolve()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="redlock-smoke-") as work,
            serving(out / "packages") as urls,
            locking(Path(work)) as servers,
        ):
            smoke = Smoke(load(), out, Path(work), urls, servers)
            for name in given.root:
                try:
                    smoke.there(name)
                except roots.Unsupported as error:
                    print(f"left out: {error}", file=sys.stderr)
            if given.suites:
                suites.run(smoke)
                try:
                    suites.run(smoke, roots.root("musl"))
                except roots.Unsupported as error:
                    print(f"left out: whole suites on musl: {error}", file=sys.stderr)
            elif given.quick:
                smoke.quick()
            elif not given.root:
                smoke.here()
    except Refused as error:
        sys.exit(f"release.smoke: {error}")
    for line_ in runtimes.missing:
        print(f"left out: {line_}", file=sys.stderr)


if __name__ == "__main__":
    main()
