"""Bills of materials: what a package's native code consists of, as CycloneDX, for scanners.

The same parts as in THIRD-PARTY-LICENSES: crates with their hashes, the C code in them, Rust's standard library, what
zig adds. maturin puts a bill of its own into wheels, which names the builder's folders, every target's crates and those
that only build; `rewrite` replaces it by this one. Nothing here depends on the machine or the hour.

    python3 -m release.sbom OUT CRATE TARGET...
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

# What maturin writes, so that all packages have the same.
SPECIFICATION = "1.5"
LICENCES = "THIRD-PARTY-LICENSES"


def write(crates: Sequence[str], rust_target: str | Sequence[str], path: Path) -> None:
    """The bill of what these crates of the workspace are linked from, on a target or several."""
    path.write_text(document(crates, rust_target), encoding="utf-8", newline="\n")


def document(crates: Sequence[str], rust_target: str | Sequence[str]) -> str:
    """The file's contents."""
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
    """Give a wheel this bill in place of maturin's, and the licences of what it is linked from, if they are given.

    The order, dates and permissions of everything else stay as they are.
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
    """METADATA that names the licences as a file of the wheel, after the files that it names already."""
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
    """What the module's documentation says, on the command line."""
    parser = argparse.ArgumentParser(prog="python3 -m release.sbom", description="Writes a bill of materials.")
    parser.add_argument("out", type=Path)
    parser.add_argument("crate")
    parser.add_argument("target", nargs="+")
    options = parser.parse_args(arguments)
    write([options.crate], options.target, options.out)


if __name__ == "__main__":
    main()
