"""Each check of `release.checks` finds its fault in a package that has exactly that one."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from release import checks, native, targets
from release.targets import load, version

HERE = next(target for target in targets.load().targets if target.glibc)
LICENSE = (targets.ROOT / "LICENSE").read_bytes()
# The linker option of a library without faults: `-s` strips symbols.
SOUND = ["-s"]


def tarball(path: Path, *, files: dict[str, bytes], **manifest: object) -> Path:
    described = {"name": "@redlock/core-linux-x64-gnu", "version": targets.version(), **manifest}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"package.json": json.dumps(described).encode(), **files}.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def found(folder: Path, check: str, *arguments: object) -> list[str]:
    made = checks.Checks(targets.load(), folder)
    getattr(made, check)(*arguments)
    return made.wrong


def library(folder: Path, code: str, *options: str) -> bytes:
    source, made = folder / "code.c", folder / "libcode.so"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, *options], check=True)
    return made.read_bytes()


@pytest.mark.parametrize(
    ("files", "budget", "fault"),
    [
        ({}, 10_000, "no LICENSE"),
        ({"LICENSE": b"../LICENSE"}, 10_000, "or another one"),
        ({"LICENSE": LICENSE}, 100, "at most"),
        ({"LICENSE": LICENSE, "x.js": str(targets.ROOT).encode()}, 10_000, "has a path of this machine"),
        ({"LICENSE": LICENSE, "x.js": str(native.remapped()[0][0]).encode()}, 10_000, "has a path of this machine"),
        ({"LICENSE": LICENSE, "x.node": b"\x7fELF", "sbom.cdx.json": b""}, 10_000, "no THIRD-PARTY-LICENSES"),
        ({"LICENSE": LICENSE, "x.node": b"\x7fELF", "THIRD-PARTY-LICENSES": b""}, 10_000, "no sbom.cdx.json"),
        (dict.fromkeys(("sbom.cdx.json", "THIRD-PARTY-LICENSES"), b"") | {"LICENSE": LICENSE, "x": b"MZ"}, 10_000, ""),
    ],
)
def test_contents(tmp_path: Path, files: dict[str, bytes], budget: int, fault: str) -> None:
    package = checks.Package(tarball(tmp_path / "x.tgz", files=files), budget)
    wrong = found(tmp_path, "contents", package)
    assert len(wrong) == bool(fault)
    assert fault in "".join(wrong)


def test_the_archive_of_a_program_is_checked_like_a_package(tmp_path: Path) -> None:
    (tmp_path / "archives").mkdir()
    tarball(tmp_path / "archives" / "redlock-x.tar.gz", files={"LICENSE": LICENSE, "redlock": b"\x7fELF"})
    (package,) = checks.packages(tmp_path)
    wrong = found(tmp_path, "contents", package)
    assert [line.split(": ")[1] for line in wrong] == ["no THIRD-PARTY-LICENSES", "no sbom.cdx.json"]


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        ({"scripts": {"install": "true"}}, "has scripts"),
        ({"private": True}, "is private"),
        ({"version": "0.0.0"}, "is version 0.0.0"),
        ({"name": "@redlock/core-amiga-m68k"}, "not in the list"),
    ],
)
def test_tarballs(tmp_path: Path, manifest: dict[str, object], fault: str) -> None:
    (tmp_path / "packages" / "npm").mkdir(parents=True)
    tarball(tmp_path / "packages" / "npm" / "x.tgz", files={}, **manifest)
    (wrong,) = found(tmp_path, "tarballs")
    assert fault in wrong


@pytest.mark.parametrize(
    ("code", "options", "fault"),
    [
        ("int x;", [*SOUND, "-z", "execstack"], "stack that can be executed"),
        ("int x;", [], "has symbols"),
        ("int x;", [*SOUND, "-Wl,--no-as-needed", "-lgcc_s"], "needs libgcc_s.so.1"),
        (
            "__thread int x; int *f(void) { return &x; }",
            [*SOUND, "-ftls-model=initial-exec"],
            "static TLS",
        ),
        ("int getrandom(void *, int, int); int f(void) { return getrandom(0, 0, 0); }", SOUND, "needs GLIBC_2.25"),
        ("int f(void) { return 1; }", SOUND, ""),
    ],
)
def test_libraries(tmp_path: Path, code: str, options: list[str], fault: str) -> None:
    wrong = found(tmp_path, "elf", "x", library(tmp_path, code, *options), False)
    assert any(fault in line for line in wrong) if fault else not wrong, wrong


@pytest.mark.parametrize("listed", ["", f"{'0' * 64}  x\n"])
def test_sums(tmp_path: Path, listed: str) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "x").write_bytes(b"x")
    (tmp_path / "packages" / "SHA256SUMS").write_text(listed)
    assert found(tmp_path, "sums") == ["SHA256SUMS: x"]


def test_a_jar_without_its_libraries(tmp_path: Path) -> None:
    jars = tmp_path / "packages" / "maven"
    jars.mkdir(parents=True)
    (tmp_path / HERE.rust).mkdir()
    with zipfile.ZipFile(jars / "x.jar", "w") as jar:
        jar.writestr("linux-x86-64/something.so", "")
    (wrong,) = found(tmp_path, "jars")
    assert "no jar has all of" in wrong


def test_a_complete_set_has_each_file_of_each_published_target(tmp_path: Path) -> None:
    release, number = load(), version()
    names = [f"python/redlock_core-{number}.tar.gz", f"python/redlock_cli-{number}.tar.gz"]
    names += [f"crates/{crate}-{number}.crate" for crate in ("redlock-core", "redlock-cli")]
    for target in release.published():
        names += [f"python/{kind}-{target.rust}.whl" for kind in (*release.python.abis, "cli")]
        names += [f"npm/redlock-{part}-{target.npm.platform}-{number}.tgz" for part in ("core", "cli")]
    names += [f"npm/redlock-{part}-{number}.tgz" for part in ("core", "cli")]
    for name in names:
        (tmp_path / "packages" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "packages" / name).touch()
    jar = tmp_path / "packages" / "maven" / "one.jar"
    jar.parent.mkdir()
    with zipfile.ZipFile(jar, "w") as archive:
        for target in release.published():
            archive.writestr(target.in_jar("redlock_kotlin"), "")
    whole = checks.Checks(release, tmp_path)
    whole.complete()
    assert whole.wrong == []
    for name in names:
        path = tmp_path / "packages" / name
        path.rename(tmp_path / "away")
        lacking = checks.Checks(release, tmp_path)
        lacking.complete()
        assert len(lacking.wrong) == 1, name
        (tmp_path / "away").rename(path)
