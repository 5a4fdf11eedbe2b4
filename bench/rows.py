"""Shared by tables, conclusions and plots: the rows of results/results.json, how figures compare and are written."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from run import OURS, is_floor, is_ours

LANGUAGES = tuple(OURS)

Row = dict[str, Any]

# Of these figures the larger one is better; of all others the smaller one.
HIGHER_IS_BETTER = frozenset({"rates", "fairness"})


def ours(row: Row) -> bool:
    return row["language"] in OURS and is_ours(row["language"], row["library"])


def kind(row: Row) -> str:
    return "floor" if is_floor(row["library"]) else "ours" if ours(row) else "peer"


def who(row: Row) -> tuple[str, str]:
    return row["language"], row["library"]


def name(row: Row) -> str:
    """Return the language and the library, ours in bold."""
    return f"{row['language']} " + (f"**{row['library']}**" if ours(row) else row["library"])


def by_language(rows: Iterable[Row], order: Callable[[Row], Any] = lambda row: 0) -> list[Row]:
    """Sort by language; a language that the benchmark does not know comes last."""
    place = {language: at for at, language in enumerate(LANGUAGES)}
    return sorted(rows, key=lambda row: (place.get(row["language"], len(place)), row["language"], order(row)))


def leads(rows: Iterable[Row]) -> list[Row]:
    """Return one row of ours for each language: the first in `OURS` that can do this work."""
    found = {who(row): row for row in rows}
    able = [[found[language, of] for of in OURS[language] if (language, of) in found] for language in LANGUAGES]
    return [rows[0] for rows in able if rows]


def together(rows: list[Row]) -> list[Row]:
    """Merge the rounds of a library into one row, with a list for each figure."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault((who(row), row["nodes"], row["processes"]), []).append(row)
    figures = ("p50", "p99", "worst_wait", "fairness", "calls", "client", "server")
    return [
        {
            **group[0],
            # A round without hand-offs is None, so that all lists have the same rounds at the same places.
            **{figure: [row.get(figure) for row in group] for figure in figures},
            "overlaps": sum(row["overlaps"] for row in group),
        }
        for group in groups.values()
    ]


def comparable(one: Row, other: Row) -> bool:
    """Compare sync with sync, asyncio with asyncio, blocking with blocking."""
    apart = {"Python": "asyncio", "Rust": "blocking"}.get(one["language"], "")
    return one["language"] == other["language"] and (apart in one["library"]) == (apart in other["library"])


def rivals(one: Row, rows: Iterable[Row]) -> list[Row]:
    """Return the other libraries with which this one of ours is compared."""
    return [row for row in rows if kind(row) == "peer" and comparable(one, row)]


def known(values: float | Iterable[float | None] | None) -> list[float]:
    """Return the figures of the rounds, or the only figure there is, without those that are missing."""
    if isinstance(values, (int, float)):
        return [values]
    return [value for value in values or () if value is not None]


def mid(values: float | Iterable[float | None] | None) -> float | None:
    return statistics.median(known(values)) if known(values) else None


def ratios(one: list[float], other: list[float]) -> list[float]:
    """Compare two rows round by round, since the turns of one round were next to each other."""
    if len(one) != len(other):  # rounds are missing, so it is unknown which belong together
        one, other = [mid(one)], [mid(other)]
    return [a / b for a, b in zip(one, other, strict=True) if a is not None and b]


def rounds(row: Row, figure: str) -> list[float | None]:
    value = row.get(figure)
    return value if isinstance(value, list) else [value]


def gain(one: Row, other: Row, figure: str) -> float | None:
    """Return how many times better the first row's figure is: the median of the ratios within a round."""
    more, less = (one, other) if figure in HIGHER_IS_BETTER else (other, one)
    return mid(ratios(rounds(more, figure), rounds(less, figure)))


def is_ahead(one: Row, other: Row, figure: str) -> bool:
    """Return whether the first row is better by more than 2 %, and its median, which is shown, is better as well."""
    better = gain(one, other, figure)
    figures = mid(one.get(figure)), mid(other.get(figure))
    if better is None or None in figures:
        return False
    more, less = figures if figure in HIGHER_IS_BETTER else figures[::-1]
    return better > 1.02 and more > less


def best(rows: Iterable[Row], figure: str) -> Row | None:
    """Return the row with the best median."""
    able = [row for row in rows if mid(row.get(figure)) is not None]
    pick = max if figure in HIGHER_IS_BETTER else min
    return pick(able, key=lambda row: mid(row[figure])) if able else None


def number(value: float | None, form: str = ".2f") -> str:
    if value is None:
        return "-"
    text = f"{value:,{form}}".replace(",", " ")
    return text if any(digit in text for digit in "123456789") else text.removeprefix("-")


def scaled(values: float | Iterable[float | None] | None, scale: float, form: str) -> str:
    """Write the median, in another unit."""
    middle = mid(values)
    return number(None if middle is None else middle * scale, form)


def µs(values: float | Iterable[float | None] | None, form: str = ".1f") -> str:
    return scaled(values, 1e6, form)


def ms(values: float | Iterable[float | None] | None, form: str = ".2f") -> str:
    return scaled(values, 1e3, form)


def spread(values: Iterable[float | None] | None, scale: float = 1, form: str = ".2f") -> list[str]:
    """Write the smallest, the median and the largest figure, for a cell each."""
    there = known(values)
    if not there:
        return ["-"] * 3
    return [number(of(there) * scale, form) for of in (min, statistics.median, max)]


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return the table, with columns of figures to the right; nothing without rows."""
    if not rows:
        return ""
    figures = [all(re.match(r"-?\d|-?$", row[at]) for row in rows) for at in range(len(head))]
    rule = ["---:" if right else "---" for right in figures]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *rows])


def listed(words: Iterable[str], last: str = "and") -> str:
    """Return "a, b and c"."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def prose(*sentences: str) -> str:
    """Return a paragraph of the sentences that are not empty."""
    text = " ".join(sentence for sentence in sentences if sentence)
    # No line ends between the digits of a figure, before its unit, or in the text of a link.
    text = re.sub(r"(?<=\d) (?=\S)| (?=[^\[\]]*\]\()", "\u2007", text)
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)).replace("\u2007", " ")


def page(*parts: str) -> str:
    """Return the parts that are not empty, with an empty line between two of them."""
    return "\n\n".join(part for part in parts if part)
