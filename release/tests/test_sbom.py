"""Bills of materials are valid, complete, and the same on every machine."""

from __future__ import annotations

import json
import re

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release import sbom
from release.parts import parts
from release.targets import ROOT, load, version

TARGETS = [target.rust for target in load().targets]
CRATES = ["redlock-python", "redlock-node", "redlock-kotlin", "redlock-cli"]


@pytest.mark.parametrize("name", CRATES)
def test_every_package_has_a_valid_bill(name):
    # One bill for all targets: a validation takes seconds.
    text = sbom.document(name, TARGETS, parts([name], TARGETS))
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
    found = sbom.bill("redlock-kotlin", TARGETS, parts(["redlock-kotlin"], TARGETS))
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
    (tokio,) = (part for part in parts(["redlock-node"], TARGETS) if part.name == "tokio")
    lock = (ROOT / "Cargo.lock").read_text()
    assert re.search(f'name = "tokio"\nversion = "{tokio.version}"\n.*\nchecksum = "{tokio.sha256}"', lock)
