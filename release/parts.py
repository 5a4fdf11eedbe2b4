"""Lists the third-party parts of a built library or program.

The parts are the linked crates (no build scripts, no procedural macros), the C code in some of them, Rust's standard
library, and the code that zig adds when it links. Licences and bills of materials are made from this list, for any
target on any machine. Unknown code is an error: code of unstated origin must not be published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from release.commands import Refused, run
from release.targets import ROOT, Target, load

TEXTS = Path(__file__).with_name("licences")


@dataclass(frozen=True)
class Part:
    """A piece of code with an author and a licence of its own."""

    name: str
    version: str
    licence: str
    """An SPDX expression."""
    source: str
    """The URL of its source."""
    purl: str
    """Its package URL: its name for scanners and in `needs`."""
    folder: Path | None = None
    """The folder of a crate's files on this machine."""
    texts: tuple[str, ...] = ()
    """Its licence texts in release/licences, if it brings none."""
    sha256: str | None = None
    """The sha256 of a crate in its registry."""
    about: str = ""
    own: bool = False
    """Whether it is part of this repository, under this repository's licence."""
    needs: list[str] = field(default_factory=list, compare=False)
    """The purls of the parts that it is linked with."""


class Foreign(NamedTuple):
    """C or assembler code in a crate. Its licence texts are among the crate's."""

    name: str
    licence: str
    repository: str
    """OWNER/NAME on GitHub."""
    version: tuple[str, str] | None = None
    """A file of the crate, and a pattern whose groups are the numbers of the version. Upstream's tag is v and these."""


MIMALLOC = ("c_src/mimalloc/v2/include/mimalloc.h", r"define MI_MALLOC_VERSION (\d+)(\d\d)(\d\d)\s")
# Every crate with such code.
FOREIGN = {
    "libmimalloc-sys": [Foreign("mimalloc", "MIT", "microsoft/mimalloc", MIMALLOC)],
    "ring": [
        Foreign("boringssl", "Apache-2.0 AND ISC", "google/boringssl"),
        Foreign("fiat-crypto", "Apache-2.0", "mit-plv/fiat-crypto"),
    ],
    "signal-hook": [],  # its own authors' code, for a feature that is off
    "winapi-x86_64-pc-windows-gnu": [],  # import libraries, without code
}
CODE = {".a", ".asm", ".c", ".cc", ".cpp", ".lib", ".o", ".s", ".S"}

# Crates that are not linked but whose text is in a package: uniffi_bindgen generates Kotlin code from templates.
WRITTEN_BY = {"redlock-kotlin": ["uniffi_bindgen"]}

# The crates in Rust's standard library, by the file names of its libraries. rust-std.txt has a line for each.
STD = {
    *("addr2line", "adler2", "cfg_if", "compiler_builtins", "gimli", "hashbrown", "libc", "memchr", "miniz_oxide"),
    *("object", "rustc_demangle", "windows_link", "windows_sys", "windows_targets"),
}
STD_ITSELF = {"alloc", "core", "panic_abort", "panic_unwind", "std", "std_detect", "unwind"}
STD_NOT_LINKED = {"getopts", "proc_macro", "profiler_builtins", "rustc_literal_escaper", "sysroot", "test"}

# This crate only selects features of dependencies. Neither it nor a dependency that only it needs is linked.
WITHOUT_CODE = "redlock-features"


def parts(crates: Sequence[str], targets: Sequence[str]) -> list[Part]:
    """All parts of these crates of the workspace on all of these targets, sorted by name and version."""
    found: dict[str, Part] = {}
    for rust in targets:
        for part in _of_target(crates, load().target(rust)):
            known = found.setdefault(part.purl, part)
            known.needs[:] = sorted({*known.needs, *part.needs})
    return sorted(found.values(), key=lambda part: (part.name.lower(), part.version))


def _of_target(crates: Sequence[str], target: Target) -> list[Part]:
    # The names and versions of the linked crates, with the features that only these crates need.
    chosen = [argument for crate in crates for argument in ("--package", crate)]
    options = ["--edges=normal,no-proc-macro", "--prune", WITHOUT_CODE, "--prefix=none", "--format={p}"]
    tree = _cargo("tree", *chosen, *options, "--target", target.rust)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    metadata = json.loads(_cargo("metadata", "--format-version=1", "--filter-platform", target.rust))
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    written = {name for crate in crates for name in WRITTEN_BY.get(crate, [])}
    hashes = _hashes()
    found = {
        package["id"]: _crate(package, hashes)
        for package in metadata["packages"]
        if (package["name"], f"v{package['version']}") in linked or package["name"] in written
    }
    result, shared = list(found.values()), _shared(crates, target)
    for id, part in found.items():
        for dependency in nodes[id]["deps"]:
            if dependency["pkg"] in found and any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                part.needs.append(found[dependency["pkg"]].purl)
        foreign = _foreign(part)
        part.needs.extend(inner.purl for inner in foreign)
        result.extend(foreign)
        if part.name in crates:
            part.needs.extend(other.purl for other in shared)
            part.needs.extend(other.purl for other in found.values() if other.name in WRITTEN_BY.get(part.name, []))
    return [*result, *shared]


def _crate(package: dict[str, Any], hashes: dict[tuple[str, str], str]) -> Part:
    name, version = package["name"], package["version"]
    if not package["license"]:
        raise Refused(f"the crate {name} {version} states no licence")
    return Part(
        name=name,
        version=version,
        licence=re.sub(r"\s*/\s*", " OR ", package["license"]),
        source=f"https://crates.io/crates/{name}/{version}" if package["source"] else package["repository"] or "",
        purl=f"pkg:cargo/{name}@{version}",
        folder=Path(package["manifest_path"]).parent,
        sha256=hashes.get((name, version)),
        about=" ".join((package["description"] or "").split()),
        own=package["source"] is None,
    )


def _foreign(part: Part) -> list[Part]:
    """The code in other languages in a crate. Raises Refused if FOREIGN does not list it."""
    assert part.folder is not None
    entries = FOREIGN.get(part.name, [])
    if part.name not in FOREIGN and not part.own and (code := next(_code(part.folder), None)):
        raise Refused(f"the crate {part.name} brings {code}: release/parts.py must say whose code it is")
    result = []
    for entry in entries:
        version, purl = "", f"pkg:github/{entry.repository}"
        if entry.version:
            file, pattern = entry.version
            match = re.search(pattern, (part.folder / file).read_text(encoding="utf-8"))
            if not match:
                raise Refused(f"the crate {part.name} has no version of {entry.name} in {file}")
            version = ".".join(str(int(number)) for number in match.groups())
            purl += f"@v{version}"
        source, about = f"https://github.com/{entry.repository}", f"In the crate {part.name}"
        result.append(Part(entry.name, version, entry.licence, source, purl, about=about))
    return result


def _code(folder: Path) -> Iterator[Path]:
    # Empty files do not count: compilers leave them behind when a build script probes their features.
    code = (file for file in sorted(folder.rglob("*")) if file.suffix in CODE and file.stat().st_size)
    return (file.relative_to(folder) for file in code)


def _shared(crates: Sequence[str], target: Target) -> list[Part]:
    """The parts that the compiler and the linker add.

    A few functions of glibc are linked statically (`stat`, which glibc before 2.33 does not export). Their files permit
    redistribution without any restriction, and so do musl's start files of a library. No code of zig itself is linked.
    """
    compiler = re.search(r"release: (\S+)", _run("rustc", "-vV"))
    assert compiler is not None
    if unknown := _std_libraries() - STD - STD_ITSELF - STD_NOT_LINKED:
        raise Refused(f"Rust {compiler[1]} has libraries that rust-std.txt does not list: {', '.join(sorted(unknown))}")
    std = Part(
        name="rust-std",
        version=compiler[1],
        licence="MIT AND Apache-2.0 WITH LLVM-exception AND Unicode-3.0",
        source=f"https://github.com/rust-lang/rust/tree/{compiler[1]}/library",
        purl=f"pkg:github/rust-lang/rust@{compiler[1]}#library",
        texts=("rust-std.txt", "llvm.txt", "unicode.txt"),
        about="Rust's standard library",
    )
    unwinder = ("libunwind", "LLVM's unwinder", "Apache-2.0 WITH LLVM-exception", "llvm.txt")
    zig = []  # the system's own linker adds nothing
    if target.links_on_linux:
        zig.append(unwinder)
    if target.musl and load().program.crate in crates:
        zig.append(("libc/musl", "The C library of static programs", "MIT", "musl.txt"))
    if target.system == "windows" and zig:
        zig.append(("libc/mingw", "The start of every library for Windows", "ZPL-2.1", "mingw-w64.txt"))
    return [std, *(_of_zig(*entry) for entry in zig)]


def _of_zig(folder: str, about: str, licence: str, text: str) -> Part:
    """Code that zig links, in the version that is pinned for releases."""
    pinned = (ROOT / "release" / "requirements.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^ziglang==([\w.]+)", pinned, re.MULTILINE)
    return Part(
        name=folder.rpartition("/")[2],
        version=f"zig-{version}",
        licence=licence,
        source=f"https://pypi.org/project/ziglang/{version}/",
        purl=f"pkg:pypi/ziglang@{version}#ziglang/lib/{folder}",
        texts=(text,),
        about=about,
    )


def _std_libraries() -> set[str]:
    """The crates in this compiler's standard library."""
    folder = Path(_run("rustc", "--print", "sysroot")) / "lib" / "rustlib"
    files = {file.name for file in folder.glob("*/lib/*.rlib")}
    names = {re.sub(r"^lib(.*)-[0-9a-f]+\.rlib$", r"\1", file) for file in files}
    return {name for name in names if not name.startswith("rustc_std_workspace_")}


def _hashes() -> dict[tuple[str, str], str]:
    lock = (ROOT / "Cargo.lock").read_text(encoding="utf-8")
    entry = r'^name = "(.+)"\nversion = "(.+)"\nsource = .*\nchecksum = "([0-9a-f]{64})"$'
    return {(name, version): sha256 for name, version, sha256 in re.findall(entry, lock, re.MULTILINE)}


def _cargo(*arguments: str) -> str:
    return _run("cargo", arguments[0], "--locked", *arguments[1:])


@cache
def _run(*command: str) -> str:
    return run([*command], cwd=ROOT)
