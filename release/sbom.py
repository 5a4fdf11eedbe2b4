"""Writes bills of materials: the parts of a package's native code, in CycloneDX format, for scanners.

    python3 -m release.sbom OUT CRATE TARGET...

The parts are those of THIRD-PARTY-LICENSES: crates with their hashes, the C code in them, Rust's standard library, and
the code that zig adds. maturin puts a bill into each wheel that names the builder's folders, the crates of every target
and crates that only build. `rewrite` replaces that bill. A bill depends neither on the machine nor on the time.
"""

from __future__ import annotations

import argparse
import base64
import copy
import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from release.parts import Part, parts
from release.refused import Refused, in_one_line
from release.targets import version

# The version that maturin writes, so that all packages have the same.
SPECIFICATION = "1.5"
LICENCES = "THIRD-PARTY-LICENSES"


def write(crates: Sequence[str], rust_target: str | Sequence[str], path: Path) -> None:
    """Write the bill of these crates of the workspace, on one or several targets, to a file."""
    path.write_text(document(crates, rust_target), encoding="utf-8", newline="\n")


def document(crates: Sequence[str], rust_target: str | Sequence[str]) -> str:
    """The bill as JSON text."""
    targets = [rust_target] if isinstance(rust_target, str) else list(rust_target)
    return json.dumps(bill(crates, targets, parts(crates, targets)), indent=1, ensure_ascii=False) + "\n"


def bill(crates: Sequence[str], targets: Sequence[str], all_parts: Sequence[Part]) -> dict[str, Any]:
    """The bill of one crate, or of a package with several."""
    subjects = [part for part in all_parts if part.name in crates and part.own]
    others = [part for part in all_parts if part not in subjects or len(subjects) > 1]
    if len(subjects) == 1:
        subject, needs = _component(subjects[0]), subjects[0].needs
    else:
        reference = f"pkg:generic/redlock@{version()}"
        subject = {"type": "library", "bom-ref": reference, "name": "redlock", "version": version(), "purl": reference}
        needs = [part.purl for part in subjects]
    depends = {subject["bom-ref"]: needs} | {part.purl: part.needs for part in others}
    metadata: dict[str, Any] = {"component": subject}
    metadata["properties"] = [{"name": "cdx:rustc:sbom:target:triple", "value": target} for target in targets]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": metadata,
        "components": [_component(part) for part in others],
        "dependencies": [
            {"ref": reference} | ({"dependsOn": sorted(set(needs))} if needs else {})
            for reference, needs in depends.items()
        ],
    }


def rewrite(wheel: Path, crates: Sequence[str], rust_target: str, licences: Path | None = None) -> None:
    """Replace maturin's bill in a wheel by this one, and add the file `licences`, if given.

    The order, dates and permissions of all other files stay.
    """
    with zipfile.ZipFile(wheel) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    record = next(entry.filename for entry, _ in entries if entry.filename.endswith(".dist-info/RECORD"))
    folder = record.rpartition("/")[0]
    bills = [entry.filename for entry, _ in entries if entry.filename.startswith(f"{folder}/sboms/")]
    own = f"{folder}/sboms/{crates[0]}.cyclonedx.json"
    if bills not in ([], [own]):
        raise Refused(f"{wheel.name}: has the bills {', '.join(bills)}, only {own} was expected")
    added = {own: document(crates, rust_target).encode()}
    if licences:
        added[f"{folder}/licenses/{LICENCES}"] = licences.read_bytes()
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


@in_one_line("release.sbom")
def main(arguments: list[str] | None = None) -> None:
    """The command line, as in the module's documentation."""
    parser = argparse.ArgumentParser(prog="python3 -m release.sbom", description="Writes a bill of materials.")
    parser.add_argument("out", type=Path)
    parser.add_argument("crate")
    parser.add_argument("target", nargs="+")
    options = parser.parse_args(arguments)
    write([options.crate], options.target, options.out)


if __name__ == "__main__":
    main()
