"""An entry in the list of targets is enough to add a program: a toy is added, built, packed, installed and run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from release import native, pack, registry, targets

PROGRAM = "redlock-toy"
# Like an entry under "programs" in targets.json.
ENTRY = targets.Program(PROGRAM, PROGRAM, PROGRAM, PROGRAM, "@redlock/toy", "release/tests/toy")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = dataclasses.replace(targets.load(), programs=[ENTRY], jvm=[])
    out = tmp_path_factory.mktemp("program")
    build = native.Build(release, release.host(), out, "dev")
    build.programs()
    packer = pack.Packer(release, out)
    for kind in ("python", "npm", "archives"):
        (packer.packages / kind).mkdir(parents=True)
    shutil.copy(next((out / release.host().rust / "wheels").glob("*.whl")), packer.packages / "python")
    packer.npm_program(ENTRY, release.npm.manifest)
    packer.archives()
    packer.sums()
    return packer.packages


def works(*command: str | Path) -> None:
    done = subprocess.run([*command, "7"], check=False, stdout=subprocess.PIPE, text=True)
    assert (int(done.stdout) > 0, done.returncode) == (True, 7)


def test_by_pip(packages: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    with registry.serving(packages) as urls:
        install = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "--index-url", urls.pip, "redlock-toy"]
        subprocess.run([tmp_path / "venv" / "bin" / "python", *install], check=True, env={"PATH": "/nonexistent"})
    works(tmp_path / "venv" / "bin" / PROGRAM)


def test_by_npm(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    with registry.serving(packages) as urls:
        install = ["npm", "install", "--silent", "--registry", urls.npm, "--cache", tmp_path / "cache", "redlock-toy"]
        subprocess.run(install, cwd=tmp_path, check=True)
    program = tmp_path / "node_modules" / ".bin" / PROGRAM
    works(program)
    shutil.rmtree(tmp_path / "node_modules" / "@redlock")
    missing = subprocess.run([program], check=False, capture_output=True, text=True)
    assert missing.returncode == 1
    assert missing.stderr.startswith("redlock-toy has no program for ")
    assert len(missing.stderr.splitlines()) == 1


def test_by_archive(packages: Path, tmp_path: Path) -> None:
    (archive,) = (packages / "archives").glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert sorted(os.listdir(folder)) == ["LICENSE", "THIRD-PARTY-LICENSES", PROGRAM]
    works(folder / PROGRAM)
    assert archive.name in (packages / "SHA256SUMS").read_text()
