"""The licences of all linked parts are complete, for every package on every target."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from release import licences, parts
from release.commands import Refused
from release.parts import Part
from release.targets import ROOT, load

TARGETS = [target.rust for target in load().targets]
CRATES = ["redlock-python", "redlock-node", "redlock-kotlin", "redlock-cli"]
HOST = load().host().rust

MIT = 'Permission is hereby granted, free of charge, to any person obtaining a copy of this software and\n"it"'
ISC = "// Permission to use, copy, modify, and/or distribute this software\n// for any purpose"
APACHE = "   Apache License\n   Version 2.0, January 2004\n"


@pytest.fixture
def crate(tmp_path: Path) -> Part:
    """A crate with an empty folder."""
    return Part("tiny", "1.2.3", "MIT OR Apache-2.0", "https://somewhere", "pkg:cargo/tiny@1.2.3", folder=tmp_path)


def put(crate: Part, **files: str) -> None:
    for name, text in files.items():
        file = crate.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CRATES)
def test_every_package_has_a_text_for_every_part(name, target):
    found = parts.parts([name], [target])
    document = licences.document(found)
    names = {part.name for part in found}
    assert ("libunwind" in names) == load().target(target).links_on_linux, "zig adds it if zig links"
    assert {"redis", "tokio", "ring", "boringssl", "rust-std"} <= names
    # Libraries bring an allocator; programs use the system's.
    assert ("mimalloc" in names) == (name != "redlock-cli")
    for part in found:
        label = f"{part.name} {part.version}".strip()
        if not part.own:
            assert re.search(rf"^{re.escape(label)} .*{re.escape(part.licence)} +http", document, re.MULTILINE), label
            # Its name stands above a text. C code has none of its own: its crate's texts cover it.
            above = re.findall(rf"^(?:.*, )?{re.escape(label)}(?:,.*)?$", document, re.MULTILINE)
            assert above or (part.folder is None and not part.texts), label
    # Texts for the C code in crates, for crates without a text, and for linked parts that are not crates.
    assert "Daan Leijen" in document or name == "redlock-cli"
    assert "the fiat-crypto authors" in document
    assert "Copyright (c) 2020 LongYinan" in document or name != "redlock-node"
    assert "Mozilla Public License Version 2.0\n" in document or name != "redlock-kotlin"
    assert "The standard library of Rust" in document
    assert "LLVM Exceptions to the Apache 2.0 License" in document
    assert str(ROOT) not in document
    assert str(Path.home()) not in document
    assert not re.search(r"[\r\f]|[ \t]\n", document)
    assert len(document.encode()) < 250_000


def test_linked_crates_are_listed_and_build_tools_are_not():
    names = {part.name for part in parts.parts(["redlock-kotlin"], [HOST])}
    assert names.isdisjoint({"syn", "cc", "proc-macro2", "serde_derive", "uniffi_macros", "pyo3", "clap", "proptest"})
    # The generated Kotlin code of the jar contains its templates.
    assert "uniffi_bindgen" in names
    assert "windows-sys" not in names or "windows" in HOST


def test_several_targets_are_one_list():
    linux, windows = (
        {part.purl for part in parts.parts(["redlock-kotlin"], [target])}
        for target in ("x86_64-unknown-linux-musl", "x86_64-pc-windows-msvc")
    )
    both = parts.parts(["redlock-kotlin"], ["x86_64-unknown-linux-musl", "x86_64-pc-windows-msvc"])
    assert {part.purl for part in both} == linux | windows
    assert linux - windows
    assert windows - linux


def test_every_committed_text_is_used():
    used = {*licences.GIVEN.values()}
    for target in TARGETS:
        used |= {text for part in parts.parts(CRATES, [target]) for text in part.texts}
    assert used == {file.name for file in parts.TEXTS.iterdir()}


def test_rusts_notice_has_a_line_for_each_library():
    notice = (parts.TEXTS / "rust-std.txt").read_text(encoding="utf-8")
    for name in parts.STD:
        assert re.search(rf"^(\w+, )*{name}\b", notice, re.MULTILINE), name


def test_an_unknown_library_of_rust_is_refused(monkeypatch):
    monkeypatch.setattr(parts, "STD", parts.STD - {"gimli", "object"})
    with pytest.raises(Refused, match=r"has libraries that rust-std.txt does not list: gimli, object$"):
        parts.parts(["redlock-node"], [HOST])


def test_unknown_c_code_is_refused(monkeypatch):
    monkeypatch.setattr(parts, "FOREIGN", {"ring": parts.FOREIGN["ring"]})
    with pytest.raises(Refused, match=r"the crate libmimalloc-sys brings c_src/.*: release/parts.py must say"):
        parts.parts(["redlock-node"], [HOST])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", [{"MIT"}]),
        ("Apache-2.0 OR MIT", [{"MIT"}, {"Apache-2.0"}]),
        ("Apache-2.0 AND ISC", [{"Apache-2.0", "ISC"}]),
        ("MIT OR Apache-2.0 AND Unicode-3.0", [{"MIT"}, {"Apache-2.0", "Unicode-3.0"}]),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", [{"Apache-2.0 WITH LLVM-exception"}]),
        ("Unlicense OR MIT", [{"MIT"}]),
    ],
)
def test_reads_expressions(expression, expected):
    assert licences.choices(expression, "tiny") == [frozenset(choice) for choice in expected]


@pytest.mark.parametrize(
    "expression",
    ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "Apache-2.0 WITH Bison-exception-2.2", "(X OR MIT OR ISC) AND Y"],
)
def test_other_licences_are_refused(expression):
    with pytest.raises(Refused, match=rf"^tiny: the licence {re.escape(expression)} is not among those"):
        licences.choices(expression, "tiny")


def test_of_a_choice_the_text_of_the_preferred_licence_is_taken(crate):
    put(crate, **{"LICENSE-APACHE": APACHE, "license-mit": MIT, "COPYRIGHT": "By several."})
    assert licences.texts(crate) == ["By several.", MIT]
    (crate.folder / "license-mit").unlink()
    assert licences.texts(crate) == ["By several.", APACHE.strip("\n")]


def test_of_several_licences_that_all_hold_all_texts_are_taken(crate):
    put(crate, **{"LICENSES/Apache.txt": APACHE, "LICENSES/ISC.txt": ISC, "tests/LICENSE": "Of a test."})
    both = replace(crate, licence="Apache-2.0 AND ISC")
    assert licences.texts(both) == [APACHE.strip("\n"), ISC]
    (crate.folder / "LICENSES" / "ISC.txt").unlink()
    with pytest.raises(Refused, match=r"^the crate tiny 1\.2\.3 has no text of Apache-2\.0 AND ISC$"):
        licences.texts(both)


def test_a_crate_without_a_text_is_refused(crate):
    put(crate, LICENSE="See the website.")
    with pytest.raises(Refused, match=r"^the crate tiny 1\.2\.3 has no text of MIT OR Apache-2\.0$"):
        licences.texts(crate)


def test_a_text_that_is_given_is_needed(crate):
    napi = replace(crate, name="napi", licence="MIT")
    assert "LongYinan" in licences.texts(napi)[0]
    put(napi, LICENSE=MIT)
    with pytest.raises(Refused, match="has its text now"):
        licences.texts(napi)


def test_cargo_deny_accepts_the_same_licences():
    deny = (ROOT / "deny.toml").read_text(encoding="utf-8")
    (accepted,) = re.findall(r"^\[licenses\]\n(?:[^\[]*\n)?allow = \[([^\]]*)\]", deny, re.MULTILINE)
    assert set(re.findall(r'"([^"]+)"', accepted)) == set(licences.LICENCES)
