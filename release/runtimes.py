"""Finds the interpreters to try packages with: those of this machine, and further versions of Node and npm from npm.

    python3 -m release.runtimes     fetches the versions that are not here yet, and lists all

A version that is not available is left out, and `missing` says why. npm installs the versions of Node and npm that
runtimes.json names into target/release-runtimes: they are only for trying packages, and never part of one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from release.commands import Refused, ended, run
from release.targets import ROOT

FOLDER = ROOT / "target" / "release-runtimes"

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.14t", "3.15"]
# Each with the npm that is tried with it.
NODES = {"20": "10", "22": "12", "24": "11", "26": "12"}
JDKS = ["17", "21", "25"]

SYSTEM_JAVA = Path("/usr/lib/jvm")

missing: list[str] = []
"""The interpreters that are not available here, a line each, with the reason."""


@dataclass(frozen=True)
class Runtime:
    """An interpreter."""

    path: Path
    version: str

    def venv(self, folder: Path) -> Path:
        """Make a virtual environment with this Python; return its interpreter."""
        run([self.path, "-m", "venv", "--clear", folder])
        return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


# ---- Python ---------------------------------------------------------------------------------------------------------

ASK_PYTHON = """
import importlib.util, json, platform, sys, sysconfig
has = lambda name: importlib.util.find_spec(name) is not None
base = getattr(sys, "_base_executable", None) or sys.executable
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
usable = platform.python_implementation() == "CPython" and has("ensurepip") and has("venv") and has("_ssl")
print(json.dumps([base, platform.python_version() + free, usable]))
"""


@cache
def pythons() -> list[Runtime]:
    """One CPython of each version that can make virtual environments, oldest first. Of equal ones, the first on the
    PATH.
    """
    folders = [Path(folder) for folder in os.get_exec_path()] + sorted(Path.home().glob(".pyenv/versions/*/bin"))
    pattern = re.compile(r"python3(\.\d+t?)?(\.exe)?")
    paths = [path for folder in folders for path in sorted(folder.glob("python3*")) if pattern.fullmatch(path.name)]
    found = {_short(python.version): python for python in map(_ask_python, reversed(paths)) if python}
    return list(_each("Python", PYTHONS, found.get))


def _short(version: str) -> str:
    """Its major and minor version, and `t` if it is free-threaded: 3.14t."""
    return re.sub(r"^(\d+\.\d+)[^t]*", r"\1", version)


def _ask_python(path: Path) -> Runtime | None:
    try:
        # In /, because Python could take files of another folder for modules.
        base, version, usable = json.loads(run([path, "-I", "-c", ASK_PYTHON], cwd=Path("/")))
    except (Refused, ValueError):
        return None
    return Runtime(Path(base), version) if usable else None


# ---- Node and npm ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A Node, and an npm for it."""

    path: Path
    version: str
    npm: list[str]
    """The command that calls npm with this Node."""
    npm_version: str


@cache
def fetched() -> Path:
    """The folder with the packages of runtimes.json. npm installs a Node only on a machine of its kind."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "release" / "runtimes.json", FOLDER / "package.json")
    options = ["--ignore-scripts", "--no-bin-links", "--no-package-lock", "--no-audit", "--no-fund"]
    run(["npm", "install", "--prefix", FOLDER, *options], cwd=FOLDER)
    return FOLDER / "node_modules"


@cache
def nodes() -> list[Node]:
    """One Node of each supported long-term release, and the newest."""
    return list(_each("Node", NODES, _node))


@cache
def old_node() -> Path | None:
    """A Node that is too old for the package, or None."""
    return next(_each("Node", ["18"], _fetched_node), None)


def _fetched_node(major: str) -> Path | None:
    # npm leaves a Node out on another system or processor. On a machine with musl, `_version` refuses it.
    node = fetched() / f"node-{major}" / "bin" / "node"
    return node if node.exists() and _version(node) else None


def _node(major: str) -> Node | None:
    found = shutil.which("node")
    own = found and _version(Path(found)).startswith(f"{major}.")
    path = Path(found) if own else _fetched_node(major)
    return with_npm(path, fetched() / f"npm-{NODES[major]}") if path else None


def with_npm(node: Path, npm: Path) -> Node:
    """A Node with the npm of a folder, which is only JavaScript and the same on every machine."""
    version = _version(node)
    manifest = json.loads((npm / "package.json").read_text(encoding="utf-8"))
    return Node(node, version, [str(node), str(npm / "bin" / "npm-cli.js")], manifest["version"])


def _version(node: Path) -> str:
    return run([node, "--version"]).removeprefix("v")


@cache
def imitations() -> list[tuple[str, list[str]]]:
    """Bun and Deno, as installed for the tests of the Node package, each with the command that runs a file."""
    installed = ROOT / "node" / "test" / "fixtures" / "node_modules"
    programs = {"Bun": ("@oven/*/bin/bun*", ["run"]), "Deno": ("@deno/*/deno*", ["run", "--allow-all"])}

    def find(name: str) -> tuple[str, list[str]] | None:
        pattern, options = programs[name]
        paths = sorted(installed.glob(pattern))
        return (name, [str(paths[0]), *options]) if paths else None

    return list(_each("", programs, find))


# ---- Java -----------------------------------------------------------------------------------------------------------


@cache
def jdks() -> list[Runtime]:
    """One Java of each long-term release, the preferred home first among equal ones."""
    found = {jdk.version: jdk for jdk in map(_ask_java, reversed(_java_homes())) if jdk}
    return list(_each("Java", JDKS, found.get))


def _java_homes() -> list[Path]:
    """The Java homes of this machine, the preferred one first."""
    homes = [Path(home) for home in [os.environ.get("JAVA_HOME")] if home]
    if java := shutil.which("java"):
        homes.append(Path(java).resolve().parent.parent)
    return homes + sorted(SYSTEM_JAVA.glob("*"))


def _ask_java(home: Path) -> Runtime | None:
    java = home.resolve() / "bin" / ("java.exe" if os.name == "nt" else "java")
    try:
        said = ended([java, "-XshowSettings:properties", "-version"]).stderr
    except Refused:
        return None
    version = re.search(r"^ *java\.specification\.version = (\d+)", said, re.MULTILINE)
    return Runtime(java, version[1]) if version else None


# ---- the interpreters that every contributor has --------------------------------------------------------------------


def at_hand() -> tuple[Runtime, Node, Runtime]:
    """The preferred Python, Node and Java of this machine. Fetches nothing."""
    node, npm, homes = shutil.which("node"), shutil.which("npm"), _java_homes()
    python = _ask_python(Path(sys.executable))
    jdk = _ask_java(homes[0]) if homes else None
    if not (python and node and npm and jdk):
        raise Refused("there must be a Python with venv, a Node with npm, and a Java")
    # The command is a link into npm's folder, but for Windows, where the folder is beside it.
    folder = Path(npm).parent / "node_modules" / "npm" if os.name == "nt" else Path(npm).resolve().parent.parent
    return python, with_npm(Path(node), folder), jdk


# ---- helpers --------------------------------------------------------------------------------------------------------


def _each(name: str, versions: Iterable[str], find: Callable[[str], Any]) -> Iterator[Any]:
    """Yields what `find` returns for each version. Adds to `missing` what is None or Refused."""
    for version in versions:
        try:
            if found := find(version):
                yield found
                continue
            reason = "none on this machine"
        except Refused as error:
            reason = str(error).splitlines()[-1]
        missing.append(f"{name} {version}: {reason}".strip())


if __name__ == "__main__":
    for name, found in {"Python": pythons(), "Node": nodes(), "Java": jdks()}.items():
        for runtime in found:
            print(f"{name:8} {runtime.version:10} {runtime.path}")
    for line in missing:
        print(f"missing: {line}", file=sys.stderr)
