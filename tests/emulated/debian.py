"""Fetches and unpacks Debian packages of any suite and architecture, without installing them.

apt-get runs with a separate configuration, lists and status. So it regards no package as installed, and the system's
own lists and packages do not change. It checks signatures as usual.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from release.commands import Refused
from release.targets import ROOT

FOLDER = ROOT / "target" / "release-debian"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def unpack(suite: str, architecture: str, names: list[str], root: Path, *, dependencies: bool = True) -> None:
    """Unpack these packages and their dependencies into `root`, without running their scripts."""
    environment = _environment(suite, architecture)
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".debs-") as work:
        if dependencies:
            Path(work, "partial").mkdir()
            _apt(environment, "install", "--yes", "--download-only", "-o", f"Dir::Cache::archives={work}", *names)
        else:
            _apt(environment, "download", *names, cwd=Path(work))
        root.mkdir(parents=True, exist_ok=True)
        # base-files first: it has the links /bin and /lib through which the others unpack.
        packages = sorted(Path(work).glob("*.deb"))
        for package in sorted(packages, key=lambda path: not path.name.startswith("base-files_")):
            subprocess.run(["dpkg-deb", "--extract", package, root], check=True)


def source(suite: str, name: str, folder: Path) -> None:
    """Unpack the upstream source of this source package, without Debian's patches, into a folder of its own."""
    environment = _environment(suite, "amd64", "deb-src")
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix=".sources-") as work:
        _apt(environment, "source", "--download-only", name, cwd=Path(work))
        folder.mkdir(parents=True, exist_ok=True)
        for archive in Path(work).glob("*.orig.tar.*[!c]"):
            subprocess.run(["tar", "--extract", "--no-same-owner", "-f", archive, "-C", folder], check=True)


def _environment(suite: str, architecture: str, kind: str = "deb") -> dict[str, str]:
    """Environment variables that restrict apt-get to this suite. Updates its lists: mirrors drop replaced packages."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Refused("no apt-get here: nothing from Debian")
    if not KEYS.exists():
        raise Refused("no keys of Debian's archive here: install the package debian-archive-keyring")
    folder = FOLDER / f"{suite}-{architecture if kind == 'deb' else 'source'}"
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    # Release files of sid expire. check-valid-until=no accepts an expired one: an older snapshot is good enough here.
    options = f"arch={architecture} target={'Packages' if kind == 'deb' else 'Sources'} signed-by={KEYS}"
    (folder / "sources.list").write_text(f"{kind} [{options} check-valid-until=no] {mirror()} {suite} main\n")
    (folder / "status").touch()
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    (folder / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {"APT_CONFIG": str(folder / "apt.conf")}
    _apt(environment, "update")
    return environment


def mirror() -> str:
    """The URL of a Debian mirror: DEBIAN_MIRROR, or else this machine's own."""
    if named := os.environ.get("DEBIAN_MIRROR"):
        return named
    if shutil.which("apt-get"):
        command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Identifier: Packages"]
        known = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for line in known.splitlines():
            suite, _, uri = line.partition(" ")
            # Only Debian's main mirror has a suite with this ending: security updates have another name, and other
            # repositories have no such suite.
            if suite.endswith("-updates"):
                return uri
    raise Refused("this machine knows no mirror of Debian: set DEBIAN_MIRROR")


def versions(suite: str, architecture: str, name: str) -> list[str]:
    """The versions of a package in a suite, newest first."""
    environment = os.environ | _environment(suite, architecture)
    said = subprocess.run(["apt-cache", "madison", name], env=environment, check=True, capture_output=True, text=True)
    return [line.split("|")[1].strip() for line in said.stdout.splitlines()]


def _apt(environment: dict[str, str], *arguments: str, cwd: Path | None = None) -> None:
    run = subprocess.run(
        ["apt-get", "--quiet", "--quiet", *arguments],
        env=os.environ | environment | {"DEBIAN_FRONTEND": "noninteractive"},
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if run.returncode:
        errors = [line.removeprefix("E: ") for line in run.stderr.splitlines() if line.startswith("E: ")]
        raise Refused(f"apt-get {arguments[0]}: {errors[0] if errors else f'exit {run.returncode}'}")
