"""`release.runtimes` chooses the right interpreters, and gives reasons for the missing ones."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from release import debian, downloads, runtimes
from release.downloads import Pin
from release.refused import Refused


def program(path: Path, body: str) -> Path:
    """Writes a shell script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(path: Path, version: str, kind: str = "CPython", *, free: bool = False, usable: bool = True) -> Path:
    """Writes a program that prints the same as a Python interpreter."""
    return program(path, f"echo '{json.dumps([str(path), version, kind, free, usable])}'")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine without interpreters and registries."""

    def refuse(key: str, *_: object) -> Path:
        raise Refused(f"no {key} today")

    caches = [value for value in vars(runtimes).values() if hasattr(value, "cache_clear")]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(runtimes, "missing", [])
    monkeypatch.setattr(runtimes, "SYSTEM_JAVA", tmp_path / "jvm")
    monkeypatch.setattr(downloads, "fetch", refuse)
    monkeypatch.setattr(downloads, "FOLDER", tmp_path / "runtimes")
    monkeypatch.setattr(debian, "unpack", refuse)
    monkeypatch.setattr(downloads, "is_linux_x86_64", lambda: True)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


class TestPython:
    def test_one_of_each_version_from_the_path_and_from_pyenv(self, tmp_path: Path) -> None:
        first = python(tmp_path / "bin" / "python3", "3.12.4")
        python(tmp_path / "bin" / "python3.12", "3.12.1")
        other = python(tmp_path / ".pyenv" / "versions" / "3.10.9" / "bin" / "python3.10", "3.10.9")
        python(tmp_path / "bin" / "python3-config", "3.11.0")
        assert [(found.path, found.version) for found in runtimes.pythons()] == [(other, "3.10.9"), (first, "3.12.4")]

    def test_a_missing_version_is_listed_with_its_reason(self) -> None:
        assert runtimes.pythons() == []
        nowhere = "none on this machine, and it is not fetched from anywhere"
        assert runtimes.missing == [
            *(f"Python 3.{minor}: {nowhere}" for minor in (10, 11, 12, 13)),
            "Python 3.14: no python-3.14 today",
            "Python 3.15: no sid today",
        ]

    def test_nothing_is_fetched_for_another_kind_of_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(downloads, "is_linux_x86_64", lambda: False)
        assert runtimes.pythons() == []
        assert runtimes.nodes() == []
        assert [line for line in runtimes.missing if "today" in line] == []

    def test_other_implementations_and_those_without_venv_do_not_count(self, tmp_path: Path) -> None:
        python(tmp_path / "bin" / "python3.10", "3.10.1", "PyPy")
        python(tmp_path / "bin" / "python3.11", "3.11.2", usable=False)
        program(tmp_path / "bin" / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
        assert runtimes.pythons() == []

    def test_free_threaded_pythons_are_listed_separately(self, tmp_path: Path) -> None:
        python(tmp_path / "bin" / "python3.13t", "3.13.2", free=True)
        free = python(tmp_path / "bin" / "python3.14t", "3.14.0", free=True)
        assert [found.path for found in runtimes.free_threaded()] == [free]
        assert runtimes.missing == []
        assert runtimes.pythons() == []

    def test_a_missing_free_threaded_python_is_listed(self) -> None:
        assert runtimes.free_threaded() == []
        assert len(runtimes.missing) == 1
        assert "3.14t" in runtimes.missing[0]

    def test_the_newest_of_those_that_are_too_old(self, tmp_path: Path) -> None:
        assert runtimes.old_python() is None
        for version in ("3.8", "3.9", "3.10"):
            python(tmp_path / ".pyenv" / "versions" / version / "bin" / f"python{version}", f"{version}.7")
        runtimes._local_pythons.cache_clear()
        runtimes.old_python.cache_clear()
        old = runtimes.old_python()
        assert old
        assert old.minor == (3, 9)


class TestNode:
    def test_the_local_node_is_used_for_its_version(self, tmp_path: Path) -> None:
        found = program(tmp_path / "bin" / "node", "echo v22.1.0")
        assert runtimes.nodes() == [runtimes.Node(found, "22.1.0")]
        assert [line.partition(":")[0] for line in runtimes.missing] == ["Node 20", "Node 24", "Node 26"]

    def test_a_fetched_one_that_does_not_run_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program(tmp_path / "node-24" / "bin" / "node", "echo 'no libatomic' >&2; exit 127")
        monkeypatch.setattr(downloads, "fetch", lambda key: tmp_path / key)
        assert runtimes.nodes() == []
        assert f"Node 24: {tmp_path}/node-24/bin/node does not run here" in runtimes.missing

    @pytest.mark.parametrize(
        ("version", "fits"),
        [
            ("20.16.9", False),
            ("20.17.0", True),
            ("21.9.0", False),
            ("22.8.0", False),
            ("22.9.0", True),
            ("30.0.0", True),
        ],
    )
    def test_an_npm_says_which_node_it_needs(self, version: str, fits: bool) -> None:
        npm = runtimes.Npm(Path("npm-cli.js"), "11.21.2", "^20.17.0 || >=22.9.0")
        assert npm.fits(runtimes.Node(Path("node"), version)) is fits

    def test_an_unknown_kind_of_range_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="~1"):
            runtimes.satisfies("1.2.3", "~1.2")

    def test_a_release_candidate_counts_as_its_release(self) -> None:
        assert runtimes.numbers("3.15.0rc1") == (3, 15, 0)
        assert runtimes.numbers("22.0.0-nightly20260101") == (22, 0, 0)


class TestJava:
    def test_each_version_once_the_preferred_home_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, version in {"a17": 17, "b17": 17, "c24": 24, "d11": 11}.items():
            program(tmp_path / "jvm" / name / "bin" / "java", f"echo '    java.specification.version = {version}' >&2")
        (tmp_path / "jvm" / "b17" / "bin" / "javac").touch()
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jvm" / "b17"))
        found = runtimes.jdks()
        assert [(jdk.home.name, jdk.version, jdk.compiles) for jdk in found] == [("b17", 17, True), ("c24", 24, False)]
        assert [line.partition(":")[0] for line in runtimes.missing] == ["Java 21", "Java 25"]


class TestDownloads:
    def pin(self, content: bytes, inside: str = "") -> Pin:
        return Pin("npm", "thing", "1.0.0", hashlib.sha256(content).hexdigest(), inside=inside)

    def deliver(self, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
        monkeypatch.setattr(downloads, "_download", lambda pin, folder: (folder / name).write_bytes(content))

    def test_another_file_than_the_pinned_one_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deliver(monkeypatch, "thing.tgz", b"something else")
        with pytest.raises(Refused, match=hashlib.sha256(b"something else").hexdigest()):
            downloads.unpacked(self.pin(b"the thing"), tmp_path / "to" / "thing")
        assert list((tmp_path / "to").iterdir()) == []

    def test_programs_in_a_tarball_stay_programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, mode in {"package/bin/node": 0o755, "package/README": 0o644}.items():
                entry = tarfile.TarInfo(name)
                entry.mode = mode
                tar.addfile(entry)
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        self.deliver(monkeypatch, "thing.tgz", archive.getvalue())
        place = downloads.unpacked(self.pin(archive.getvalue(), "package"), tmp_path / "thing")
        assert (place / "bin" / "node").stat().st_mode & 0o111
        assert not (place / "README").stat().st_mode & 0o111
        assert sorted(path.name for path in tmp_path.iterdir()) == ["thing"]

    def test_programs_in_a_jar_become_programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as jar:
            for name in ("linux/bin/python3", "linux/lib/os.py"):
                entry = zipfile.ZipInfo(name)
                # Not 0, so that zipfile writes no mode of its own.
                entry.external_attr = 1
                jar.writestr(entry, "#")
        self.deliver(monkeypatch, "thing.jar", archive.getvalue())
        place = downloads.unpacked(self.pin(archive.getvalue(), "linux"), tmp_path / "thing")
        assert (place / "bin" / "python3").stat().st_mode & 0o111
        assert not (place / "lib" / "os.py").stat().st_mode & 0o111

    def test_an_existing_folder_is_not_fetched_again(self, tmp_path: Path) -> None:
        (tmp_path / "thing").mkdir()
        assert downloads.unpacked(self.pin(b""), tmp_path / "thing") == tmp_path / "thing"

    def test_without_the_registrys_client_it_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="there is no npm here"):
            downloads.unpacked(self.pin(b""), tmp_path / "to" / "thing")

    def test_the_message_of_the_client_is_the_reason(self, tmp_path: Path) -> None:
        program(tmp_path / "bin" / "npm", "echo 'npm error 404 no such version' >&2; exit 1")
        with pytest.raises(Refused, match="404 no such version"):
            downloads.unpacked(self.pin(b""), tmp_path / "to" / "thing")

    def test_pins_are_complete(self) -> None:
        for key, pin in downloads.PINS.items():
            assert len(pin.sha256) == 64, key
            assert pin.registry in ("pypi", "npm", "maven"), key
        wanted = [*(f"npm-{major}" for major in runtimes.NPMS), *(f"node-{major}" for major in (18, 22, 24, 26))]
        assert set(wanted) <= set(downloads.PINS)
