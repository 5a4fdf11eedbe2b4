"""The one list: `targets.json`, what is built from this repository, and for which machines.

A further program or JVM module is an entry there. Whatever names a target, a package or a library reads it from here:
the scripts beside this file, their tests, and the workflows.

    python3 -m release.targets crossed      those that Linux builds beside its own, a line each
    python3 -m release.targets unlinked     those that it can only compile for
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.refused import Refused

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("targets.json")


@dataclass(frozen=True)
class NpmPlatform:
    """What npm calls a target. The packages for it are named after `platform`."""

    platform: str
    os: str
    cpu: str
    libc: str | None = None


@dataclass(frozen=True)
class Target:
    """A kind of machine, as Rust and each registry call it."""

    rust: str
    """Rust's name of it."""

    wheel: str
    """What maturin calls its compatibility: `manylinux2014`, `musllinux_1_2`, or `pypi`."""

    npm: NpmPlatform
    jna: str
    """The folder in which JNA looks for a library in a jar."""

    runner: str
    """The hosted machine that builds it."""

    published: bool
    """Or only proof that the code builds and runs there."""

    glibc: str | None = None
    """The oldest glibc that it runs with."""

    @property
    def system(self) -> str:
        """`linux`, `darwin` or `windows`."""
        return next(name for name in ("linux", "darwin", "windows") if name in self.rust)

    @property
    def links_on_linux(self) -> bool:
        """Whether zig has all that it is linked with: not Apple's frameworks, nor Microsoft's libraries."""
        return self.system == "linux" or self.rust.endswith("-windows-gnu")

    @property
    def musl(self) -> bool:
        """Whether its C library is musl."""
        return self.rust.endswith("-musl")

    @property
    def zig(self) -> str:
        """What cargo-zigbuild calls it."""
        return f"{self.rust}.{self.glibc}" if self.glibc else self.rust

    def library(self, name: str) -> str:
        """The file that cargo makes of the library `name`."""
        return {"linux": f"lib{name}.so", "darwin": f"lib{name}.dylib", "windows": f"{name}.dll"}[self.system]

    def in_jar(self, name: str) -> str:
        """Where a jar has the library `name`. JNA knows no musl: its library lies beside the other, and is named so."""
        return f"{self.jna}/{self.library(f'{name}_musl' if self.musl else name)}"

    def program(self, name: str) -> str:
        """The file that cargo makes of the program `name`."""
        return f"{name}.exe" if self.system == "windows" else name

    def is_host(self) -> bool:
        """Whether what is built for it runs here."""
        machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        musl = platform.libc_ver()[0] != "glibc" if self.system == "linux" else False
        return self.rust.startswith(machine) and self.system == platform.system().lower() and self.musl == musl


@dataclass(frozen=True)
class Python:
    """The Python package."""

    folder: str
    crate: str
    abis: list[str]
    """A wheel for each: `abi3`, `cp314t`, `abi3t`."""


@dataclass(frozen=True)
class Npm:
    """The Node package."""

    folder: str
    crate: str
    library: str
    file: str
    """What its native module is called in a package."""

    platforms: str
    """What the names of its platform packages begin with."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Its package.json in the repository."""
        return json.loads((ROOT / self.folder / "package.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class JvmModule:
    """A Maven module whose jar has a native library for every target, or none."""

    folder: str
    crate: str | None = None
    library: str | None = None


@dataclass(frozen=True)
class Program:
    """A program: an archive for each target, a wheel and npm packages that put it on the PATH."""

    crate: str
    name: str
    """What people type."""

    python: str
    """Its distribution on PyPI."""

    npm: str
    """Its package on npm."""

    platforms: str
    """What the names of its platform packages on npm begin with."""

    folder: str
    """That of its crate, with a pyproject.toml for maturin and a README.md."""


@dataclass(frozen=True)
class Release:
    """All that is released together, always in one version."""

    crates: list[str]
    python: Python
    npm: Npm
    jvm: list[JvmModule]
    programs: list[Program]
    targets: list[Target]

    def target(self, rust: str) -> Target:
        """The target of that name; one that is only proof stands in for none."""
        for target in self.targets:
            if target.rust == rust:
                return target
        known = ", ".join(target.rust for target in self.targets)
        raise Refused(f"no target {rust} in {LIST.name}; there are: {known}")

    def host(self) -> Target:
        """The target that this machine is."""
        for target in self.targets:
            if target.is_host() and target.published:
                return target
        raise Refused(f"no package is published for this machine ({platform.system()} on {platform.machine()})")

    def published(self) -> list[Target]:
        """The targets that users get packages for."""
        return [target for target in self.targets if target.published]


def load(path: Path = LIST) -> Release:
    """Read the list."""
    data = json.loads(path.read_text(encoding="utf-8"))
    targets = [Target(**(entry | {"npm": NpmPlatform(**entry["npm"])})) for entry in data["targets"]]
    return Release(
        crates=data["crates"],
        python=Python(**data["python"]),
        npm=Npm(**data["npm"]),
        jvm=[JvmModule(**entry) for entry in data["jvm"]],
        programs=[Program(**entry) for entry in data["programs"]],
        targets=targets,
    )


def version() -> str:
    """The version of everything, as Cargo and npm write it."""
    manifest = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.findall(r'^\[workspace\.package\]\n(?:[^\[]*\n)?version = "(.+)"$', manifest, re.MULTILINE)[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.targets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", choices=("crossed", "unlinked"))
    given = parser.parse_args()
    release = load()
    crossed = [target for target in release.targets if target.links_on_linux and target != release.host()]
    # Nothing but Windows itself has what the C compiler of MSVC needs; its twin stands in for it.
    unlinked = [target for target in release.targets if not target.links_on_linux and "msvc" not in target.rust]
    for target in crossed if given.which == "crossed" else unlinked:
        print(target.rust)


if __name__ == "__main__":
    main()
