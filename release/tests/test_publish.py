"""Publishing with the real cargo, twine, npm and gpg, to registries on loopback that keep a record."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from release import central, clients, publish, toolchain
from release.refused import Refused
from release.targets import JvmModule, Npm, NpmPlatform, Python, Release, Target

CRATE = "redlock-tiny"
TARGETS = [
    Target("x86_64-unknown-linux-gnu", "manylinux2014", NpmPlatform("linux-x64-gnu", "linux", "x64"), "a", "r", True),
    Target("aarch64-apple-darwin", "pypi", NpmPlatform("darwin-arm64", "darwin", "arm64"), "b", "r", True),
    Target("x86_64-pc-windows-gnu", "pypi", NpmPlatform("win32-x64", "win32", "x64"), "c", "r", False),
]
RELEASE = Release(
    crates=[CRATE],
    python=Python("python", "p", ["abi3"]),
    npm=Npm("node", "n", "redlock_node", "redlock-core.node", "@redlock/core"),
    jvm=[JvmModule("kotlin", "k", "redlock_kotlin")],
    programs=[],
    targets=TARGETS,
)
PLATFORMS = ["@redlock/core-darwin-arm64", "@redlock/core-linux-x64-gnu"]
TOKENS = {
    "CARGO_REGISTRIES_LOOP_TOKEN": "token-of-cargo",  # the variable's name for the registry `loop`
    "CARGO_REGISTRY_TOKEN": "token-of-crates-io",
    "TWINE_PASSWORD": "token-of-pypi",
    "NPM_TOKEN": "token-of-npm",
    "MAVEN_USERNAME": "user-of-maven",
    "MAVEN_PASSWORD": "password-of-maven",
}


# ---- registries that keep a record ----------------------------------------------------------------------------------


class Shops:
    """All registries in one server. Records the published files, in order, and the credentials used."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.authorizations: dict[str, set[str]] = {}
        self.refuses: set[str] = set()
        """The names that the registries reject."""

        self.hides: set[str] = set()
        """The names that the registries accept but do not serve."""

        self.deployments: dict[str, dict[str, Any]] = {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def registries(self) -> clients.Registries:
        return clients.Registries(
            crates=f"{self.url}/crates",
            cargo=("--registry", "loop"),
            pypi=f"{self.url}/pypi",
            pypi_upload=f"{self.url}/upload/",
            npm=f"{self.url}/npm",
            maven=f"{self.url}/maven",
            central=f"{self.url}/central",
            patience=0,
        )

    def keep(self, what: str, path: str, content: bytes) -> None:
        self.published.append(what)
        self.files[path] = content

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes, headers: Any) -> tuple[int, bytes]:
        shop, _, rest = path.partition("/")
        if credentials := headers.get("Authorization"):
            self.authorizations.setdefault(shop, set()).add(credentials)
        if content := self.files.get(path) if method == "GET" else None:
            return 200, content
        return {
            "crates": self._crates,
            "pypi": self._simple,
            "upload": self._upload,
            "npm": self._npm,
            "central": self._central,
        }.get(shop, lambda *_: (404, b""))(method, rest, query, body, headers)

    def _crates(self, method: str, path: str, _query: Any, body: bytes, _headers: Any) -> tuple[int, bytes]:
        if path == "config.json":
            return 200, json.dumps({"dl": f"{self.url}/crates/dl", "api": f"{self.url}/crates"}).encode()
        if method != "PUT":
            return 404, b""
        length = int.from_bytes(body[:4], "little")
        about, crate = json.loads(body[4 : 4 + length]), body[8 + length :]
        name = about["name"]
        if name in self.refuses:
            return 403, json.dumps({"errors": [{"detail": "no"}]}).encode()
        self.keep(f"crate {name}", f"crates/dl/{name}/{about['vers']}/download", crate)
        entry = {"name": name, "vers": about["vers"], "deps": [], "features": {}, "yanked": False}
        entry["cksum"] = hashlib.sha256(crate).hexdigest()
        self.files[f"crates/{name[:2]}/{name[2:4]}/{name}"] = json.dumps(entry).encode()
        return 200, b"{}"

    def _simple(self, _method: str, path: str, _query: Any, _body: bytes, _headers: Any) -> tuple[int, bytes]:
        there = {name: file for name, file in self.files.items() if name.startswith(f"pypi/{path}")}
        files = [
            {"filename": name.rsplit("/", 1)[1], "hashes": {"sha256": hashlib.sha256(file).hexdigest()}}
            for name, file in there.items()
        ]
        return (200, json.dumps({"files": files}).encode()) if files else (404, b"")

    def _upload(self, _method: str, _path: str, _query: Any, body: bytes, headers: Any) -> tuple[int, bytes]:
        message = BytesParser(policy=HTTP).parsebytes(
            b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
        )
        [part] = [part for part in message.iter_parts() if part.get_filename()]
        name = part.get_filename()
        if name in self.refuses:
            return 400, b""
        self.keep(f"python {name}", f"pypi/redlock-core/{name}", part.get_payload(decode=True))
        return 200, b""

    def _npm(self, method: str, name: str, _query: Any, body: bytes, _headers: Any) -> tuple[int, bytes]:
        if method != "PUT":
            return 404, b"{}"
        if name in self.refuses:
            return 403, b'{"error": "no"}'
        told = json.loads(body)
        [(version, found)] = told["versions"].items()
        [attached] = told["_attachments"].values()
        self.tags |= {f"{name}@{tag}": version for tag in told["dist-tags"]}
        self.keep(f"npm {name}", f"npm-files/{name}.tgz", base64.b64decode(attached["data"]))
        found["dist"]["tarball"] = f"{self.url}/{'nowhere' if name in self.hides else 'npm-files'}/{name}.tgz"
        self.files[f"npm/{name}"] = json.dumps({"name": name, "versions": {version: found}}).encode()
        return 200, b"{}"

    def _central(self, method: str, path: str, query: dict[str, str], body: bytes, headers: Any) -> tuple[int, bytes]:
        what, _, rest = path.partition("/")
        if what == "upload":
            message = BytesParser(policy=HTTP).parsebytes(
                b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body
            )
            [part] = list(message.iter_parts())
            archive = zipfile.ZipFile(io.BytesIO(part.get_payload(decode=True)))
            identity = str(len(self.deployments))
            state = "FAILED" if "maven" in self.refuses else "VALIDATED"
            self.deployments[identity] = {
                "deploymentState": state,
                "query": query,
                "files": archive,
                "errors": {"x": ["no"]},
            }
            return 201, identity.encode()
        if what == "status":
            deployment = self.deployments[query["id"]]
            return 200, json.dumps({key: deployment[key] for key in ("deploymentState", "errors")}).encode()
        identity, _, file = rest.partition("/")
        deployment = self.deployments[identity]
        if method == "GET":
            content = deployment["files"].read(file.removeprefix("download/"))
            return 200, b"something else" if file.removeprefix("download/") in self.refuses else content
        deployment["deploymentState"] = "DROPPED" if method == "DELETE" else "PUBLISHED"
        if method == "POST":
            self.published.append(f"maven {deployment['query']['name']}")
            for name in deployment["files"].namelist():
                self.files[f"maven/{name}"] = deployment["files"].read(name)
        return 204, b""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        shops = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                url = urllib.parse.urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                query = dict(urllib.parse.parse_qsl(url.query))
                path = urllib.parse.unquote(url.path)[1:]
                status, answer = shops.answer(self.command, path, query, body, self.headers)
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST = do_DELETE = _serve

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def shops() -> Iterator[Shops]:
    made = Shops()
    yield made
    made.close()


# ---- something to publish -------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, shops: Shops, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with one crate."""
    root = tmp_path / "tree"
    write(root / "src" / "lib.rs", "//! Nothing.\n")
    write(
        root / "Cargo.toml",
        f'[package]\nname = "{CRATE}"\nversion = "0.1.0"\nedition = "2024"\ndescription = "-"\nlicense = "MIT"\n',
    )
    write(root / "Cargo.lock", f'version = 4\n\n[[package]]\nname = "{CRATE}"\nversion = "0.1.0"\n')
    monkeypatch.setenv("CARGO_REGISTRIES_LOOP_INDEX", f"sparse+{shops.url}/crates/")
    return root


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A key to sign with, and its passphrase."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    environment = os.environ | {"GNUPGHOME": str(home)}
    gpg = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "sesame"]
    subprocess.run(
        [*gpg, "--quick-gen-key", "release@localhost", "ed25519", "sign", "never"], env=environment, check=True
    )
    told = subprocess.run(
        [*gpg, "--armor", "--export-secret-keys"], env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    yield {"MAVEN_GPG_KEY": told.stdout, "MAVEN_GPG_PASSPHRASE": "sesame", "home": str(home)}
    subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environment, check=True)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, key: dict[str, str]) -> None:
    for name in (*clients.SECRETS, "GITHUB_ACTIONS", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (TOKENS | key).items():
        if name != "home":
            monkeypatch.setenv(name, value)
    # The release tools include twine; the tests do not attest.
    monkeypatch.setattr(publish, "python_clients", toolchain.tools)


@pytest.fixture
def packages(tmp_path: Path, tree: Path) -> Callable[..., publish.Packages]:
    """Makes OUT/packages as `pack` does, with the smallest content that the clients accept."""

    def make(version: str = "0.1.0") -> publish.Packages:
        folder = tmp_path / "out" / "packages"
        shutil.rmtree(folder, ignore_errors=True)
        manifest = (tree / "Cargo.toml").read_text()
        for file in ("Cargo.toml", "Cargo.lock"):
            text = (tree / file).read_text()
            (tree / file).write_text(text.replace(manifest.split('"')[3], version))
        command = ["cargo", "package", "--no-verify", "--quiet", "--target-dir", str(tmp_path / "cargo")]
        subprocess.run(command, cwd=tree, check=True)
        (folder / "crates").mkdir(parents=True)
        shutil.copy(tmp_path / "cargo" / "package" / f"{CRATE}-{version}.crate", folder / "crates")
        python(folder / "python", version.replace("-rc.", "rc"))
        for name in PLATFORMS:
            npm(folder / "npm", {"name": name, "version": version})
        needed = dict.fromkeys(PLATFORMS, version)
        npm(folder / "npm", {"name": "redlock-core", "version": version, "optionalDependencies": needed})
        maven(folder / "maven" / "dev" / "redlock" / "redlock-core" / version, version)
        sum_up(folder)
        return publish.Packages(folder, RELEASE, version)

    return make


def python(folder: Path, version: str) -> None:
    folder.mkdir()
    about = f"Metadata-Version: 2.4\nName: redlock-core\nVersion: {version}\n".encode()
    for platform in ("macosx_11_0_arm64", "manylinux2014_x86_64"):
        info = f"redlock_core-{version}.dist-info"
        with zipfile.ZipFile(folder / f"redlock_core-{version}-cp310-abi3-{platform}.whl", "w") as wheel:
            wheel.writestr(f"{info}/METADATA", about)
            wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: cp310-abi3-{platform}\n")
    root = f"redlock_core-{version}"
    pack(folder / f"{root}.tar.gz", {f"{root}/PKG-INFO": about, f"{root}/pyproject.toml": b""})


def npm(folder: Path, manifest: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    name = manifest["name"].strip("@").replace("/", "-")
    pack(folder / f"{name}-{manifest['version']}.tgz", {"package/package.json": json.dumps(manifest).encode()})


def maven(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    write(folder / f"redlock-core-{version}.pom", "<project/>")
    for kind in ("", "-sources", "-javadoc"):
        with zipfile.ZipFile(folder / f"redlock-core-{version}{kind}.jar", "w") as jar:
            for target in RELEASE.published() if not kind else []:
                jar.writestr(target.in_jar("redlock_kotlin"), target.rust)
    write(folder.parent / "maven-metadata.xml", "<metadata/>")


def pack(archive: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def sum_up(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in folder.rglob("*")
        if path.is_file()
    ]
    write(folder / "SHA256SUMS", "".join(sums))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ALL = [
    f"crate {CRATE}",
    "python redlock_core-0.1.0-cp310-abi3-macosx_11_0_arm64.whl",
    "python redlock_core-0.1.0-cp310-abi3-manylinux2014_x86_64.whl",
    "python redlock_core-0.1.0.tar.gz",
    *(f"npm {name}" for name in PLATFORMS),
    "npm redlock-core",
    "maven dev/redlock/redlock-core/0.1.0",
]


# ---- publishing -----------------------------------------------------------------------------------------------------


def test_everything_is_published_in_order_and_only_once(
    shops: Shops,
    tree: Path,
    packages: Callable[..., publish.Packages],
    key: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = packages()
    publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == ALL
    assert shops.tags == {f"{name}@latest": "0.1.0" for name in [*PLATFORMS, "redlock-core"]}

    ours = {path.read_bytes() for path in [*made.crates, *made.python, *(tarball.path for tarball in made.npm)]}
    assert ours < set(shops.files.values())
    [deployment] = shops.deployments.values()
    assert deployment["query"]["publishingType"] == "USER_MANAGED"
    modules = [path for files in made.maven.values() for path in files]
    assert {path.suffix for path in modules} == {".jar", ".pom"}
    for path in modules:
        name = f"maven/{path.relative_to(made.folder / 'maven').as_posix()}"
        assert shops.files[name] == path.read_bytes()
        assert shops.files[f"{name}.md5"].decode() == hashlib.md5(path.read_bytes()).hexdigest()
        signature = path.with_name("signature")
        signature.write_bytes(shops.files[f"{name}.asc"])
        command = ["gpg", "--batch", "--quiet", "--verify", str(signature), str(path)]
        subprocess.run(command, check=True, env=os.environ | {"GNUPGHOME": key["home"]}, capture_output=True)
        signature.unlink()
    assert not any("maven-metadata" in name for name in shops.files)

    basic = base64.b64encode(b"__token__:token-of-pypi").decode()
    bearer = base64.b64encode(b"user-of-maven:password-of-maven").decode()
    assert shops.authorizations == {
        "crates": {"token-of-cargo"},
        "upload": {f"Basic {basic}"},
        "npm": {"Bearer token-of-npm"},
        "central": {f"Bearer {bearer}"},
    }

    # Everything is published now: a second run calls no client and needs no credential.
    for name in clients.SECRETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == ALL


def test_a_stopped_release_continues(shops: Shops, tree: Path, packages: Callable[..., publish.Packages]) -> None:
    """A release stops at each possible place, and continues when it is started again."""
    made = packages()
    jar = "dev/redlock/redlock-core/0.1.0/redlock-core-0.1.0.jar"
    stops = {CRATE: 0, made.python[1].name: 2, PLATFORMS[1]: 5, "redlock-core": 6, "maven": 7, jar: 7}
    for refused, before in stops.items():
        shops.refuses = {refused}
        with pytest.raises(Refused):
            publish.publish(made, shops.registries(), dry=False, root=tree)
        assert shops.published == ALL[:before]
    assert [deployment["deploymentState"] for deployment in shops.deployments.values()] == ["DROPPED", "DROPPED"]
    shops.refuses = set()
    publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == ALL


def test_the_main_package_waits_until_npm_serves_the_others(
    shops: Shops, tree: Path, packages: Callable[..., publish.Packages]
) -> None:
    made = packages()
    shops.hides = {PLATFORMS[1]}
    with pytest.raises(Refused) as refused:
        publish.publish(made, shops.registries(), dry=False, root=tree)
    assert (
        str(refused.value) == f"redlock-core 0.1.0: not published, since npm does not give out {PLATFORMS[1]} 0.1.0 yet"
    )
    assert shops.published == ALL[:6]

    # Later npm serves it.
    shops.files[f"nowhere/{PLATFORMS[1]}.tgz"] = shops.files[f"npm-files/{PLATFORMS[1]}.tgz"]
    publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == ALL


def test_npm_does_not_install_a_candidate_by_default(
    shops: Shops, tree: Path, packages: Callable[..., publish.Packages]
) -> None:
    publish.publish(packages("1.0.0-rc.1"), shops.registries(), dry=False, root=tree)
    assert shops.tags == {f"{name}@next": "1.0.0-rc.1" for name in [*PLATFORMS, "redlock-core"]}
    assert "python redlock_core-1.0.0rc1.tar.gz" in shops.published


def test_a_dry_run_publishes_nothing_and_needs_nothing(
    shops: Shops,
    tree: Path,
    packages: Callable[..., publish.Packages],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    made = packages()
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in clients.SECRETS:
        monkeypatch.delenv(name, raising=False)
    capfd.readouterr()
    publish.publish(made, shops.registries(), dry=True, root=tree)
    assert shops.published == []
    assert capfd.readouterr().out.splitlines() == [
        "crates.io: would publish redlock-tiny-0.1.0.crate",
        "PyPI: would publish redlock_core-0.1.0-cp310-abi3-macosx_11_0_arm64.whl",
        "PyPI: would publish redlock_core-0.1.0-cp310-abi3-manylinux2014_x86_64.whl",
        "PyPI: would publish redlock_core-0.1.0.tar.gz",
        "npm, platform packages: would publish @redlock/core-darwin-arm64",
        "npm, platform packages: would publish @redlock/core-linux-x64-gnu",
        "npm: would publish redlock-core",
        "Maven Central: would publish dev/redlock/redlock-core/0.1.0",
    ]


def test_a_file_that_a_registry_has_must_be_the_same(
    shops: Shops, tree: Path, packages: Callable[..., publish.Packages]
) -> None:
    made = packages()
    publish.publish(made, shops.registries(), dry=False, root=tree)
    changed = {
        made.crates[0]: "crates.io has another redlock-tiny-0.1.0.crate",
        made.python[0]: f"PyPI has another {made.python[0].name}",
        made.npm[0].path: "npm has another redlock-core 0.1.0",
        made.npm[1].path: "npm has another @redlock/core-darwin-arm64 0.1.0",
        made.maven["dev/redlock/redlock-core/0.1.0"][3]: "Maven Central has another redlock-core-0.1.0.pom",
    }
    for path, message in changed.items():
        content = path.read_bytes()
        if path.suffix in (".crate", ".tgz"):
            with tarfile.open(path) as archive:
                files = {member.name: archive.extractfile(member).read() for member in archive}
            pack(path, files | {"package/other": b""})
        else:
            path.write_bytes(content + b"\n")
        sum_up(made.folder)
        with pytest.raises(Refused, match=message):
            publish.publish(publish.Packages(made.folder, RELEASE, "0.1.0"), shops.registries(), dry=True, root=tree)
        path.write_bytes(content)
    del shops.files["maven/dev/redlock/redlock-core/0.1.0/redlock-core-0.1.0.pom.sha1"]
    with pytest.raises(Refused, match=r"a part of dev/redlock/redlock-core/0\.1\.0 only"):
        publish.publish(made, shops.registries(), dry=True, root=tree)
    assert shops.published == ALL


def test_a_crate_packed_from_another_tree_is_not_published(
    shops: Shops, tree: Path, packages: Callable[..., publish.Packages]
) -> None:
    made = packages()
    write(tree / "src" / "lib.rs", "//! Something.\n")
    with pytest.raises(Refused, match=r"is not what redlock-tiny-0\.1\.0\.crate was packed from"):
        publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == []


def test_nothing_is_published_before_all_credentials_are_there(
    shops: Shops, tree: Path, packages: Callable[..., publish.Packages], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = packages()
    for name in clients.SECRETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Refused) as refused:
        publish.publish(made, shops.registries(), dry=False, root=tree)
    assert str(refused.value).splitlines() == [
        "nothing was published, since this is missing:",
        "crates.io: cargo on the PATH",
        "crates.io: CARGO_REGISTRY_TOKEN",
        "PyPI: TWINE_PASSWORD, or a workflow's identity",
        "npm, platform packages: npm on the PATH",
        "npm, platform packages: NPM_TOKEN, or a workflow's identity",
        "npm: npm on the PATH",
        "npm: NPM_TOKEN, or a workflow's identity",
        "Maven Central: gpg on the PATH",
        "Maven Central: MAVEN_USERNAME",
        "Maven Central: MAVEN_PASSWORD",
        "Maven Central: MAVEN_GPG_KEY",
    ]
    assert shops.published == []


def test_a_workflows_identity_stands_in_for_tokens_and_attests(
    shops: Shops,
    tree: Path,
    tmp_path: Path,
    packages: Callable[..., publish.Packages],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uses fake clients that record their calls: the real ones would send requests to GitHub."""
    made = packages()
    record = tmp_path / "record"
    fake(tmp_path / "bin", record, "npm", 'if [ "$1" = --version ]; then echo 11.5.1; exit; fi')
    fake(tmp_path / "bin", record, "twine")
    fake(tmp_path / "bin", record, "python", 'for file in "${@:4}"; do touch "$file.publish.attestation"; done')
    monkeypatch.setattr(publish, "python_clients", lambda: tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for name in ("NPM_TOKEN", "TWINE_PASSWORD"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(clients.IDENTITY, "identity")
    # The fake npm publishes nothing, so the main package waits in vain.
    with pytest.raises(Refused, match=r"redlock-core 0\.1\.0: not published"):
        publish.publish(made, shops.registries(), dry=False, root=tree)

    calls = [json.loads(line) for line in record.read_text().splitlines()]
    wheels, sdist = made.python[:2], made.python[2]
    attested = [path.with_name(f"{path.name}.publish.attestation") for path in wheels]
    upload = ["upload", "--non-interactive", "--disable-progress-bar", "--repository-url", f"{shops.url}/upload/"]
    npm_options = ["--access", "public", "--tag", "latest", "--provenance"]
    assert [call["arguments"] for call in calls] == [
        ["-m", "pypi_attestations", "sign", *map(str, wheels)],
        [*upload, "--attestations", *map(str, [*wheels, *attested])],
        ["-m", "pypi_attestations", "sign", str(sdist)],
        [*upload, "--attestations", str(sdist), f"{sdist}.publish.attestation"],
        *(["publish", str(tarball.path), *npm_options] for tarball in made.npm[1:]),
    ]
    for call in calls:
        assert set(call["secrets"]) == {clients.IDENTITY}


def test_no_token_is_on_a_command_line(
    shops: Shops,
    tree: Path,
    tmp_path: Path,
    packages: Callable[..., publish.Packages],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = packages()
    record = tmp_path / "record"
    cargo = f'[ "$1" = package ] && exec {shutil.which("cargo")} "$@"'
    for name, does in {"npm": "", "twine": "", "cargo": cargo}.items():
        fake(tmp_path / "bin", record, name, does)
    monkeypatch.setattr(publish, "python_clients", lambda: tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Refused, match=r"redlock-core 0\.1\.0: not published"):
        publish.publish(made, shops.registries(), dry=False, root=tree)
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    assert [call["arguments"][0] for call in calls] == ["publish", "upload", "upload", "publish", "publish"]
    assert [list(call["secrets"]) for call in calls] == [
        ["CARGO_REGISTRY_TOKEN"],
        ["TWINE_PASSWORD"],
        ["TWINE_PASSWORD"],
        [],  # npm gets its token in another variable
        [],
    ]
    words = [word for call in calls for word in call["arguments"]]
    assert not [word for word in words for token in TOKENS.values() if token in word]


def test_an_npm_that_cannot_use_an_identity_is_named_before_anything_is_published(
    shops: Shops,
    tree: Path,
    tmp_path: Path,
    packages: Callable[..., publish.Packages],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = packages()
    fake(tmp_path / "bin", tmp_path / "record", "npm", "echo 10.9.8; exit")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("NPM_TOKEN")
    monkeypatch.setenv(clients.IDENTITY, "identity")
    with pytest.raises(Refused, match=r"npm 11\.5\.1 or newer, not 10\.9\.8"):
        publish.publish(made, shops.registries(), dry=False, root=tree)
    assert shops.published == []


def test_each_client_sees_its_own_secrets_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = tmp_path / "record"
    fake(tmp_path, record, "client")
    for name in clients.SECRETS:
        monkeypatch.setenv(name, name)
    clients.run(tmp_path / "client", "one", secrets=["NPM_TOKEN"], OTHER="there")
    assert json.loads(record.read_text()) == {"arguments": ["one"], "secrets": {"NPM_TOKEN": "NPM_TOKEN"}}


def fake(folder: Path, record: Path, name: str, does: str = "") -> None:
    """Makes a program that records its arguments and the secrets in its environment."""
    code = (
        "import json, os, sys\n"
        f"secrets = {{name: os.environ[name] for name in {clients.SECRETS!r} if name in os.environ}}\n"
        f"with open({str(record)!r}, 'a') as record:\n"
        "    print(json.dumps({'arguments': sys.argv[1:], 'secrets': secrets}), file=record)\n"
    )
    write(folder / f"{name}.py", code)
    write(folder / name, f'#!/bin/bash\n{does}\nexec {shutil.which("python3")} "{folder / name}.py" "$@"\n')
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: next(folder.glob("python/*macos*")).unlink(), "1 wheels in python/, but 2"),
        (lambda folder: next(folder.glob("python/*.tar.gz")).unlink(), "0 source distributions in python/, but 1"),
        (
            lambda folder: next(folder.glob("npm/redlock-core-d*")).unlink(),
            "no package @redlock/core-darwin-arm64 in npm/",
        ),
        (lambda folder: next(folder.glob("crates/*")).unlink(), "no crates/redlock-tiny-0.1.0.crate"),
        (lambda folder: shutil.rmtree(folder / "maven"), "0 modules in maven/, but 1"),
        (lambda folder: next(folder.rglob("*0.1.0.jar")).write_bytes(zipped()), "no jar in maven/ has redlock_kotlin"),
        (lambda folder: (folder / "SHA256SUMS").unlink(), "redlock-tiny-0.1.0.crate is not what SHA256SUMS says"),
        (lambda folder: npm(folder / "npm", {"name": "old", "version": "0.0.9"}), "npm/old-0.0.9.tgz is of another"),
        (lambda folder: pack(folder / "python" / "redlock_core-0.0.9.tar.gz", {}), "0.0.9.tar.gz is of another"),
        (lambda folder: maven(folder / "maven/dev/redlock/redlock-core/0.0.9", "0.0.9"), "core/0.0.9 is of another"),
    ],
)
def test_an_incomplete_folder_or_another_version_is_no_release(
    packages: Callable[..., publish.Packages], spoil: Callable[[Path], object], message: str
) -> None:
    made = packages()
    spoil(made.folder)
    if not message.endswith("SUMS says"):
        sum_up(made.folder)
    with pytest.raises(Refused, match=message.replace("/", ".")):
        publish.Packages(made.folder, RELEASE, "0.1.0")


def zipped() -> bytes:
    content = io.BytesIO()
    zipfile.ZipFile(content, "w").close()
    return content.getvalue()


def test_a_wrong_passphrase_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "file", "content")
    monkeypatch.setenv("MAVEN_GPG_PASSPHRASE", "wrong")
    with pytest.raises(Refused, match="gpg cannot sign with MAVEN_GPG_KEY"):
        central.bundle({"file": tmp_path / "file"})


def test_the_command_refuses_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=re.escape(f"release.publish: {tmp_path / 'packages'} is no release of")):
        publish.main([str(tmp_path)])
