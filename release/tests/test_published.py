"""The last check of a release, `release.published`, with minimal packages of the right names."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from release import published, registry
from release.targets import version

USE_PY = "import redlock\nassert redlock.works\n"
USE_MJS = 'import redlock from "redlock-core";\nif (!redlock.works) process.exit(1);\n'


NUMBER = published.pythons(version())


def wheel(folder: Path, *, works: bool = True) -> None:
    extra = f"Provides-Extra: cli\nRequires-Dist: redlock-cli=={NUMBER}; extra == 'cli'\n"
    distribution(folder, "redlock-core", "redlock.py", f"works = {works}\n", extra)


def distribution(folder: Path, name: str, file: str, text: str, about: str = "") -> None:
    stem = f"{name.replace('-', '_')}-{NUMBER}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as packed:
        info = f"{stem}.dist-info"
        content = zipfile.ZipInfo(file.format(stem))
        content.external_attr = 0o100755 << 16
        packed.writestr(content, text)
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {NUMBER}\n{about}")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")


def programs(folder: Path, code: int = 0) -> None:
    distribution(folder, "redlock-cli", "{}.data/scripts/redlock", f"#!python\nraise SystemExit({code})\n")
    package(folder, "redlock-cli", f"#!/usr/bin/env node\nprocess.exit({code});\n", bin={"redlock": "index.js"})


def package(folder: Path, name: str = "redlock-core", text: str = "exports.works = true;\n", **about: object) -> None:
    manifest = {"name": name, "version": version(), "main": "index.js", **about}
    files = {"package.json": json.dumps(manifest), "index.js": text}
    with tarfile.open(folder / f"{name}.tgz", "w:gz") as packed:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture
def consumers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"python/use.py": USE_PY, "node/use.mjs": USE_MJS}.items():
        (tmp_path / "consumers" / name).parent.mkdir(parents=True)
        (tmp_path / "consumers" / name).write_text(text)
    monkeypatch.setattr(published, "CONSUMERS", tmp_path / "consumers")


@pytest.fixture
def shop(tmp_path: Path, consumers: None) -> Iterator[tuple[Path, list[str]]]:
    """A served folder with packages, and the arguments of `published.main` to install from it."""
    wheel(tmp_path)
    package(tmp_path)
    with registry.serving(tmp_path) as urls:
        yield tmp_path, ["--pip", urls.pip, "--npm", urls.npm, "--patience", "0", "--only", "python", "--only", "npm"]


def test_published_packages_are_installed_and_used(
    shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert published.main(shop[1]) == 0
    said = [line for line in capfd.readouterr().out.splitlines() if "published" in line]
    assert said == [f"{kind}: {version()} is published, and works here" for kind in ("python", "npm")]


def test_an_installed_package_that_does_not_work_is_reported(
    shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = shop
    wheel(folder, works=False)
    assert published.main([*arguments[:-2]]) == 1  # Python only
    assert f"python: {version()}: python" in capfd.readouterr().out


def test_published_programs_are_installed_and_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel(tmp_path)
    for code in (0, 1):
        programs(tmp_path, code)
        with registry.serving(tmp_path) as urls:
            given = ["--pip", urls.pip, "--npm", urls.npm, "--patience", "0"]
            assert published.main([*given, "--only", "pip-program", "--only", "npm-program"]) == code
        said = [line for line in capfd.readouterr().out.splitlines() if "published, and works" in line]
        assert len(said) == (0 if code else 2)


def test_a_registry_that_lacks_the_package_is_polled(
    tmp_path: Path, consumers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def publish(pause: float) -> None:
        pauses.append(pause)
        wheel(tmp_path)

    monkeypatch.setattr(published.time, "sleep", publish)
    given = published.Given(version(), pip="", patience=60)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    published.python(work, given)
    assert pauses == [30]


def test_a_missing_package_is_reported(shop: tuple[Path, list[str]], capfd: pytest.CaptureFixture[str]) -> None:
    arguments = shop[1]
    assert published.main([*arguments[:-4], "--only", "python", "--pip", arguments[1] + "nowhere/"]) == 1
    assert f"python: {version()}: python" in capfd.readouterr().out
