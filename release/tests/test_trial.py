"""Trials find the right interpreters, give reasons for the missing ones, and wait for slow registries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from release import runtimes, trial
from release.commands import Refused
from release.targets import load


def program(path: Path, body: str) -> Path:
    """Writes a shell script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(path: Path, version: str, *, usable: bool = True) -> Path:
    """Writes a program that prints the same as a Python interpreter."""
    return program(path, f"echo '{json.dumps([str(path), version, usable])}'")


def test_one_python_of_each_version_from_the_path_and_from_pyenv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(runtimes, "missing", [])
    first = python(tmp_path / "bin" / "python3", "3.12.4")
    python(tmp_path / "bin" / "python3.12", "3.12.1")
    other = python(tmp_path / ".pyenv" / "versions" / "3.10.9" / "bin" / "python3.10", "3.10.9")
    free = python(tmp_path / "bin" / "python3.14t", "3.14.0t")
    python(tmp_path / "bin" / "python3-config", "3.11.0")
    python(tmp_path / "bin" / "python3.11", "3.11.2", usable=False)
    program(tmp_path / "bin" / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    assert [python.path for python in runtimes.pythons.__wrapped__()] == [other, first, free]
    missing = [f"Python {version}: none on this machine" for version in ("3.11", "3.13", "3.14", "3.15")]
    assert runtimes.missing == missing


def test_an_installation_is_tried_again_until_the_patience_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = iter(range(0, 1000, 40))
    monkeypatch.setattr(trial.time, "sleep", pauses.append)
    monkeypatch.setattr(trial.time, "monotonic", lambda: next(clock))
    published = trial.Trial(load(), tmp_path, [], patience=130)
    answers = [Refused("not yet"), Refused("not yet"), None]

    def install() -> None:
        if answer := answers.pop(0):
            raise answer

    assert published.installed(install) == 40
    assert pauses == [30, 30]
    answers = [Refused("not yet")] * 10
    with pytest.raises(Refused, match="not yet"):
        published.installed(install)
    assert len(answers) == 10 - 4
