"""Checks and writes the version, which all packages share, in every file that repeats it.

    python3 -m release.version                  lists the places with another version, and fails if there are any
    python3 -m release.version X.Y.Z[-rc.N]     writes it everywhere, and dates the unreleased section of CHANGELOG.md
    python3 -m release.version --check vX.Y.Z   also fails unless that tag fits and CHANGELOG.md has a section for it

The source is `[workspace.package] version` in Cargo.toml. All packages have the same version, because the protocol of a
lock spans languages. Only Python spells a release candidate differently (1.0.0rc1); maturin converts it.

A listed place that is not found is an error, and so is a file that names the version but is not listed here.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from release.refused import Refused
from release.targets import ROOT

CHANGELOG = "CHANGELOG.md"
FORM = re.compile(r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}(?:-rc\.[1-9]\d*)?")


@dataclass(frozen=True)
class Place:
    """A place in a file that repeats the version. The one group of the pattern is the version."""

    file: str
    pattern: str

    def find(self, text: str) -> list[re.Match[str]]:
        """Every occurrence of the place in the file's text. None means that the place has moved."""
        return list(re.finditer(self.pattern, text, re.MULTILINE))


TRUTH = Place("Cargo.toml", r'^\[workspace\.package\]\n(?:[^\[\n].*\n)*?version = "([^"]+)"')
PLACES = [
    TRUTH,
    Place("Cargo.toml", r'^redlock-core = \{ path = "core", version = "([^"]+)"'),
    # The same text that cargo would write. Packages from a registry also have a line with their source.
    Place("Cargo.lock", r'^name = "redlock-[a-z-]+"\nversion = "([^"]+)"\n(?!source)'),
    Place("node/package.json", r'^  "version": "([^"]+)"'),
    Place("cli/package.json", r'^  "version": "([^"]+)"'),
    # pip reads a candidate in Cargo's spelling, too.
    Place("python/pyproject.toml", r'^cli = \["redlock-cli==([^"]+)"\]'),
    Place("kotlin/pom.xml", r"<artifactId>redlock-core</artifactId>\s*<version>([^<]+)"),
    Place("kotlin/README.md", r"<artifactId>redlock-core</artifactId>\s*<version>([^<]+)"),
    Place("README.md", r"dev\.redlock:redlock-core:([^`\")\s]+)"),
    Place("bench/jvm/pom.xml", r"<artifactId>redlock-bench</artifactId>\s*<version>([^<]+)"),
    Place("bench/jvm/pom.xml", r"<artifactId>redlock-core</artifactId>\s*<version>([^<]+)"),
    Place("tests/interop/jvm/pom.xml", r"<artifactId>redlock-interop</artifactId>\s*<version>([^<]+)"),
]
# Lines that may contain the same number by chance: a pattern of files and a pattern of lines.
OTHERS = [
    (r"CHANGELOG\.md", r""),  # lists versions
    (r"docs/results\.md", r""),  # names the versions that were measured
    (r"(.*/)?go\.(mod|sum)", r""),  # other modules
    (r"Cargo\.lock", r""),  # other crates; ours are a place
    (r"scripts/redis-versions", r"=="),  # other packages, pinned
    (r"release/requirements.*\.txt", r"=="),  # the same
    (r"release/tests/.*", r""),  # invented packages
]


def current(root: Path) -> str:
    """The version in Cargo.toml."""
    return TRUTH.find(_read(root, TRUTH.file))[0][1]


def python(version: str) -> str:
    """A version in Python's spelling."""
    return version.replace("-rc.", "rc")


def problems(root: Path) -> list[str]:
    """A line for each place that differs from Cargo.toml, has moved, or is not listed here."""
    version = current(root)
    return [*_differing(root, version), *_unlisted(root, version)]


def write(root: Path, version: str, day: str) -> int:
    """Write a version everywhere; return the number of changed places. `day` is the date for its changelog section."""
    if not FORM.fullmatch(version):
        raise Refused(f"{version}: a version is X.Y.Z or X.Y.Z-rc.N")
    if moved := [f"{place.file}: nothing matches {place.pattern}" for place in PLACES if not _matches(root, place)]:
        raise Refused("\n".join(moved))
    dated = _dated(_read(root, CHANGELOG), version, day)
    changed = 0
    for place in PLACES:
        text = _read(root, place.file)
        for match in reversed(place.find(text)):
            changed += match[1] != version
            text = text[: match.start(1)] + version + text[match.end(1) :]
        (root / place.file).write_text(text, encoding="utf-8", newline="\n")
    (root / CHANGELOG).write_text(dated, encoding="utf-8", newline="\n")
    return changed


def untold(root: Path, tag: str) -> list[str]:
    """The reasons why a tag is not a release: another version, or no section in the changelog."""
    version = current(root)
    found = [] if tag == f"v{version}" else [f"the tag is {tag}, Cargo.toml says {version}: it should be v{version}"]
    if not section(_read(root, CHANGELOG), version):
        found.append(f"{CHANGELOG}: no section `## {version} - YYYY-MM-DD` that says what is new")
    return found


def section(changelog: str, version: str) -> str:
    """The changelog's section of a dated version; empty if there is none."""
    heading = rf"## {re.escape(version)} - \d{{4}}-\d\d-\d\d"
    found = re.search(rf"^{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _dated(changelog: str, version: str, day: str) -> str:
    """The changelog with its unreleased part under a dated heading; unchanged if that heading exists."""
    if section(changelog, version):
        return changelog
    found = re.search(r"^## Unreleased\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise Refused(f"{CHANGELOG}: nothing under `## Unreleased` that {version} could bring")
    heading = f"## Unreleased\n\n## {version} - {day}\n"
    return changelog[: found.start()] + heading + changelog[found.start(1) :]


def _differing(root: Path, version: str) -> Iterator[str]:
    for place in PLACES:
        text = _read(root, place.file)
        if not (matches := place.find(text)):
            yield f"{place.file}: nothing matches {place.pattern}: release/version.py must learn where it went"
        for match in matches:
            if match[1] != version:
                line = text.count("\n", 0, match.start(1)) + 1
                yield f"{place.file}:{line}: says {match[1]}, should say {version}"


def _unlisted(root: Path, version: str) -> Iterator[str]:
    """A message for each line that names the version but is neither in PLACES nor in OTHERS."""
    named = re.compile(rf"(?<![\d.]){re.escape(version)}(?![\d]|\.\d)")
    for file in _files(root):
        try:
            text = _read(root, file)
        except (UnicodeDecodeError, OSError):
            continue  # not a text file, or deleted but not committed
        listed = {match.start(1) for place in PLACES if place.file == file for match in place.find(text)}
        others = [re.compile(line) for files, line in OTHERS if re.fullmatch(files, file)]
        for match in named.finditer(text):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
            if match.start() not in listed and not any(other.search(line) for other in others):
                number = text.count("\n", 0, match.start()) + 1
                yield f"{file}:{number}: names {version}, and release/version.py does not know: {line.strip()}"


def _files(root: Path) -> list[str]:
    """All files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(set(filter(None, listed.split("\0"))))


def _matches(root: Path, place: Place) -> list[re.Match[str]]:
    return place.find(_read(root, place.file))


def _read(root: Path, file: str) -> str:
    return (root / file).read_text(encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """The command line, as in the module's documentation."""
    parser = argparse.ArgumentParser(prog="python3 -m release.version", description="The version of everything.")
    parser.add_argument("version", nargs="?", metavar="X.Y.Z", help="write this one everywhere")
    parser.add_argument("--check", metavar="vX.Y.Z", help="also fail unless this tag fits")
    options = parser.parse_args(arguments)
    try:
        if options.version:
            before = current(ROOT)
            changed = write(ROOT, options.version, datetime.now(timezone.utc).strftime("%Y-%m-%d"))
            print(f"{before} -> {options.version} in {changed} lines; look at the difference, and commit it")
        found = problems(ROOT) + (untold(ROOT, options.check) if options.check else [])
    except Refused as refused:
        found = [str(refused)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
