"""Reads the sources as text, for scripts/options and scripts/troubleshooting: no compiler and no package is needed."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A string literal of Rust. The first alternatives skip comments and characters, which may contain a quote.
LITERAL = re.compile(r"""//[^\n]*|'(?:\\.|[^'\\\n])'|r#"(?P<raw>.*?)"#|"(?P<text>(?:\\.|[^"\\])*)\"""", re.S)


class Unknown(Exception):
    """A source does not look as expected: the script must follow it."""


def read(path: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / path).read_text()


def without_tests(code: str) -> str:
    """Rust without the test module at the end of a file."""
    return re.sub(r"#\[cfg\(test\)\][^\n]*\n(#\[[^\n]*\n)*mod \w+ \{.*", "", code, flags=re.S)


def rust_files(*places: str) -> list[str]:
    """The Rust files of these folders and files, without those that are only for tests."""
    found = []
    for place in places:
        path = ROOT / place
        files = sorted(path.rglob("*.rs")) if path.is_dir() else [path]
        found += [str(file.relative_to(ROOT)) for file in files]
    unused = re.compile(r"/(testing|memory)/|/(mutant|faults)\.rs$")
    return [file for file in found if not unused.search(file)]


def unescape(literal: str) -> str:
    """The text of a Rust literal: a backslash at the end of a line joins two lines."""
    return re.sub(r'\\(["\\])', r"\1", re.sub(r"\\\n\s*", "", literal))


def literals(code: str) -> list[str]:
    """The texts of all string literals of Rust code."""
    texts = []
    for found in LITERAL.finditer(code):
        text = found["raw"] if found["raw"] is not None else found["text"]
        if text is not None:
            texts.append(unescape(text))
    return texts


def pattern(literal: str) -> str:
    """The regular expression of the messages that a format string makes."""
    parts = re.split(r"(\{\{|\}\}|\{[^{}]*\})", literal)
    fixed = {"{{": r"\{", "}}": r"\}"}
    return "".join(
        fixed.get(part) or (".*" if part.startswith("{") else re.escape(part).replace("\\ ", " ")) for part in parts
    )


def braced(code: str, start: int) -> str:
    """The text between the brace that opens at or after `start` and the one that closes it."""
    opening = code.index("{", start)
    depth = 0
    for index in range(opening, len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if depth == 0:
            return code[opening + 1 : index]
    raise Unknown(f"a brace is not closed: {code[start : start + 60]!r}")


def body(code: str, declaration: str) -> str:
    """The body of the item that begins with these words, such as `pub enum Event`."""
    found = re.search(rf"\b{re.escape(declaration)}\b", code)
    if not found:
        raise Unknown(f"there is no `{declaration}`")
    return braced(code, found.end())


def variants(code: str, name: str) -> list[str]:
    """The variants of an enum of Rust."""
    inner = re.sub(r"//[^\n]*", "", body(code, f"enum {name}"))
    inner = re.sub(r"#\[(?:[^\[\]]|\[[^\]]*\])*\]", "", inner)
    # Without the fields of the variants, only names and commas are left.
    while (shorter := re.sub(r"\{[^{}]*\}|\([^()]*\)", "", inner)) != inner:
        inner = shorter
    return re.findall(r"\b[A-Z]\w*", inner)


def words(code: str, name: str, method: str) -> dict[str, str]:
    """The word of each variant of an enum, as the `match` of a method says it."""
    found: dict[str, str] = {}
    for implementation in re.finditer(rf"impl {name} \{{", code):
        inside = braced(code, implementation.start())
        if re.search(rf"fn {method}\(", inside):
            arms = body(inside, f"fn {method}")
            found |= dict(re.findall(r"Self::(\w+)[^=]*=> \"(\w+)\"", arms))
    if not found:
        raise Unknown(f"`{name}::{method}` has no words")
    return found


def comment(text: str) -> str:
    """The text of a comment in any language, in one line."""
    lines = re.sub(r"^\s*(///|//!|/\*\*|\*/|\*)?", "", text, flags=re.M).replace("*/", " ")
    return " ".join(lines.split())
