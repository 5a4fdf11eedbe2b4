"""Trials find the right interpreters, give reasons for the missing ones, and wait for slow registries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import runtimes, trial
from release.commands import Refused
from release.targets import load

NOWHERE = "none on this machine"


def program(path: Path, body: str) -> Path:
    """Writes a shell script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(path: Path, version: str, *, usable: bool = True) -> Path:
    """Writes a program that prints the same as a Python interpreter."""
    return program(path, f"echo '{json.dumps([str(path), version, usable])}'")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without interpreters and registries."""

    caches = [value for value in vars(runtimes).values() if hasattr(value, "cache_clear")]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(runtimes, "missing", [])
    monkeypatch.setattr(runtimes, "SYSTEM_JAVA", tmp_path / "jvm")
    monkeypatch.setattr(runtimes, "fetched", lambda: tmp_path / "fetched")
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("machine")
class TestRuntimes:
    def test_one_python_of_each_version_from_the_path_and_from_pyenv(self, tmp_path: Path) -> None:
        first = python(tmp_path / "bin" / "python3", "3.12.4")
        python(tmp_path / "bin" / "python3.12", "3.12.1")
        other = python(tmp_path / ".pyenv" / "versions" / "3.10.9" / "bin" / "python3.10", "3.10.9")
        free = python(tmp_path / "bin" / "python3.14t", "3.14.0t")
        python(tmp_path / "bin" / "python3-config", "3.11.0")
        python(tmp_path / "bin" / "python3.11", "3.11.2", usable=False)
        program(tmp_path / "bin" / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
        assert [python.path for python in runtimes.pythons()] == [other, first, free]
        assert runtimes.missing == [f"Python {version}: {NOWHERE}" for version in ("3.11", "3.13", "3.14", "3.15")]

    def test_the_local_node_is_used_for_its_version(self, tmp_path: Path) -> None:
        found = program(tmp_path / "bin" / "node", "echo v22.1.0")
        program(tmp_path / "fetched" / "node-24" / "bin" / "node", "echo 'no libatomic' >&2; exit 127")
        npm = tmp_path / "fetched" / "npm-12"
        npm.mkdir()
        (npm / "package.json").write_text('{"version": "12.0.0"}')
        (node,) = runtimes.nodes()
        assert (node.path, node.version, node.npm_version) == (found, "22.1.0", "12.0.0")
        assert node.npm == [str(found), str(npm / "bin" / "npm-cli.js")]
        assert runtimes.missing == [f"Node 20: {NOWHERE}", "Node 24: no libatomic", f"Node 26: {NOWHERE}"]

    def test_each_java_once_the_preferred_home_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, version in {"a17": 17, "b17": 17, "d11": 11}.items():
            program(tmp_path / "jvm" / name / "bin" / "java", f"echo '    java.specification.version = {version}' >&2")
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm" / "b17"))
        assert [jdk.path.parent.parent.name for jdk in runtimes.jdks()] == ["b17"]
        assert runtimes.missing == [f"Java 21: {NOWHERE}", f"Java 25: {NOWHERE}"]


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
