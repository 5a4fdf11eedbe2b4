"""cargo's environment for each target."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from release import toolchain
from release.commands import Refused
from release.targets import Target, load

OTHER = "aarch64-unknown-linux-musl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of tools, and a rustc with every target; nothing is fetched from PyPI."""
    monkeypatch.setattr(toolchain, "FOLDER", tmp_path)
    monkeypatch.setattr(toolchain, "is_installed", lambda target: True)
    monkeypatch.setattr(toolchain, "tools", lambda: tmp_path / "venv" / "bin")
    return tmp_path


@pytest.mark.parametrize("target", [target for target in load().targets if "-msvc" not in target.rust])
def test_zig_gets_the_target(folder: Path, target: Target) -> None:
    rust, zig = target.rust, target.zig
    environment = toolchain.environment(zig)
    linker = Path(environment[f"CARGO_TARGET_{rust.upper().replace('-', '_')}_LINKER"])
    wanted = {
        "x86_64-unknown-linux-gnu": "x86_64-linux-gnu.2.17",
        "aarch64-unknown-linux-gnu": "aarch64-linux-gnu.2.17",
        "x86_64-unknown-linux-musl": "x86_64-linux-musl",
        "aarch64-unknown-linux-musl": "aarch64-linux-musl",
        "x86_64-apple-darwin": "x86_64-macos-none",
        "aarch64-apple-darwin": "aarch64-macos-none",
        "x86_64-pc-windows-gnu": "x86_64-windows-gnu",
    }[rust]
    assert f" -target {wanted} " in linker.read_text()
    for name in ("CC", "CXX", "AR", "RANLIB"):
        assert os.access(environment[f"{name}_{rust.replace('-', '_')}"], os.X_OK)


@pytest.mark.parametrize("target", [OTHER, "x86_64-pc-windows-gnu"])
def test_compilers_of_another_target_hide_none_of_this_machine(folder: Path, target: str) -> None:
    path = toolchain.environment(target)["PATH"]
    for name in ("cc", "c++", "ar", "ranlib"):
        assert shutil.which(name, path=path) == shutil.which(name)
    # It makes import libraries for Windows.
    assert bool(shutil.which("x86_64-w64-mingw32-dlltool", path=path)) == target.endswith("windows-gnu")


def test_a_target_without_standard_library_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "is_installed", lambda target: False)
    with pytest.raises(Refused, match=f"rustup target add {OTHER}"):
        toolchain.environment(OTHER)


def test_a_target_that_no_linker_here_supports_is_refused(folder: Path) -> None:
    with pytest.raises(Refused, match="x86_64-pc-windows-msvc"):
        toolchain.environment("x86_64-pc-windows-msvc")


def test_only_programs_for_musl_are_static() -> None:
    assert toolchain.rustflags(OTHER) == ["-C", "target-feature=-crt-static"]
    assert "target-feature=+crt-static" in toolchain.rustflags(OTHER, program=True)
    assert toolchain.rustflags("x86_64-unknown-linux-gnu") == []
