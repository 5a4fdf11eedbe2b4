"""Reads `targets.json`, the list of everything that is built from this repository and of the machines it is built for.

    python3 -m release.targets crossed      lists the targets that Linux can build besides its own
    python3 -m release.targets unlinked     lists the targets that Linux can compile but not link

The other release modules, their tests and the workflows read the names of targets, packages and libraries from it.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.commands import Refused

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("targets.json")


@dataclass(frozen=True)
class NpmPlatform:
    """npm's names of a target. Names of its packages end in `platform`."""

    platform: str
    os: str
    cpu: str
    libc: str | None = None


@dataclass(frozen=True)
class Target:
    """A kind of machine, with its names in Rust and in each registry."""

    rust: str
    wheel: str
    """maturin's `--compatibility`: `manylinux2014`, `musllinux_1_2`, or `pypi`."""
    npm: NpmPlatform
    jna: str
    """The folder of a library in a jar. It has the name that JNA gives to a machine."""
    runner: str
    """The hosted machine that builds it."""
    published: bool
    """Whether users get packages for it. If not, it only proves that the code builds and runs there."""
    glibc: str | None = None
    """The oldest glibc that its packages run with."""

    @property
    def system(self) -> str:
        """`linux`, `darwin` or `windows`."""
        return next(name for name in ("linux", "darwin", "windows") if name in self.rust)

    @property
    def links_on_linux(self) -> bool:
        """Whether zig can link it: zig has neither Apple's frameworks nor Microsoft's libraries."""
        return self.system == "linux" or self.rust.endswith("-windows-gnu")

    @property
    def musl(self) -> bool:
        """Whether its C library is musl."""
        return self.rust.endswith("-musl")

    @property
    def zig(self) -> str:
        """cargo-zigbuild's name of the target, which includes the version of glibc."""
        return f"{self.rust}.{self.glibc}" if self.glibc else self.rust

    def library(self, name: str) -> str:
        """The file name of the library `name`, as cargo builds it."""
        return {"linux": f"lib{name}.so", "darwin": f"lib{name}.dylib", "windows": f"{name}.dll"}[self.system]

    def in_jar(self, name: str) -> str:
        """The path of the library `name` in a jar. The folder does not say musl, so that library has another name."""
        return f"{self.jna}/{self.library(f'{name}_musl' if self.musl else name)}"

    def program(self, name: str) -> str:
        """The file name of the program `name`, as cargo builds it."""
        return f"{name}.exe" if self.system == "windows" else name

    def is_host(self) -> bool:
        """Whether this machine can run files built for it."""
        machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        musl = platform.libc_ver()[0] != "glibc" if self.system == "linux" else False
        return self.rust.startswith(machine) and self.system == platform.system().lower() and self.musl == musl


@dataclass(frozen=True)
class Python:
    """The Python package. There is a wheel for each ABI: `abi3`, `cp314t`, `abi3t`."""

    folder: str
    crate: str
    abis: list[str]


@dataclass(frozen=True)
class OnNpm:
    """A package on npm, with further ones for each target, whose names begin with `platforms`."""

    folder: str
    crate: str
    platforms: str

    @property
    def manifest(self) -> dict[str, Any]:
        """Its package.json in the repository."""
        return json.loads((ROOT / self.folder / "package.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Npm(OnNpm):
    """The Node package. Its native module is `library` for cargo, and `file` in a package."""

    library: str
    file: str


@dataclass(frozen=True)
class Program(OnNpm):
    """A program: the command `name`. Each target gets an archive, and a wheel and an npm package that put it on the
    PATH. The folder of its crate also has a pyproject.toml for maturin, a package.json for npm and a README.md.
    """

    name: str
    python: str
    """Its distribution on PyPI."""
    npm: str
    """Its package on npm."""


@dataclass(frozen=True)
class JvmModule:
    """A Maven module. Its jar has a native library for every target."""

    folder: str
    crate: str
    library: str


@dataclass(frozen=True)
class Release:
    """Everything that is released together, always in one version."""

    crate: str
    python: Python
    npm: Npm
    jvm: JvmModule
    program: Program
    targets: list[Target]

    def target(self, rust: str) -> Target:
        """The target of that name, whether published or not. Raises Refused if there is none."""
        for target in self.targets:
            if target.rust == rust:
                return target
        known = ", ".join(target.rust for target in self.targets)
        raise Refused(f"no target {rust} in {LIST.name}; there are: {known}")

    def host(self) -> Target:
        """The published target for this machine. Raises Refused if there is none."""
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
        crate=data["crate"],
        python=Python(**data["python"]),
        npm=Npm(**data["npm"]),
        jvm=JvmModule(**data["jvm"]),
        program=Program(**data["program"]),
        targets=targets,
    )


def version() -> str:
    """The version of everything, in Cargo's and npm's spelling."""
    manifest = (ROOT / "Cargo.toml").read_text(encoding="utf-8")
    return re.findall(r'^\[workspace\.package\]\n(?:[^\[]*\n)?version = "(.+)"$', manifest, re.MULTILINE)[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.targets", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", choices=("crossed", "unlinked"))
    given = parser.parse_args()
    release = load()
    crossed = [target for target in release.targets if target.links_on_linux and target != release.host()]
    # Only Windows has the files that MSVC's C compiler needs. The target windows-gnu stands in for windows-msvc.
    unlinked = [target for target in release.targets if not target.links_on_linux and "msvc" not in target.rust]
    for target in crossed if given.which == "crossed" else unlinked:
        print(target.rust)


if __name__ == "__main__":
    main()
