"""The text of THIRD-PARTY-LICENSES: the licences of everything that is linked into a library or program.

The texts come from the parts themselves. If a part offers a choice of licences, the first in `LICENCES` is taken. A
part that brings no text gets the one in release/licences. A licence that is not listed here is an error, and so is a
part without any text.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from release.commands import Refused
from release.parts import TEXTS, Part

# The accepted licences, the preferred ones first, each with words that occur only in its text. deny.toml accepts the
# same ones for all crates, including those that only build or test.
LICENCES = {
    "MIT": "permission is hereby granted, free of charge, to any person obtaining a copy of this software",
    "ISC": "permission to use, copy, modify, and/or distribute this software for any purpose",
    "BSD-3-Clause": "redistributions in binary form must reproduce the above copyright",
    "BSL-1.0": "boost software license - version 1.0",
    "Zlib": "altered source versions must be plainly marked as such",
    "Unicode-3.0": "unicode license v3",
    "Apache-2.0": "apache license version 2.0, january 2004",
    "Apache-2.0 WITH LLVM-exception": "llvm exceptions to the apache 2.0 license",
    "MPL-2.0": "mozilla public license version 2.0",
}
# For code that zig adds on a target that is not published.
LICENCES_OF_TOOLS = {"ZPL-2.1"}
# Alternatives that are never chosen. They are recognised so that their texts do not count as notices.
UNUSED = {
    "Unlicense": "this is free and unencumbered software released into the public domain",
}
# Crates that bring no text. These files are from their repositories.
GIVEN = {
    **dict.fromkeys(["napi", "napi-sys"], "napi.txt"),
    "winapi-x86_64-pc-windows-gnu": "winapi.txt",
    **dict.fromkeys(["uniffi", "uniffi_bindgen", "uniffi_core", "uniffi_pipeline"], "mpl-2.0.txt"),
}
NAMED = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)
NO_TEXT = {".rs", ".c", ".h", ".py", ".html", ".toml", ".json"}
APART = {"tests", "test", "benches", "examples", "target", "docs", "doc"}
LINE = "=" * 80


def document(all_parts: Sequence[Part]) -> str:
    """The contents of THIRD-PARTY-LICENSES."""
    foreign = [part for part in all_parts if not part.own]
    width = max(len(_label(part)) for part in foreign)
    broad = max(len(part.licence) for part in foreign)
    rows = [f"{_label(part):{width}}  {part.licence:{broad}}  {part.source}" for part in foreign]
    groups: dict[str, tuple[str, list[str]]] = {}
    for part in foreign:
        for text in texts(part):
            _, labels = groups.setdefault(" ".join(text.split()), (text, []))
            if _label(part) not in labels:
                labels.append(_label(part))
    sections = [f"{LINE}\n{_wrapped(labels)}\n{LINE}\n\n{text}\n" for text, labels in groups.values()]
    return "\n".join([HEAD, *rows, "", *sections])


HEAD = """\
THIRD-PARTY LICENSES

The native code in this package contains the parts listed here, each under its own
licence. They are unchanged; the source of each, that of parts under the Mozilla
Public License included, is at the address beside it. The texts follow the list;
where a licence offers a choice, the text is that of the one that was chosen.
"""


def texts(part: Part) -> list[str]:
    """The licence texts and notices of a part, without duplicates."""
    found = choices(part.licence, part.name)
    if part.texts:
        return [_read(TEXTS / name) for name in part.texts]
    if part.folder is None:
        return []  # code within a crate; the texts are the crate's
    files = list(_files(part.folder))
    top = [file for file, depth in files if depth == 0]
    known = {file: recognised(_read(file)) for file, _ in files}
    available = set().union(*(known[file] for file in top)) if top else set()
    chosen = next((choice for choice in found if choice <= available), None)
    if part.name in GIVEN:
        if chosen:
            raise Refused(f"the crate {_label(part)} has its text now: remove it from GIVEN in release/licences.py")
        return [_read(TEXTS / GIVEN[part.name])]
    if not chosen:
        raise Refused(f"the crate {_label(part)} has no text of {part.licence}")
    result = []
    for _, group in itertools.groupby(files, key=lambda entry: entry[0].parent):
        folder = [file for file, _ in group]
        fitting = [file for file in folder if known[file] & chosen]
        result += [file for file in folder if not fitting or file in fitting or not known[file]]
    return list({" ".join(text.split()): text for text in map(_read, result)}.values())


def choices(expression: str, of: str) -> list[frozenset[str]]:
    """The sets of accepted licences that satisfy an SPDX expression, the preferred one first. AND binds before OR.
    Raises Refused if there is none, or if the expression has parentheses, which this does not read: no part has them.
    """
    accepted = [*LICENCES, *LICENCES_OF_TOOLS]
    alternatives = {frozenset(way.split(" AND ")) for way in expression.split(" OR ")}
    found = [way for way in alternatives if way <= set(accepted)]
    if not found or "(" in expression:
        raise Refused(f"{of}: the licence {expression} is not among those that release/licences.py accepts")
    return sorted(found, key=lambda way: sorted((accepted.index(licence) for licence in way), reverse=True))


def recognised(text: str) -> set[str]:
    """The licences whose words occur in a text."""
    words = _words(text)
    found = {licence for licence, phrase in {**LICENCES, **UNUSED}.items() if _words(phrase) in words}
    if "Apache-2.0 WITH LLVM-exception" in found:
        found.discard("Apache-2.0")
    return found


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """The files with licences, each with its depth. A folder named LICENSES adds no depth."""
    for file in sorted(folder.rglob("*")):
        *above, name = file.relative_to(folder).parts
        if file.is_file() and file.suffix.lower() not in NO_TEXT and not APART & {*above}:
            if [part.upper() for part in above] in (["LICENSES"], ["LICENCES"]):
                yield file, 0
            elif NAMED.match(name):
                yield file, len(above)


def _read(file: Path) -> str:
    """A file's text with uniform line ends and without trailing blanks, outer empty lines and form feeds."""
    text = file.read_text(encoding="utf-8-sig")
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n").replace("\f", "")


def _words(text: str) -> str:
    """The words of a text in lower case, so that line breaks and comment signs make no difference."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower())


def _label(part: Part) -> str:
    return f"{part.name} {part.version}".strip()


def _wrapped(labels: Sequence[str]) -> str:
    # A label stays on one line.
    text = ", ".join(label.replace(" ", "\0") for label in labels)
    return textwrap.fill(f"{text},", len(LINE), break_on_hyphens=False).replace("\0", " ")[:-1]
