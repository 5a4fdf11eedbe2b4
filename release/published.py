"""Installs this version from the public registries into empty folders, and acquires a lock with each package.

    python3 -m release.published [--only KIND]... [--pip URL] [--npm URL] [--maven URL] [--patience SECONDS]

This is the last check of a release. A registry needs some minutes until all of its servers have the files, so the
module tries again until the patience is over. The URLs replace the public registries, for a rehearsal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from release.refused import Refused
from release.targets import ROOT, version

# Programs that use the packages; the trials before publishing run the same ones.
CONSUMERS = ROOT / "release" / "consumers"
# The seconds between two tries.
PAUSE = 30


@dataclass(frozen=True)
class Given:
    """The version to install, and the registries to install it from."""

    version: str
    pip: str | None = None
    npm: str | None = None
    maven: str = "https://repo1.maven.org/maven2"
    patience: float = 1800
    """For how many seconds to try again."""


def python(work: Path, given: Given) -> None:
    """Install a wheel with pip, which may not compile anything, and use it."""
    run(sys.executable, "-m", "venv", work / "venv", cwd=work)
    interpreter = work / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    index = ["--index-url", given.pip] if given.pip else []
    install = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", *index]
    wanted = f"redlock-core=={pythons(given.version)}"
    patiently(given, lambda: run(*install, "--only-binary", ":all:", wanted, cwd=work))
    run(interpreter, CONSUMERS / "python" / "use.py", cwd=work)


def npm(work: Path, given: Given) -> None:
    """Install the package with npm, which adds this machine's platform package, and use it."""
    (work / "package.json").write_text("{}")
    registry = ["--registry", given.npm] if given.npm else []
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--cache", work / "cache", *registry]
    patiently(given, lambda: run(*install, f"redlock-core@{given.version}", cwd=work))
    shutil.copy(CONSUMERS / "node" / "use.mjs", work)
    run("node", "use.mjs", cwd=work)


def maven(work: Path, given: Given) -> None:
    """Install the jar and its dependencies with Maven into an empty local repository, and use it."""
    project = work / "project"
    shutil.copytree(CONSUMERS / "jvm", project)
    build = ["mvn", "-q", "-B", "-ntp", "-U", "-f", project, f"-Dmaven.repo.local={work / 'repository'}"]
    build += [f"-Dredlock.version={given.version}", f"-Dredlock.repository={given.maven}"]
    patiently(given, lambda: run(*build, "package", cwd=work))
    classpath = (project / "target" / "classpath").read_text().strip()
    run("java", "-cp", f"{project / 'target' / 'classes'}{os.pathsep}{classpath}", "dev.redlock.consumer.Use", cwd=work)


def pip_program(work: Path, given: Given) -> None:
    """Install the command line with pip, as an extra of the package, and run it."""
    run(sys.executable, "-m", "venv", work / "venv", cwd=work)
    programs = work / "venv" / ("Scripts" if os.name == "nt" else "bin")
    index = ["--index-url", given.pip] if given.pip else []
    install = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    wanted = f"redlock-core[cli]=={pythons(given.version)}"
    patiently(given, lambda: run(*install, *index, "--only-binary", ":all:", wanted, cwd=work))
    run(programs / "redlock", "--version", cwd=work)


def npm_program(work: Path, given: Given) -> None:
    """Install the command line with npm, and run it."""
    (work / "package.json").write_text("{}")
    registry = ["--registry", given.npm] if given.npm else []
    install = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--cache", work / "cache", *registry]
    patiently(given, lambda: run(*install, f"redlock-cli@{given.version}", cwd=work))
    run(work / "node_modules" / ".bin" / "redlock", "--version", cwd=work)


def crate(work: Path, given: Given) -> None:
    """The crate, which the compiler must accept; it alone needs Rust."""
    run("cargo", "init", "--quiet", "--vcs", "none", "--name", "published", work, cwd=work)
    (work / "src" / "main.rs").write_text("use redlock as _;\n\nfn main() {}\n")
    patiently(given, lambda: run("cargo", "add", "--quiet", f"redlock-core@={given.version}", cwd=work))
    run("cargo", "check", "--quiet", "--target-dir", work / "target", cwd=work)


KINDS: dict[str, Callable[[Path, Given], None]] = {
    "python": python,
    "npm": npm,
    "maven": maven,
    "crate": crate,
    "pip-program": pip_program,
    "npm-program": npm_program,
}


def patiently(given: Given, install: Callable[[], None]) -> None:
    """Call `install` until it succeeds or the patience is over; then raise its last error."""
    end = time.monotonic() + given.patience
    while True:
        try:
            return install()
        except Refused:
            if time.monotonic() >= end:
                raise
        time.sleep(PAUSE)


def pythons(number: str) -> str:
    """A version in Python's spelling."""
    return number.replace("-rc.", "rc")


def run(*command: str | Path, cwd: Path) -> None:
    """Run a user's client. Raises Refused if it is missing or fails."""
    program = shutil.which(command[0])
    if program is None:
        raise Refused(f"{command[0]} is not on the PATH")
    if subprocess.run([program, *map(str, command[1:])], cwd=cwd, check=False).returncode:
        raise Refused(f"{Path(command[0]).name} failed; its messages are above")


def main(arguments: list[str] | None = None) -> int:
    """The command line, as in the module's documentation."""
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python3 -m release.published", description=description)
    parser.add_argument("--only", action="append", choices=list(KINDS), help="default: all")
    parser.add_argument("--pip", metavar="URL")
    parser.add_argument("--npm", metavar="URL")
    parser.add_argument("--maven", metavar="URL", default=Given.maven)
    parser.add_argument("--patience", metavar="SECONDS", type=float, default=Given.patience)
    asked = parser.parse_args(arguments)
    given = Given(version(), asked.pip, asked.npm, asked.maven, asked.patience)
    failed = 0
    for kind in asked.only or KINDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            try:
                KINDS[kind](Path(work).resolve(), given)
                print(f"{kind}: {given.version} is published, and works here", flush=True)
            except Refused as refused:
                print(f"{kind}: {given.version}: {refused}", flush=True)
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
