"""The loopback registry, used by the real npm."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from pathlib import Path

from release import registry


def test_npm(tmp_path: Path) -> None:
    consumer = tmp_path / "consumer"
    consumer.mkdir()
    (consumer / "package.json").write_text("{}")
    for name in ("@redlock/toy", "redlock-toy"):
        manifest = json.dumps({"name": name, "version": "1.0.0"}).encode()
        with tarfile.open(tmp_path / f"{name.replace('/', '-')}-1.0.0.tgz", "w:gz") as archive:
            entry = tarfile.TarInfo("package/package.json")
            entry.size = len(manifest)
            archive.addfile(entry, io.BytesIO(manifest))
    with registry.serving(tmp_path) as url:
        install = ["npm", "install", "--registry", url, "--silent", "--cache", tmp_path / "cache"]
        subprocess.run([*install, "redlock-toy", "@redlock/toy"], cwd=consumer, check=True)
    assert (consumer / "node_modules" / "redlock-toy" / "package.json").exists()
    assert (consumer / "node_modules" / "@redlock" / "toy" / "package.json").exists()
