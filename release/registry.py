"""Serves a folder of packages on loopback, as an index for pip and a registry for npm.

    python3 -m release.registry FOLDER      prints both URLs, and serves until it is ended

It is read-only and reads the folder only at its start: *.whl and *.tar.gz for pip (PEP 503), *.tgz for npm.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import html
import http.server
import json
import re
import tarfile
import threading
import urllib.parse
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Urls:
    """The URLs of a running registry."""

    pip: str
    """For `--index-url`."""

    npm: str
    """For `--registry`."""


class Registry(http.server.ThreadingHTTPServer):
    """The server of a folder, on a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        base = f"http://127.0.0.1:{self.server_port}"
        self.urls = Urls(pip=f"{base}/simple/", npm=f"{base}/npm/")
        self.files = {path.name: path for path in sorted(folder.rglob("*")) if path.suffix in (".whl", ".gz", ".tgz")}
        self.projects: dict[str, list[Path]] = {}
        self.packages: dict[str, dict[str, Any]] = {}
        for path in self.files.values():
            if path.suffix == ".tgz":
                self._add_npm(path)
            else:
                distribution = path.name.split("-")[0] if path.suffix == ".whl" else path.name.rsplit("-", 1)[0]
                self.projects.setdefault(normalised(distribution), []).append(path)

    def _add_npm(self, path: Path) -> None:
        with tarfile.open(path) as archive:
            manifest = json.load(archive.extractfile("package/package.json"))  # type: ignore[arg-type]
        content = path.read_bytes()
        # The same path as in npm's own registry. npm 12 fetches from no other path.
        url = f"{self.urls.npm}{manifest['name']}/-/{path.name}"
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
        manifest["dist"] = {"tarball": url, "integrity": integrity, "shasum": hashlib.sha1(content).hexdigest()}
        if manifest.get("scripts", {}).keys() & {"preinstall", "install", "postinstall"}:
            manifest["hasInstallScript"] = True
        known = self.packages.setdefault(manifest["name"], {"name": manifest["name"], "versions": {}, "dist-tags": {}})
        known["versions"][manifest["version"]] = manifest
        known["dist-tags"]["latest"] = manifest["version"]

    def index(self, project: str) -> str | None:
        """The page of a project in PEP 503's format, with the Python version that each file requires."""
        if project not in self.projects:
            return None
        links = []
        for path in self.projects[project]:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            demands = html.escape(requires_python(path))
            links.append(
                f'<a href="/files/{path.name}#sha256={digest}" data-requires-python="{demands}">{path.name}</a><br>'
            )
        return "<!DOCTYPE html><title>links</title>" + "\n".join(links)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, _, rest = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/").partition("/")
        name = rest.rstrip("/")
        if kind == "simple" and (page := self.server.index(name)) is not None:
            self._answer(200, "text/html", page.encode())
        elif kind == "npm" and name in self.server.packages:
            self._answer(200, "application/json", json.dumps(self.server.packages[name]).encode())
        elif (file := name.rpartition("/")[2]) in self.server.files:
            self._answer(200, "application/octet-stream", self.server.files[file].read_bytes())
        else:
            self._answer(404, "application/json", b'{"error": "not found"}')

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the clients report failures themselves."""


def normalised(name: str) -> str:
    """A distribution's name as pip requests it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requires_python(path: Path) -> str:
    """The Python version that a wheel or source distribution requires; empty if it names none."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = wheel.read(name)
    else:
        with tarfile.open(path) as archive:
            name = next(name for name in archive.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO"))
            metadata = archive.extractfile(name).read()  # type: ignore[union-attr]
    found = re.search(rb"^Requires-Python: (.+)$", metadata, re.MULTILINE)
    return found.group(1).decode().strip() if found else ""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Urls]:
    """Serve a folder while the block runs."""
    registry = Registry(folder)
    thread = threading.Thread(target=registry.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry.urls
    finally:
        registry.shutdown()
        thread.join()
        registry.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.registry", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    registry = Registry(parser.parse_args().folder)
    print(f"pip install --index-url {registry.urls.pip}\nnpm install --registry {registry.urls.npm}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        registry.serve_forever()


if __name__ == "__main__":
    main()
