"""Where other libraries are ahead of ours: a short table for docs/performance.md, the full list for docs/results.md."""

from __future__ import annotations

from typing import Any, NamedTuple

from rows import Row, by_language, gain, is_ahead, known, mid, name, number, ours, prose, rivals, table, together
from tables import WORKS, sizes


class Figure(NamedTuple):
    """A figure that is compared: its key in a row, and how it is written."""

    key: str
    label: str
    scale: float
    form: str


PAIR_FIGURES = (
    Figure("client", "client CPU µs", 1e6, ".1f"),
    Figure("server", "server CPU µs", 1e6, ".1f"),
    Figure("rates", "per second", 1, ".0f"),
)
HANDOFF_FIGURES = (
    Figure("p50", "p50 ms", 1e3, ".2f"),
    Figure("p99", "p99 ms", 1e3, ".2f"),
    Figure("worst_wait", "longest wait ms", 1e3, ".0f"),
    Figure("fairness", "slowest/fastest", 1, ".2f"),
    Figure("calls", "calls a grant", 1, ".1f"),
    Figure("client", "client CPU µs a grant", 1e6, ".0f"),
    Figure("server", "server CPU µs a grant", 1e6, ".0f"),
)
FIVE = "one caller, 5 nodes"
# What docs/performance.md shows of it, and the figure that stands for speed there.
HEADLINES = {WORKS["100 independent"]: "rates", WORKS["sequential"]: "rates", FIVE: "rates", sizes(4, 1): "p50"}


def uncontended(results: dict[str, Any]) -> dict[str, list[Row]]:
    """Return the rows of each work without contention in which libraries are compared."""
    works = {WORKS.get(work, work): rows for work, rows in results.get("pairs", {}).items()}
    return {**works, FIVE: results.get("quorum", {}).get("5", [])}


def contested(results: dict[str, Any]) -> dict[str, list[Row]]:
    """Return the rows of each number of processes and nodes."""
    works: dict[str, list[Row]] = {}
    for row in together(results.get("handoff", [])):
        works.setdefault(sizes(row["processes"], row["nodes"]), []).append(row)
    return works


def every(results: dict[str, Any]) -> list[tuple[str, list[Row], tuple[Figure, ...]]]:
    return [
        *((work, rows, PAIR_FIGURES) for work, rows in uncontended(results).items()),
        *((work, rows, HANDOFF_FIGURES) for work, rows in contested(results).items()),
    ]


def best_ahead(one: Row, rows: list[Row], figure: str) -> Row | None:
    """Return the library that is furthest ahead of this one of ours."""
    able = [row for row in rivals(one, rows) if is_ahead(row, one, figure)]
    return max(able, key=lambda row: gain(row, one, figure), default=None)


def short(results: dict[str, Any]) -> str:
    """Return a table of the headlines: a library in a cell is ahead, by that factor."""

    def cell(one: Row, rows: list[Row], figure: str) -> str:
        peer = best_ahead(one, rows, figure)
        return f"{peer['library']} {number(gain(peer, one, figure))}" if peer else ""

    lines = []
    for work, rows, _ in every(results):
        if work in HEADLINES:
            for one in by_language(filter(ours, rows), lambda row: row["library"]):
                cells = [cell(one, rows, figure) for figure in ("client", "server", HEADLINES[work], "fairness")]
                if any(cells):
                    lines.append([work, name(one), *cells])
    if not lines:
        return prose("No other library is ahead in any of these.", counted(results))
    head = ["work", "ours", "client CPU", "server CPU", "speed", "fairness"]
    return table(head, lines) + "\n\n" + prose(counted(results))


def counted(results: dict[str, Any]) -> str:
    """Count the comparisons of one figure of one of our libraries in one work."""
    compared, behind = 0, 0
    for _, rows, figures in every(results):
        for one in filter(ours, rows):
            for figure in figures:
                if known(one.get(figure.key)) and rivals(one, rows):
                    compared += 1
                    behind += best_ahead(one, rows, figure.key) is not None
    return (
        f"With all works, forms and figures, some library is ahead of ours in {number(behind, '.0f')} of "
        f"{number(compared, '.0f')} comparisons; [the list](results.md#where-others-are-ahead) has every one."
    )


def full(works: dict[str, list[Row]], figures: tuple[Figure, ...]) -> str:
    """List every library that is ahead of ours, with both figures."""
    lines = []
    for work, rows in works.items():
        for one in by_language(filter(ours, rows), lambda row: row["library"]):
            for figure in figures:
                for peer in rivals(one, rows):
                    if is_ahead(peer, one, figure.key):
                        values = [number(mid(row[figure.key]) * figure.scale, figure.form) for row in (one, peer)]
                        lines.append([work, name(one), figure.label, values[0], peer["library"], values[1]])
    return table(["work", "ours", "figure", "our figure", "ahead", "its figure"], lines) or "Nobody."
