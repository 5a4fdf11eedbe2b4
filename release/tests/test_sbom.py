"""Bills of materials are valid, complete, and the same on every machine."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release import licences, sbom
from release.parts import Part
from release.parts import parts as all_parts
from release.refused import Refused
from release.targets import ROOT, load, version

TARGETS = [target.rust for target in load().targets]
CRATES = ["redlock-python", "redlock-node", "redlock-kotlin", "redlock-cli"]
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


def bill(name: str, *targets: str) -> dict[str, Any]:
    return sbom.bill(name, targets, parts(name, *targets))


def parts(name: str, *targets: str) -> list[Part]:
    return all_parts([name], targets)


@pytest.mark.parametrize("name", CRATES)
def test_every_package_has_a_valid_bill(name):
    # One bill for all targets: a validation takes seconds.
    text = sbom.document(name, TARGETS, parts(name, *TARGETS))
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    assert not re.search(f"{ROOT}|file:|timestamp|serialNumber", text)
    found = json.loads(text)
    assert (found["metadata"]["component"]["name"], found["metadata"]["component"]["version"]) == (name, version())
    components = {component["name"]: component for component in found["components"]}
    assert components["redlock-core"]["purl"] == f"pkg:cargo/redlock-core@{version()}"
    for component in found["components"]:
        assert component["licenses"][0]["expression"]
        crate = component["purl"].startswith("pkg:cargo/") and component["name"] != "redlock-core"
        assert ("hashes" in component) is crate
    # Programs have no allocator of their own.
    assert name == "redlock-cli" or components["mimalloc"]["purl"].startswith("pkg:")
    assert {"boringssl", "fiat-crypto", "rust-std"} <= components.keys()


def test_every_component_is_needed_by_another_and_known():
    found = bill("redlock-kotlin", *TARGETS)
    known = {found["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in found["components"])}
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in found["dependencies"]}
    assert needs.keys() == known
    reached: set[str] = set()
    open_ends = [found["metadata"]["component"]["bom-ref"]]
    while open_ends:
        reference = open_ends.pop()
        if reference not in reached:
            reached.add(reference)
            open_ends += needs[reference]
    assert reached == known


def test_the_hash_of_a_crate_is_that_of_the_lock_file():
    (tokio,) = (component for component in bill("redlock-node", HOST)["components"] if component["name"] == "tokio")
    lock = (ROOT / "Cargo.lock").read_text()
    assert f'name = "tokio"\nversion = "{tokio["version"]}"\n' in lock
    assert f'checksum = "{tokio["hashes"][0]["content"]}"' in lock


def test_a_wheel_gets_the_bill_and_the_licences(wheel):
    before = contents(wheel)
    sbom.rewrite(wheel, "redlock-python", HOST)
    after = contents(wheel)
    found = parts("redlock-python", HOST)
    assert after[OWN].decode() == sbom.document("redlock-python", [HOST], found)
    assert after[f"{FOLDER}/licenses/THIRD-PARTY-LICENSES"].decode() == licences.document(found)
    assert after[f"{FOLDER}/METADATA"].decode() == (
        "Metadata-Version: 2.4\nName: redlock-core\nVersion: 1.2.3\n"
        "License-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES\n\nText: here\n"
    )
    for name in ("redlock/__init__.py", "redlock/_native.abi3.so", f"{FOLDER}/licenses/LICENSE"):
        assert after[name] == before[name]
    with zipfile.ZipFile(wheel) as archive:
        assert archive.getinfo("redlock/_native.abi3.so").external_attr >> 16 & 0o111
        assert not archive.getinfo(OWN).external_attr >> 16 & 0o111
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    lines = [line.split(",") for line in after[f"{FOLDER}/RECORD"].decode().splitlines()]
    assert {name for name, *_ in lines} == after.keys()
    for name, digest, size in lines[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(after[name]).digest()).rstrip(b"=").decode()
        assert (digest, size) == (f"sha256={expected}", str(len(after[name])))
    assert lines[-1] == [f"{FOLDER}/RECORD", "", ""]


def test_rewriting_a_wheel_again_changes_nothing(wheel):
    sbom.rewrite(wheel, "redlock-python", HOST)
    once = wheel.read_bytes()
    sbom.rewrite(wheel, "redlock-python", HOST)
    assert wheel.read_bytes() == once
    assert list(wheel.parent.iterdir()) == [wheel]


def test_a_wheel_with_an_unexpected_bill_is_refused(wheel):
    before = wheel.read_bytes()
    with pytest.raises(Refused, match=r"has the bills .*redlock-python\.cyclonedx\.json, only .*redlock-cli"):
        sbom.rewrite(wheel, "redlock-cli", HOST)
    assert wheel.read_bytes() == before
