"""The loopback registry, used by the real pip and npm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from release import registry

WHEEL = "redlock_toy-1.0-py3-none-any.whl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    packages = tmp_path / "packages"
    packages.mkdir()
    with zipfile.ZipFile(packages / WHEEL, "w") as wheel:
        info = "redlock_toy-1.0.dist-info"
        wheel.writestr("redlock_toy.py", "")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: redlock-toy\nVersion: 1.0\nRequires-Python: >=3.8\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    for name in ("@redlock/toy", "redlock-toy"):
        manifest = json.dumps({"name": name, "version": "1.0.0"}).encode()
        with tarfile.open(packages / f"{name.replace('@', '').replace('/', '-')}-{len(name)}.tgz", "w:gz") as archive:
            entry = tarfile.TarInfo("package/package.json")
            entry.size = len(manifest)
            archive.addfile(entry, io.BytesIO(manifest))
    return packages


def test_pip(folder: Path, tmp_path: Path) -> None:
    with registry.serving(folder) as urls:
        download = ["-m", "pip", "download", "--quiet", "--no-cache-dir", "--index-url", urls.pip, "--dest", tmp_path]
        subprocess.run([sys.executable, *download, "Redlock.Toy"], check=True)
        page = urllib.request.urlopen(f"{urls.pip}redlock-toy/").read().decode()
    assert (tmp_path / WHEEL).read_bytes() == (folder / WHEEL).read_bytes()
    assert 'data-requires-python="&gt;=3.8"' in page


def test_npm(folder: Path, tmp_path: Path) -> None:
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "package.json").write_text("{}")
    with registry.serving(folder) as urls:
        install = ["npm", "install", "--registry", urls.npm, "--silent", "--cache", tmp_path / "cache"]
        subprocess.run([*install, "redlock-toy", "@redlock/toy"], cwd=consumer, check=True)
    assert (consumer / "node_modules" / "redlock-toy" / "package.json").exists()
    assert (consumer / "node_modules" / "@redlock" / "toy" / "package.json").exists()


def test_unknown_paths_are_not_found(folder: Path) -> None:
    with registry.serving(folder) as urls:
        for url in (f"{urls.pip}other/", f"{urls.npm}other", urls.pip.replace("simple", "../../etc/passwd")):
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(url)
            assert error.value.code == 404
            error.value.close()
