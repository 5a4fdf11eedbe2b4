"""Serves the npm packages of a folder on loopback, as a registry for npm. pip needs none: it reads a folder.

    python3 -m release.registry FOLDER      prints its URL, and serves until it is ended

It is read-only and reads the folder only at its start.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import http.server
import json
import tarfile
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Registry(http.server.ThreadingHTTPServer):
    """The server of a folder, on a free port of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.answers: dict[str, bytes] = {}
        for path in sorted(folder.rglob("*.tgz")):
            content = path.read_bytes()
            with tarfile.open(path) as archive:
                manifest: dict[str, Any] = json.load(archive.extractfile("package/package.json"))  # type: ignore[arg-type]
            name, version = manifest["name"], manifest["version"]
            # The same path as in npm's own registry. npm 12 fetches from no other path.
            tarball = f"{name}/-/{path.name}"
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
            manifest["dist"] = {"tarball": self.url + tarball, "integrity": integrity}
            known = {"name": name, "versions": {version: manifest}, "dist-tags": {"latest": version}}
            self.answers |= {name: json.dumps(known).encode(), tarball: content}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Registry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.server.answers.get(urllib.parse.unquote(self.path.partition("?")[0]).strip("/"))
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        """Log nothing: npm reports failures itself."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder while the block runs; yield the URL."""
    with Registry(folder) as registry:
        thread = threading.Thread(target=registry.serve_forever, daemon=True)
        thread.start()
        try:
            yield registry.url
        finally:
            registry.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.registry", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    registry = Registry(parser.parse_args().folder)
    print(f"npm install --registry {registry.url}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        registry.serve_forever()


if __name__ == "__main__":
    main()
