"""Bills of materials are valid, complete, and the same on every machine."""

from __future__ import annotations

import base64
import hashlib
import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release import licences, sbom
from release.refused import Refused
from release.targets import ROOT, load, version

TARGETS = [target.rust for target in load().targets]
HOST = load().host().rust
FOLDER = "redlock_core-1.2.3.dist-info"
OWN = f"{FOLDER}/sboms/redlock-python.cyclonedx.json"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A small wheel with the files of a wheel of maturin."""
    metadata = "Metadata-Version: 2.4\nName: redlock-core\nVersion: 1.2.3\nLicense-File: LICENSE\n\nText: here\n"
    files = {
        "redlock/__init__.py": b"",
        "redlock/_native.abi3.so": b"\x7fELF" * 1000,
        f"{FOLDER}/METADATA": metadata.encode(),
        f"{FOLDER}/licenses/LICENSE": b"MIT",
        OWN: b'{"bom-ref": "path+file:///home/somebody/redlock#redlock-python@1.2.3"}',
        f"{FOLDER}/RECORD": b"",
    }
    path = tmp_path / "redlock_core-1.2.3-cp310-abi3-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (stat.S_IFREG | (0o755 if name.endswith(".so") else 0o644)) << 16
            archive.writestr(entry, data)
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def assert_valid(text: str) -> dict[str, Any]:
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    return json.loads(text)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", licences.everything())
def test_every_package_has_a_bill(name, target):
    text = sbom.document([name], target)
    bill = json.loads(text)
    assert str(ROOT) not in text
    assert "file:" not in text
    assert bill["metadata"]["component"]["name"] == name
    assert bill["metadata"]["component"]["version"] == version()
    components = {component["name"]: component for component in bill["components"]}
    assert components["redlock-core"]["purl"] == f"pkg:cargo/redlock-core@{version()}"
    for component in bill["components"]:
        assert component["licenses"][0]["expression"]
        crate = component["purl"].startswith("pkg:cargo/") and component["name"] != "redlock-core"
        assert ("hashes" in component) is crate
    # Programs have no allocator of their own.
    assert name == "redlock-cli" or components["mimalloc"]["purl"].startswith("pkg:")
    assert {"boringssl", "fiat-crypto", "rust-std"} <= components.keys()


@pytest.mark.parametrize("name", licences.everything())
def test_the_bill_is_valid(name):
    # One bill for all targets: a validation takes seconds.
    assert_valid(sbom.document([name], TARGETS))


def test_every_component_is_needed_by_another_and_known():
    bill = json.loads(sbom.document(["redlock-kotlin"], TARGETS))
    known = {bill["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in bill["components"])}
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert needs.keys() == known
    reached: set[str] = set()
    open_ends = [bill["metadata"]["component"]["bom-ref"]]
    while open_ends:
        reference = open_ends.pop()
        if reference not in reached:
            reached.add(reference)
            open_ends += needs[reference]
    assert reached == known


def test_the_hash_of_a_crate_is_that_of_the_lock_file():
    bill = json.loads(sbom.document(["redlock-node"], HOST))
    (tokio,) = (component for component in bill["components"] if component["name"] == "tokio")
    lock = (ROOT / "Cargo.lock").read_text()
    assert f'name = "tokio"\nversion = "{tokio["version"]}"\n' in lock
    assert f'checksum = "{tokio["hashes"][0]["content"]}"' in lock


def test_the_bill_of_several_crates_is_about_their_product():
    bill = assert_valid(sbom.document(licences.everything(), HOST))
    assert bill["metadata"]["component"]["name"] == "redlock"
    assert {"redlock-python", "redlock-node", "redlock-kotlin"} <= {part["name"] for part in bill["components"]}


def test_a_bill_has_neither_a_date_nor_a_random_number():
    bill = json.loads(sbom.document(["redlock-node"], HOST))
    assert "timestamp" not in bill["metadata"]
    assert "serialNumber" not in bill


def test_a_wheel_gets_the_bill_and_the_licences(wheel, tmp_path):
    before = contents(wheel)
    third = tmp_path / "third"
    third.write_text("All of them.")
    sbom.rewrite(wheel, ["redlock-python"], HOST, third)
    after = contents(wheel)
    assert after[OWN].decode() == sbom.document(["redlock-python"], HOST)
    assert after[f"{FOLDER}/licenses/THIRD-PARTY-LICENSES"] == b"All of them."
    assert after[f"{FOLDER}/METADATA"].decode() == (
        "Metadata-Version: 2.4\nName: redlock-core\nVersion: 1.2.3\n"
        "License-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES\n\nText: here\n"
    )
    for name in ("redlock/__init__.py", "redlock/_native.abi3.so", f"{FOLDER}/licenses/LICENSE"):
        assert after[name] == before[name]
    assert list(after)[-1] == f"{FOLDER}/RECORD"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo("redlock/_native.abi3.so").external_attr >> 16 & 0o111
        assert not archive.getinfo(OWN).external_attr >> 16 & 0o111
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert sorted(path.name for path in wheel.parent.iterdir()) == [wheel.name, "third"]


def test_the_record_of_a_wheel_is_right(wheel):
    sbom.rewrite(wheel, ["redlock-python"], HOST)
    after = contents(wheel)
    lines = [line.split(",") for line in after[f"{FOLDER}/RECORD"].decode().splitlines()]
    assert {name for name, *_ in lines} == after.keys()
    for name, digest, size in lines[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(after[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(after[name])))
    assert lines[-1] == [f"{FOLDER}/RECORD", "", ""]


def test_rewriting_a_wheel_again_changes_nothing(wheel, tmp_path):
    third = tmp_path / "third"
    third.write_text("All of them.")
    sbom.rewrite(wheel, ["redlock-python"], HOST, third)
    once = wheel.read_bytes()
    sbom.rewrite(wheel, ["redlock-python"], HOST, third)
    assert wheel.read_bytes() == once


def test_a_wheel_with_an_unexpected_bill_is_refused(wheel):
    before = wheel.read_bytes()
    with pytest.raises(Refused, match=r"has the bills .*redlock-python\.cyclonedx\.json, only .*redlock-cli"):
        sbom.rewrite(wheel, ["redlock-cli"], HOST)
    assert wheel.read_bytes() == before


def test_the_command_writes_a_file_or_fails_with_one_line(tmp_path):
    sbom.main([str(tmp_path / "out"), "redlock-node", HOST])
    assert (tmp_path / "out").read_text() == sbom.document(["redlock-node"], HOST)
    with pytest.raises(SystemExit, match=r"^release\.sbom: no target z80 in "):
        sbom.main([str(tmp_path / "none"), "redlock-node", "z80"])
