"""Writes licences and bills of materials: the parts of a package's native code, in CycloneDX format, for scanners.

The parts are those of THIRD-PARTY-LICENSES: crates with their hashes, the C code in them, Rust's standard library, and
the code that zig adds. A bill depends neither on the machine nor on the time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from release import licences
from release.parts import Part, parts

SPECIFICATION = "1.5"
LICENCES, SBOM = "THIRD-PARTY-LICENSES", "sbom.cdx.json"


def write(crate: str, targets: Sequence[str], folder: Path) -> None:
    """Write the licences and the bill of a crate of the workspace, on one or several targets, into a folder."""
    found = parts([crate], targets)
    (folder / LICENCES).write_text(licences.document(found), encoding="utf-8", newline="\n")
    (folder / SBOM).write_text(document(crate, targets, found), encoding="utf-8", newline="\n")


def document(crate: str, targets: Sequence[str], all_parts: Sequence[Part]) -> str:
    """The bill of one crate, as JSON text."""
    return json.dumps(bill(crate, targets, all_parts), indent=1, ensure_ascii=False) + "\n"


def bill(crate: str, targets: Sequence[str], all_parts: Sequence[Part]) -> dict[str, Any]:
    """The bill of one crate."""
    (subject,) = (part for part in all_parts if part.name == crate)
    others = [part for part in all_parts if part is not subject]
    metadata: dict[str, Any] = {"component": _component(subject)}
    metadata["properties"] = [{"name": "cdx:rustc:sbom:target:triple", "value": target} for target in targets]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": metadata,
        "components": [_component(part) for part in others],
        "dependencies": [
            {"ref": part.purl} | ({"dependsOn": sorted(set(part.needs))} if part.needs else {})
            for part in [subject, *others]
        ],
    }


def _component(part: Part) -> dict[str, Any]:
    component: dict[str, Any] = {"type": "library", "bom-ref": part.purl, "name": part.name}
    if part.version:
        component["version"] = part.version
    if part.about:
        component["description"] = part.about
    component["scope"] = "required"
    if part.sha256:
        component["hashes"] = [{"alg": "SHA-256", "content": part.sha256}]
    component["licenses"] = [{"expression": part.licence}]
    component["purl"] = part.purl
    if part.source:
        component["externalReferences"] = [{"type": "distribution" if part.sha256 else "vcs", "url": part.source}]
    return component
