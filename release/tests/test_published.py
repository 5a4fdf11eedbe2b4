"""The last look at a release, at packages of the right name that do as much as it asks for."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import clients, published, registry, version
from release.targets import ROOT

MODULE = """
class Redlock:
    def __init__(self, url):
        assert url == "memory://"
    def lock(self, name):
        return self
    def __enter__(self):
        self.held, self.token = True, TOKEN
        return self
    def __exit__(self, *_):
        pass
"""
SCRIPT = """
exports.configure = (url) => {};
exports.using = (name, body) => body(null, { held: true, token: TOKEN });
"""


def wheel(folder: Path, token: int = 1) -> None:
    number = version.python(version.current(ROOT))
    with zipfile.ZipFile(folder / f"redlock_core-{number}-py3-none-any.whl", "w") as packed:
        info = f"redlock_core-{number}.dist-info"
        packed.writestr("redlock.py", MODULE.replace("TOKEN", str(token)))
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: redlock-core\nVersion: {number}\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")


def package(folder: Path, token: int = 1) -> None:
    manifest = {"name": "redlock-core", "version": version.current(ROOT), "main": "index.js"}
    files = {"package.json": json.dumps(manifest), "index.js": SCRIPT.replace("TOKEN", f"{token}n")}
    with tarfile.open(folder / "redlock-core.tgz", "w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder, and how to look at what is published there."""
    wheel(tmp_path)
    package(tmp_path)
    with registry.serving(tmp_path) as urls:
        yield tmp_path, ["--pip", urls.pip, "--npm", urls.npm, "--patience", "0", "--only", "python", "--only", "npm"]


def test_what_is_published_is_installed_and_used(
    shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert published.main(shop[1]) == 0
    said = [line for line in capfd.readouterr().out.splitlines() if "published" in line]
    assert said == [f"{kind}: {version.current(ROOT)} is published, and works here" for kind in ("python", "npm")]


def test_what_installs_and_does_not_work_is_told_of(
    shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = shop
    wheel(folder, token=0)
    assert published.main([*arguments[:-2]]) == 1  # Python only
    assert f"python: {version.current(ROOT)}: python" in capfd.readouterr().out


def test_a_registry_that_has_it_a_little_later_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def publish(pause: float) -> None:
        pauses.append(pause)
        wheel(tmp_path)

    monkeypatch.setattr(clients.time, "sleep", publish)
    given = published.Given(version.current(ROOT), pip="", patience=60)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    published.python(work, given)
    assert pauses == [30]


def test_what_never_comes_is_told_of(shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]) -> None:
    arguments = shop[1]
    assert published.main([*arguments[:-4], "--only", "python", "--pip", arguments[1] + "nowhere/"]) == 1
    assert f"python: {version.current(ROOT)}: python" in capfd.readouterr().out
