"""Publishes the packages that `release.pack` made to crates.io, PyPI, npm and Maven Central, in this order.

    python3 -m release.publish OUT [--dry-run]

This module builds and changes nothing: users get exactly the tested files of OUT/packages. It publishes nothing until
the set is complete and all credentials are there. Each step first queries its registry and skips the files that are
already there, so the same command finishes a release that stopped half-way. If a registry has another file under the
same name and version, the release stops.

Users never see half of a package: wheels come before the source distribution, and an npm package that needs others of
this release is published only when all of those can be installed.

Credentials come from the environment, and each client sees only its own: CARGO_REGISTRY_TOKEN; TWINE_PASSWORD (a PyPI
token) and NPM_TOKEN, or instead of these the identity that GitHub gives to a workflow; MAVEN_USERNAME, MAVEN_PASSWORD,
MAVEN_GPG_KEY (armoured) and MAVEN_GPG_PASSPHRASE.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from gzip import decompress
from pathlib import Path
from typing import Any, Protocol

from release import version as versions
from release.central import Central
from release.clients import IDENTITY, Registries, Unanswered, attempts, get, run, say, without
from release.refused import Refused, in_one_line
from release.targets import ROOT, Release, load

REQUIREMENTS = ROOT / "release" / "requirements-publish.txt"
# The first npm that can publish with a workflow's identity.
NPM = (11, 5, 1)


class Stage(Protocol):
    """One registry's part of a release."""

    title: str

    def missing(self) -> list[Any]:
        """The files that the registry lacks. Raises Refused if it has another file under the same name."""

    def wants(self) -> list[str]:
        """The things that this machine lacks for publishing, such as a token. Sends no request."""

    def publish(self, missing: list[Any]) -> None:
        """Publish these files."""


# ---- the packages ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tarball:
    """An npm package."""

    path: Path
    manifest: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.manifest['name']} {self.manifest['version']}"

    @property
    def name(self) -> str:
        return self.manifest["name"]

    @cached_property
    def integrity(self) -> str:
        return "sha512-" + base64.b64encode(hashlib.sha512(self.path.read_bytes()).digest()).decode()


@dataclass
class Packages:
    """The files of OUT/packages. Raises Refused unless they are complete, unchanged and all of this version."""

    folder: Path
    release: Release
    version: str
    crates: list[Path] = field(init=False)
    python: list[Path] = field(init=False)
    npm: list[Tarball] = field(init=False)
    maven: dict[str, list[Path]] = field(init=False)
    """The files of each module, by its folder in a Maven repository."""

    def __post_init__(self) -> None:
        crates = [*self.release.crates, *(program.crate for program in self.release.programs)]
        self.crates = [self.folder / "crates" / f"{name}-{self.version}.crate" for name in crates]
        self.python = sorted(self._files("python", ".whl", ".tar.gz"))
        self.npm = [Tarball(path, manifest(path)) for path in sorted(self._files("npm", ".tgz"))]
        self.maven = {}
        for path in sorted(self._files("maven", ".jar", ".pom", ".module")):
            self.maven.setdefault(path.parent.relative_to(self.folder / "maven").as_posix(), []).append(path)
        if lacking := [*self._of_another_version(), *self._incomplete(), *self._changed()]:
            raise Refused("\n".join([f"{self.folder} is no release of {self.version}:", *lacking]))

    def _files(self, folder: str, *endings: str) -> list[Path]:
        return [path for path in (self.folder / folder).rglob("*") if path.name.endswith(endings)]

    def _of_another_version(self) -> Iterable[str]:
        python = versions.python(self.version)
        for path in self.python:
            if path.name.removesuffix(".tar.gz").split("-")[1] != python:
                yield f"python/{path.name} is of another version"
        for tarball in self.npm:
            if tarball.manifest["version"] != self.version:
                yield f"npm/{tarball.path.name} is of another version"
        for coordinate in self.maven:
            if not coordinate.endswith(f"/{self.version}"):
                yield f"maven/{coordinate} is of another version"

    def _incomplete(self) -> Iterable[str]:
        yield from (f"no crates/{path.name}" for path in self.crates if not path.exists())
        targets = self.release.published()
        wheels = len(targets) * (len(self.release.python.abis) + len(self.release.programs))
        if (found := sum(path.suffix == ".whl" for path in self.python)) != wheels:
            yield f"{found} wheels in python/, but {wheels} with one for each published target and kind"
        sources = 1 + len(self.release.programs)
        if (found := sum(path.name.endswith(".tar.gz") for path in self.python)) != sources:
            yield f"{found} source distributions in python/, but {sources} in targets.json"
        names = {tarball.name for tarball in self.npm}
        mains = [(self.release.npm.manifest["name"], self.release.npm.platforms)]
        mains += [(program.npm, program.platforms) for program in self.release.programs]
        for main, platforms in mains:
            wanted = {main, *(f"{platforms}-{target.npm.platform}" for target in targets)}
            yield from (f"no package {name} in npm/" for name in sorted(wanted - names))
        if len(self.maven) != len(self.release.jvm):
            yield f"{len(self.maven)} modules in maven/, but {len(self.release.jvm)} in targets.json"
        for module in self.release.jvm:
            yield from self._without_natives(module.library)

    def _changed(self) -> Iterable[str]:
        """The files that changed since they were packed and tested."""
        sums = self.folder / "SHA256SUMS"
        lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
        packed = {line.split("  ", 1)[1]: line.split("  ", 1)[0] for line in lines}
        modules = [path for paths in self.maven.values() for path in paths]
        for path in [*self.crates, *self.python, *(tarball.path for tarball in self.npm), *modules]:
            name = path.relative_to(self.folder).as_posix()
            if path.exists() and packed.get(name) != hashlib.sha256(path.read_bytes()).hexdigest():
                yield f"{name} is not what SHA256SUMS says"

    def _without_natives(self, library: str | None) -> Iterable[str]:
        if not library:
            return
        wanted = {target.in_jar(library) for target in self.release.published()}
        jars = [path for files in self.maven.values() for path in files if path.suffix == ".jar"]
        if not any(wanted <= set(zipfile.ZipFile(path).namelist()) for path in jars):
            yield f"no jar in maven/ has {library} for every published target"


def manifest(tarball: Path) -> dict[str, Any]:
    """The package.json of an npm package."""
    with tarfile.open(tarball) as archive:
        member = archive.extractfile("package/package.json")
        assert member, tarball
        return json.load(member)


# ---- crates.io ------------------------------------------------------------------------------------------------------


class Crates:
    """Publishes with `cargo publish`. It cannot send a packed crate but packs again, which must give the same crate."""

    title = "crates.io"

    def __init__(self, packages: Packages, registries: Registries, root: Path) -> None:
        self.packages = packages
        self.registries = registries
        self.root = root

    def missing(self) -> list[Path]:
        return [path for path in self.packages.crates if not self._is_there(path)]

    def _is_there(self, path: Path) -> bool:
        name = self._name(path)
        lines = get(f"{self.registries.crates}/{name[:2]}/{name[2:4]}/{name}") or b""
        for line in lines.splitlines():
            entry = json.loads(line)
            if entry["vers"] == self.packages.version:
                if entry["cksum"] != hashlib.sha256(path.read_bytes()).hexdigest():
                    url = json.loads(get(f"{self.registries.crates}/config.json") or b"{}")["dl"]
                    crate = get(f"{url}/{name}/{self.packages.version}/download")
                    # Another version of cargo may compress differently, so compare the contents.
                    if not crate or decompress(crate) != decompress(path.read_bytes()):
                        raise Refused(f"crates.io has another {path.name}")
                return True
        return False

    def wants(self) -> list[str]:
        return [*without("cargo"), *([] if os.environ.get("CARGO_REGISTRY_TOKEN") else ["CARGO_REGISTRY_TOKEN"])]

    def publish(self, missing: list[Path]) -> None:
        for path in missing:
            same = ["--package", self._name(path), "--locked", "--no-verify", "--quiet", *self.registries.cargo]
            with tempfile.TemporaryDirectory() as folder:
                run("cargo", "package", *same, "--target-dir", folder, cwd=self.root)
                again = Path(folder, "package", path.name)
                if decompress(again.read_bytes()) != decompress(path.read_bytes()):
                    raise Refused(f"{self.root} is not what {path.name} was packed from")
                # Returns once the index has it.
                run("cargo", "publish", *same, "--target-dir", folder, cwd=self.root, secrets=["CARGO_REGISTRY_TOKEN"])

    def _name(self, path: Path) -> str:
        return path.name.removesuffix(f"-{self.packages.version}.crate")


# ---- PyPI -----------------------------------------------------------------------------------------------------------


class PyPI:
    """Publishes with twine. In a workflow, each file is first attested with the workflow's identity."""

    title = "PyPI"

    def __init__(self, packages: Packages, registries: Registries) -> None:
        self.packages = packages
        self.registries = registries

    def missing(self) -> list[Path]:
        there: dict[str, str] = {}
        for name in sorted({path.name.split("-")[0].replace("_", "-").lower() for path in self.packages.python}):
            page = get(f"{self.registries.pypi}/{name}/", "application/vnd.pypi.simple.v1+json")
            there |= {
                file["filename"]: file["hashes"]["sha256"] for file in json.loads(page or b'{"files": []}')["files"]
            }
        for path in self.packages.python:
            if there.get(path.name, digest := hashlib.sha256(path.read_bytes()).hexdigest()) != digest:
                raise Refused(f"PyPI has another {path.name}")
        return [path for path in self.packages.python if path.name not in there]

    def wants(self) -> list[str]:
        found = os.environ.get("TWINE_PASSWORD") or os.environ.get(IDENTITY)
        return [] if found else ["TWINE_PASSWORD, or a workflow's identity"]

    def publish(self, missing: list[Path]) -> None:
        clients = python_clients()
        # Wheels first: while a wheel is missing, pip would build from the source distribution.
        for files in split(missing, lambda path: path.suffix == ".whl"):
            attested = []
            # PyPI accepts no attestations with a token.
            if not os.environ.get("TWINE_PASSWORD"):
                attested = [path.with_name(f"{path.name}.publish.attestation") for path in files]
                for path in attested:
                    path.unlink(missing_ok=True)
                run(clients / "python", "-m", "pypi_attestations", "sign", *files, secrets=[IDENTITY])
            run(
                *(clients / "twine", "upload", "--non-interactive", "--disable-progress-bar"),
                *("--repository-url", self.registries.pypi_upload, *(["--attestations"] if attested else [])),
                *files,
                *attested,
                secrets=["TWINE_PASSWORD", IDENTITY],
                TWINE_USERNAME="__token__",
            )


def python_clients() -> Path:
    """The folder with twine and pypi-attestations. They see the tokens, so nothing else is in their environment."""
    venv = ROOT / "target" / "release-tools" / "publish"
    stamp = venv / "made-for"
    made_for = f"{sys.version}\n{REQUIREMENTS.read_text(encoding='utf-8')}"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != made_for:
        run(sys.executable, "-m", "venv", "--clear", venv)
        pip = (venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--require-hashes", "--only-binary=:all:", "-r", REQUIREMENTS)
        stamp.write_text(made_for, encoding="utf-8")
    return venv / "bin"


# ---- npm ------------------------------------------------------------------------------------------------------------


class Npm:
    """The npm packages that need no other package of this release; with `needing`, those that do."""

    def __init__(self, packages: Packages, registries: Registries, *, needing: bool) -> None:
        names = {tarball.name for tarball in packages.npm}
        self.needed = [tarball for tarball in packages.npm if not names & needs(tarball)]
        self.tarballs = [tarball for tarball in packages.npm if names & needs(tarball)] if needing else self.needed
        self.needing = needing
        self.title = "npm" if needing else "npm, platform packages"
        self.registries = registries
        self.tag = "next" if "-" in packages.version else "latest"

    def missing(self) -> list[Tarball]:
        return [tarball for tarball in self.tarballs if not self._listed(tarball)]

    def _listed(self, tarball: Tarball) -> str:
        """The URL of its file; empty if the registry does not have this version."""
        name = urllib.parse.quote(tarball.name, safe="@")
        page = get(f"{self.registries.npm}/{name}", "application/vnd.npm.install-v1+json")
        found = json.loads(page or b'{"versions": {}}')["versions"].get(tarball.manifest["version"])
        if found and found["dist"]["integrity"] != tarball.integrity:
            raise Refused(f"npm has another {tarball}")
        return found["dist"]["tarball"] if found else ""

    def wants(self) -> list[str]:
        wanted = without("npm")
        if os.environ.get("NPM_TOKEN"):
            return wanted
        if not os.environ.get(IDENTITY):
            return [*wanted, "NPM_TOKEN, or a workflow's identity"]
        said = (
            "" if wanted else subprocess.run(["npm", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
        )
        if said and tuple(map(int, said.strip().split("-")[0].split("."))) < NPM:
            wanted.append(f"npm {'.'.join(map(str, NPM))} or newer, not {said.strip()}")
        return wanted

    def publish(self, missing: list[Tarball]) -> None:
        if self.needing:
            self._until_installable()
        options = ["--access", "public", "--tag", self.tag, *(["--provenance"] if os.environ.get(IDENTITY) else [])]
        environment = {"npm_config_registry": self.registries.npm + "/"}
        if token := os.environ.get("NPM_TOKEN"):
            # In the environment, not in a file or on the command line. npm prefers a workflow's identity to this token.
            environment[f"npm_config_{self.registries.npm.split(':', 1)[1]}/:_authToken"] = token
        for tarball in missing:
            run("npm", "publish", tarball.path, *options, secrets=[IDENTITY], **environment)

    def _until_installable(self) -> None:
        """Wait until npm serves the needed packages. It lists a package before all of its servers have the file."""
        waiting = list(self.needed)
        for _ in attempts(self.registries):
            waiting = [tarball for tarball in waiting if not self._installable(tarball)]
            if not waiting:
                return
        names = ", ".join(str(tarball) for tarball in waiting)
        these = ", ".join(str(tarball) for tarball in self.tarballs)
        raise Refused(f"{these}: not published, since npm does not give out {names} yet")

    def _installable(self, tarball: Tarball) -> bool:
        try:
            url = self._listed(tarball)
            return bool(url) and get(url) == tarball.path.read_bytes()
        except Unanswered:
            return False


def needs(tarball: Tarball) -> set[str]:
    """The packages that this one is installed with."""
    return {*tarball.manifest.get("dependencies", {}), *tarball.manifest.get("optionalDependencies", {})}


# ---- all of it ------------------------------------------------------------------------------------------------------


def publish(packages: Packages, registries: Registries, *, dry: bool, root: Path = ROOT) -> None:
    """Publish the packages that the registries lack; with `dry`, only list them. They were packed from `root`."""
    stages: list[Stage] = [
        Crates(packages, registries, root),
        PyPI(packages, registries),
        Npm(packages, registries, needing=False),
        Npm(packages, registries, needing=True),
        Central(packages.folder / "maven", packages.maven, registries),
    ]
    missing = {stage.title: stage.missing() for stage in stages}
    for title, items in missing.items():
        if not items:
            say(f"{title}: has all of {packages.version}")
        for item in items:
            say(f"{title}: {'would publish' if dry else 'has no'} {getattr(item, 'name', item)}")
    if dry:
        return
    if wanted := [f"{stage.title}: {want}" for stage in stages if missing[stage.title] for want in stage.wants()]:
        raise Refused("\n".join(["nothing was published, since this is missing:", *wanted]))
    for stage in stages:
        if items := missing[stage.title]:
            say(f"== {stage.title}")
            stage.publish(items)


def split(items: list[Any], first: Callable[[Any], bool]) -> list[list[Any]]:
    """The items in two parts, those for which `first` holds first. Leaves out an empty part."""
    parts = [[item for item in items if first(item)], [item for item in items if not first(item)]]
    return [part for part in parts if part]


@in_one_line("release.publish")
def main(arguments: list[str] | None = None) -> None:
    """The command line, as in the module's documentation."""
    parser = argparse.ArgumentParser(prog="python3 -m release.publish", description="Publish what release.pack made.")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder that release.pack was given")
    parser.add_argument("--dry-run", action="store_true", help="only ask the registries, and say what they lack")
    given = parser.parse_args(arguments)
    packages = Packages(given.out.resolve() / "packages", load(), versions.current(ROOT))
    publish(packages, Registries(), dry=given.dry_run)


if __name__ == "__main__":
    main()
