"""Publishes to Maven Central: uploads a signed bundle of the modules, checks it there, and publishes or drops it.

This module calls Central's HTTP API. Central's plugin for Maven would build the files again; here the published files
are the tested ones. An upload makes a deployment, which is a staging area. Central validates it, and this module
fetches each file in it and compares it with ours. If both succeed, the deployment is published, which cannot be undone.
Otherwise it is dropped, and nothing remains.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from release.clients import SECRETS, Registries, Unanswered, attempts, get, refusal, say, without
from release.refused import Refused

CREDENTIALS = ("MAVEN_USERNAME", "MAVEN_PASSWORD", "MAVEN_GPG_KEY")


class Central:
    """The modules of a folder laid out like a Maven repository."""

    title = "Maven Central"

    def __init__(self, folder: Path, modules: dict[str, list[Path]], registries: Registries) -> None:
        self.folder = folder
        self.modules = modules
        self.registries = registries

    # ---- the methods of a release.publish.Stage

    def missing(self) -> list[str]:
        return [module for module in self.modules if not self._is_there(module)]

    def _is_there(self, module: str) -> bool:
        found = {path: get(f"{self.registries.maven}/{module}/{path.name}.sha1") for path in self.modules[module]}
        if not any(found.values()):
            return False
        for path, sha1 in found.items():
            if sha1 is None:
                raise Refused(f"Maven Central has a part of {module} only: wait until it has all, and begin again")
            if sha1.decode().strip() != hashlib.sha1(path.read_bytes()).hexdigest():
                raise Refused(f"Maven Central has another {path.name}")
        return True

    def wants(self) -> list[str]:
        return [*without("gpg"), *(name for name in CREDENTIALS if not os.environ.get(name))]

    def publish(self, missing: list[str]) -> None:
        files = {path.relative_to(self.folder).as_posix(): path for module in missing for path in self.modules[module]}
        name = " ".join(missing)
        identity = self._upload(name, bundle(files))
        say(f"Maven Central: deployment {identity} of {name}")
        try:
            self._until(identity, "VALIDATED")
            for path, file in files.items():
                if self._ask("GET", f"deployment/{identity}/download/{path}") != file.read_bytes():
                    raise Refused(f"Maven Central got another {file.name} than it was sent")
        except Refused:
            self._drop(identity)
            raise
        self._ask("POST", f"deployment/{identity}")
        self._until(identity, "PUBLISHED")

    # ---- a deployment

    def _upload(self, name: str, content: bytes) -> str:
        boundary = hashlib.sha256(content).hexdigest()
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="bundle"; filename="bundle.zip"\r\n'
        body = b"".join(
            (
                f"{head}Content-Type: application/octet-stream\r\n\r\n".encode(),
                content,
                f"\r\n--{boundary}--\r\n".encode(),
            )
        )
        query = urllib.parse.urlencode({"name": name, "publishingType": "USER_MANAGED"})
        answer = self._ask("POST", f"upload?{query}", body, f"multipart/form-data; boundary={boundary}")
        return answer.decode().strip()

    def _until(self, identity: str, state: str) -> None:
        now = "without an answer"
        for _ in attempts(self.registries):
            with suppress(Unanswered):
                answer = json.loads(self._ask("POST", f"status?id={urllib.parse.quote(identity)}"))
                now = answer["deploymentState"]
                if now == state:
                    return
                if now == "FAILED":
                    raise Refused(f"Maven Central refuses the deployment: {json.dumps(answer.get('errors'))}")
        raise Refused(f"Maven Central's deployment {identity} is still {now}, and goes on by itself: look at it there")

    def _drop(self, identity: str) -> None:
        try:
            self._ask("DELETE", f"deployment/{identity}")
            say(f"Maven Central: deployment {identity} was dropped")
        except Refused as refused:
            say(f"Maven Central: deployment {identity} could not be dropped, do it by hand: {refused}")

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        token = base64.b64encode(":".join(os.environ[name] for name in CREDENTIALS[:2]).encode()).decode()
        request = urllib.request.Request(
            f"{self.registries.central}/{path}",
            data=body if method == "POST" else None,
            method=method,
            headers={
                "Authorization": f"Bearer {token}",
                "User-Agent": "redlock-release",
                **({"Content-Type": kind} if kind else {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace").strip()
            raise refusal(error)(f"Maven Central answers {error.code} to {method} {path}: {said}") from error
        except OSError as error:
            raise Unanswered(f"Maven Central does not answer: {error}") from error


# ---- the bundle to upload -------------------------------------------------------------------------------------------


def bundle(files: dict[str, Path]) -> bytes:
    """A zip of these files, each with a signature and the checksums that Central requires."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, signer() as sign:
        for name, path in files.items():
            data = path.read_bytes()
            archive.writestr(name, data)
            archive.writestr(f"{name}.asc", sign(path))
            for algorithm in ("md5", "sha1", "sha256", "sha512"):
                archive.writestr(f"{name}.{algorithm}", hashlib.new(algorithm, data).hexdigest())
    return content.getvalue()


@contextmanager
def signer() -> Iterator[Any]:
    """Yields a function that signs a file with MAVEN_GPG_KEY. The key ring is temporary."""
    with tempfile.TemporaryDirectory(prefix="gpg-") as home:
        environment = {name: value for name, value in os.environ.items() if name not in SECRETS} | {"GNUPGHOME": home}

        def gpg(*arguments: str, given: str = "") -> bytes:
            done = subprocess.run(
                ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments],
                input=given.encode(),
                env=environment,
                capture_output=True,
                check=False,
            )
            if done.returncode:
                raise Refused(f"gpg cannot sign with MAVEN_GPG_KEY: {done.stderr.decode(errors='replace').strip()}")
            return done.stdout

        try:
            gpg("--import", given=os.environ["MAVEN_GPG_KEY"])
            yield lambda path: gpg(
                *("--passphrase-fd", "0", "--armor", "--output", "-", "--detach-sign", str(path)),
                given=os.environ.get("MAVEN_GPG_PASSPHRASE", ""),
            )
        finally:
            subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environment, check=False, capture_output=True)
