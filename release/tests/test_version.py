"""bump-my-version finds every place that names the version."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from release import targets, toolchain
from release.suites import copied

NEXT = "98.76.5-rc.4"
# Files that may contain the same number by chance: lists of versions, pinned packages, invented packages.
OTHERS = re.compile(
    r"CHANGELOG\.md|.*package-lock\.json|docs/results\.md|.*go\.(mod|sum)|Cargo\.lock|scripts/.*|.*requirements.*|release/tests/.*"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's files."""
    return copied(tmp_path / "copy")


def bumped(copy: Path) -> bool:
    command = [toolchain.tools() / "bump-my-version", "bump", "--allow-dirty", "--new-version", NEXT]
    return subprocess.run(command, cwd=copy, check=False, capture_output=True).returncode == 0


def test_no_file_names_the_old_version_afterwards(copy: Path) -> None:
    old = re.compile(rf"(?<![\d.]){re.escape(targets.version())}(?!\d|\.\d)")
    assert bumped(copy)
    left = []
    for path in (path for path in copy.rglob("*") if path.is_file()):
        name = path.relative_to(copy).as_posix()
        if not OTHERS.fullmatch(name) and old.search(path.read_text(encoding="utf-8", errors="ignore")):
            left.append(name)
    assert left == []


def test_cargo_agrees_with_the_lock_file_that_was_written(copy: Path) -> None:
    assert bumped(copy)
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    assert subprocess.run(command, cwd=copy, check=False, stdout=subprocess.DEVNULL).returncode == 0
