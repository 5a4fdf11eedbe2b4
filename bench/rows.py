"""Shared by tables and plots: the rows of results/results.json, and how figures are written."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from run import OURS, is_floor, is_ours

LANGUAGES = tuple(OURS)

Row = dict[str, Any]


def ours(row: Row) -> bool:
    return is_ours(row["language"], row["library"])


def kind(row: Row) -> str:
    return "floor" if is_floor(row["library"]) else "ours" if ours(row) else "peer"


def who(row: Row) -> tuple[str, str]:
    return row["language"], row["library"]


def name(row: Row) -> str:
    return f"**{row['library']}**" if ours(row) else row["library"]


def by_language(rows: Iterable[Row], order: Callable[[Row], Any] = lambda row: 0) -> list[Row]:
    return sorted(rows, key=lambda row: (LANGUAGES.index(row["language"]), order(row)))


def mid(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def together(rows: list[Row]) -> list[Row]:
    """Merge the rounds of a library into one row, with a list for each figure."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault((who(row), row["nodes"], row["processes"]), []).append(row)
    figures = ("p50", "p99", "worst_wait", "fairness", "calls", "client", "server")
    return [
        {
            **group[0],
            **{figure: [row[figure] for row in group if row[figure] is not None] for figure in figures},
            "overlaps": sum(row["overlaps"] for row in group),
            "failures": sum(row["failures"] for row in group),
        }
        for group in groups.values()
    ]


def comparable(one: Row, other: Row) -> bool:
    """Compare sync with sync, asyncio with asyncio, blocking with blocking."""
    apart = {"Python": "asyncio", "Rust": "blocking"}.get(one["language"], "")
    return one["language"] == other["language"] and (apart in one["library"]) == (apart in other["library"])


def number(value: float | None, form: str = ".2f") -> str:
    return "-" if value is None else f"{value:,{form}}".replace(",", " ")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: list[float], form: str = ".2f") -> str:
    if not values:
        return "-"
    return f"{number(min(values), form)} - **{number(mid(values), form)}** - {number(max(values), form)}"


def times(values: Iterable[float], scale: float) -> list[float]:
    return [value * scale for value in values]


def µs(values: list[float], form: str = ".1f") -> str:
    return number(mid(times(values, 1e6)), form)


def ratios(one: list[float], other: list[float]) -> list[float]:
    """Compare two rows round by round, since the turns of one round were next to each other."""
    return [a / b for a, b in zip(one, other, strict=False) if b]
