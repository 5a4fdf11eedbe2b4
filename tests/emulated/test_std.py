"""cargo builds the standard library only for targets that rustc does not have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from release import toolchain
from release.commands import Refused
from tests.emulated import debian, std


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of tools."""
    monkeypatch.setattr(toolchain, "FOLDER", tmp_path)
    return tmp_path


def test_rustc_gets_a_sysroot_with_the_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(std, "_source", lambda release, place: folder)
    added = std.environment()
    assert added["RUSTC_BOOTSTRAP"] == "1"
    # cargo looks for the source here.
    command = [added["RUSTC"], "--print", "sysroot"]
    sysroot = Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    assert (sysroot / "lib" / "rustlib" / "src").resolve() == folder
    assert any(sysroot.glob("lib/rustlib/*/lib/libstd-*"))


def test_a_rustc_without_a_source_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "versions", lambda *asked: ["9.9.9+dfsg1-1"])
    with pytest.raises(Refused, match=r"\(this one is 1\..*, the suite has 9\.9\.9\+dfsg1-1\)$"):
        std.environment()
