"""scripts/imports reports imports of the core and of the bindings that do not point down, in a copy of the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["core/src", "bindings/python/src", "bindings/node/src", "bindings/kotlin/src"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The script, the drawings and the sources."""
    for sources in SOURCES:
        shutil.copytree(ROOT / sources, tmp_path / sources)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/imports", tmp_path / "scripts")
    shutil.copy(ROOT / "CONTRIBUTING.md", tmp_path)
    return tmp_path


def check(copy: Path) -> list[str]:
    """Runs the script. Returns the lines that it prints, none if every import points down."""
    command = [sys.executable, copy / "scripts/imports"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert bool(done.returncode) == bool(done.stdout)
    return done.stdout.splitlines()


def plant(file: Path, line: str) -> None:
    """Adds a line below the comment that opens a file."""
    comment, code = file.read_text().split("\n\n", 1)
    file.write_text(f"{comment}\n\n{line}\n{code}")


def test_every_import_points_down(copy: Path) -> None:
    assert check(copy) == []


@pytest.mark.parametrize(
    ("sources", "low", "high"),
    [
        ("core/src", "error", "client"),
        ("bindings/python/src", "cached", "starters"),
        ("bindings/node/src", "ends", "event_loop"),
        ("bindings/kotlin/src", "values", "lease"),
    ],
)
def test_an_import_of_a_higher_floor_is_reported_with_its_circle(copy: Path, sources: str, low: str, high: str) -> None:
    plant(copy / sources / f"{low}.rs", f"use crate::{{{high}::Any, {low}::Other}};")
    heading, wrong, circle = check(copy)
    assert heading == "imports do not point down:"
    assert wrong == f"{sources}: {low} imports {high}, which is not on a lower floor"
    assert circle.startswith(f"{sources}: a circle: ")


def test_an_import_of_the_same_floor_is_reported(copy: Path) -> None:
    plant(copy / "bindings/node/src/poll.rs", "use crate::watch::Watch;")
    assert "bindings/node/src: poll imports watch, which is not on a lower floor" in check(copy)


def test_a_circle_inside_a_room_is_reported(copy: Path) -> None:
    plant(copy / "core/src/wait/mod.rs", "mod one;\nmod two;")
    (copy / "core/src/wait/one.rs").write_text("//! One.\n\nuse super::two;\n")
    (copy / "core/src/wait/two.rs").write_text("//! Two.\n\nuse crate::wait::one;\n")
    assert check(copy)[1:] == ["core/src: a circle: wait::one → wait::two → wait::one"]


def test_files_and_drawings_that_do_not_match_are_reported(copy: Path) -> None:
    (copy / "bindings/python/src/cached.rs").rename(copy / "bindings/python/src/new.rs")
    assert check(copy)[1:] == [
        "bindings/python/src: new: its room new is not in the drawing of CONTRIBUTING.md",
        "bindings/python/src: cached is in the drawing of CONTRIBUTING.md, but not in the sources",
    ]


def test_a_binding_without_a_drawing_is_reported(copy: Path) -> None:
    text = (copy / "CONTRIBUTING.md").read_text()
    (copy / "CONTRIBUTING.md").write_text(text.replace("`bindings/kotlin/src`:", ""))
    assert check(copy) == ["CONTRIBUTING.md: no drawing below the line '`bindings/kotlin/src`:'"]
