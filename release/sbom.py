"""Writes licences and bills of materials: the parts of a package's native code, in CycloneDX format, for scanners.

The parts are those of THIRD-PARTY-LICENSES: crates with their hashes, the C code in them, Rust's standard library, and
the code that zig adds. maturin puts a bill into each wheel that names the builder's folders, the crates of every target
and crates that only build. `rewrite` replaces that bill. A bill depends neither on the machine nor on the time.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from release import licences
from release.parts import Part, parts
from release.refused import Refused

# The version that maturin writes, so that all packages have the same.
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


def rewrite(wheel: Path, crate: str, target: str) -> None:
    """Replace maturin's bill in a wheel by this one, and add the licences.

    The order, dates and permissions of all other files stay.
    """
    with zipfile.ZipFile(wheel) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    record = next(entry.filename for entry, _ in entries if entry.filename.endswith(".dist-info/RECORD"))
    folder = record.rpartition("/")[0]
    bills = [entry.filename for entry, _ in entries if entry.filename.startswith(f"{folder}/sboms/")]
    own = f"{folder}/sboms/{crate}.cyclonedx.json"
    if bills not in ([], [own]):
        raise Refused(f"{wheel.name}: has the bills {', '.join(bills)}, only {own} was expected")
    found = parts([crate], [target])
    added = {
        own: document(crate, [target], found).encode(),
        f"{folder}/licenses/{LICENCES}": licences.document(found).encode(),
    }
    metadata = f"{folder}/METADATA"
    entries = [(entry, _told(data) if entry.filename == metadata else data) for entry, data in entries]
    kept = [(entry, data) for entry, data in entries if entry.filename not in added and entry.filename != record]
    like = next(entry for entry, _ in entries if entry.filename == record)
    kept += [(_named(like, name), data) for name, data in added.items()]
    lines = [f"{entry.filename},sha256={_digest(data)},{len(data)}\n" for entry, data in kept]
    kept.append((like, "".join([*lines, f"{record},,\n"]).encode()))
    partial = wheel.with_name(f"{wheel.name}.partial")
    with zipfile.ZipFile(partial, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry, data in kept:
            archive.writestr(entry, data, compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
    partial.replace(wheel)


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


def _told(metadata: bytes) -> bytes:
    """METADATA with a License-File line for the licences, after the existing ones."""
    head, separator, body = metadata.partition(b"\n\n")
    line = f"License-File: {LICENCES}".encode()
    lines = [known for known in head.split(b"\n") if known != line]
    after = max((at for at, known in enumerate(lines) if known.startswith((b"License", b"Version:"))), default=0)
    return b"\n".join([*lines[: after + 1], line, *lines[after + 1 :]]) + separator + body


def _named(like: zipfile.ZipInfo, name: str) -> zipfile.ZipInfo:
    entry = copy.copy(like)
    entry.filename = entry.orig_filename = name
    return entry


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
