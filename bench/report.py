"""Turns results/results.json into tables in docs/performance.md and README.md, and into the plots in docs/plots.

Every figure in these pages, and every statement of who is ahead, is written here, from the results.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from goals import goals
from plots import plots
from rows import (
    LANGUAGES,
    Row,
    by_language,
    comparable,
    kind,
    mid,
    name,
    number,
    ours,
    ratios,
    spread,
    table,
    times,
    together,
    who,
    µs,
)
from run import RESULTS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / "performance.md", ROOT / "README.md"]


def faster(row: Row, rows: list[Row]) -> str:
    """Return how many times as many pairs a second ours do."""
    if ours(row):
        return "-"
    able = [one for one in rows if ours(one) and comparable(one, row)]
    label = (lambda one: f"{one['library']} ") if len(able) > 1 else (lambda one: "")
    return "<br>".join(label(one) + spread(ratios(one["rates"], row["rates"])) for one in able) or "-"


def both(rows: list[Row], blocks: list[Row]) -> str:
    """Show each library with kept lock objects and in blocks, sorted by the CPU time of the client."""
    block = {who(row): row for row in blocks}
    lines = []
    for row in by_language(rows, lambda row: mid(row["client"])):
        forms = [row, block[who(row)]]
        costs = [" / ".join(µs(form[of]) for form in forms) for of in ("client", "server")]
        rates = " / ".join(number(mid(form["rates"]), ".0f") for form in forms)
        tails = f"{row['p50'] * 1e6:.0f}, {row['p99'] * 1e6:.0f}"
        compared = [faster(row, rows), faster(block[who(row)], blocks)]
        lines.append([row["language"], name(row), *costs, rates, tails, *compared])
    head = ["", "library", "client CPU µs", "server CPU µs", "pairs/s", "p50, p99 µs"]
    return table([*head, "ours is so many times as fast", "in blocks"], lines)


def single(rows: list[Row]) -> str:
    lines = []
    for row in by_language(rows, lambda row: -mid(row["rates"])):
        costs = [µs(row["client"]), µs(row["server"])]
        tails = f"{row['p50'] * 1e6:.0f}, {row['p99'] * 1e6:.0f}"
        lines.append([row["language"], name(row), number(mid(row["rates"]), ".0f"), *costs, tails, faster(row, rows)])
    head = ["", "library", "pairs/s", "client CPU µs", "server CPU µs", "p50, p99 µs"]
    return table([*head, "ours is so many times as fast"], lines)


def handoff(rows: list[Row]) -> str:
    lines = [
        [
            row["language"],
            name(row),
            str(row["processes"]),
            spread(times(row["p50"], 1e3)),
            number(mid(times(row["p99"], 1e3))),
            number(mid(times(row["worst_wait"], 1e3)), ".0f"),
            number(mid(row["fairness"])),
            number(mid(row["calls"]), ".1f"),
            µs(row["client"], ".0f"),
            µs(row["server"], ".0f"),
            str(row["overlaps"]),
        ]
        for row in by_language(rows, lambda row: (not ours(row), row["library"], row["processes"]))
    ]
    head = ["", "library", "processes", "p50 ms", "p99 ms", "worst wait ms", "slowest/fastest", "calls a grant"]
    return table([*head, "client CPU µs a grant", "server CPU µs a grant", "overlaps"], lines)


def herd(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        memory = (row["rss_after"] - row["rss_before"]) / row["waiters"] / 1024
        shown = [number(row["waiters"], ".0f"), f"{row['seconds']:.2f}", "yes" if row["in_order"] else "no"]
        lines.append([row["language"], name(row), *shown, f"{memory:.1f}", f"{row['calls']:.1f}"])
    return table(["", "library", "waiters", "s until all had it", "in order", "KiB a waiter", "calls a grant"], lines)


def fair(results: dict[str, list[Row]]) -> str:
    """Fair locks beside plain ones: uncontended, under contention, and with a long queue."""
    plain = {row["language"]: row for row in results["pairs"] if "fair" not in row["library"]}
    alone = []
    for row in by_language(results["pairs"], lambda row: row["library"]):
        costs = [spread(times(row[of], 1e6)) for of in ("client", "server", "script")]
        slower = spread(ratios(plain[row["language"]]["rates"], row["rates"]))
        alone.append([row["language"], name(row), number(mid(row["rates"]), ".0f"), *costs, slower])
    head = ["", "library", "pairs/s", "client CPU µs", "server CPU µs", "script µs", "a pair, of the plain lock's"]
    queue = []
    for row in results["queue"]:
        shown = [number(row["waiters"], ".0f"), f"{row['seconds']:.2f}", "yes" if row["in_order"] else "no"]
        queue.append([*shown, f"{row['calls']:.1f}", f"{row['script'] * 1e6:.1f}"])
    title = ["waiters", "s until all had it", "in order", "scripts a grant", "script µs a grant"]
    contested = handoff(together(results["handoff"]))
    return "\n\n".join([table(head, alone), contested, *([table(title, queue)] if queue else [])])


def quorum(results: dict[str, list[Row]]) -> str:
    """Ours on several nodes against ours on one, round by round, and other libraries beside it."""
    lines = []
    alone = {who(row): row for row in results["1"]}
    for nodes, rows in results.items():
        for row in by_language(rows, lambda row: row["p50"]):
            if nodes == "1" and not ours(row):
                continue
            slower = spread(ratios(alone[who(row)]["rates"], row["rates"]))
            costs = [µs(row["client"], ".0f"), µs(row["server"], ".0f")]
            tails = f"{row['p50'] * 1e6:.0f}, {row['p99'] * 1e6:.0f}"
            lines.append([row["language"], name(row), nodes, tails, *costs, slower, faster(row, rows)])
    head = ["", "library", "nodes", "p50, p99 µs", "client CPU µs", "servers' CPU µs"]
    return table([*head, "times as long as on one node", "ours is so many times as fast"], lines)


def watchdog(rows: list[Row]) -> str:
    lines = [
        [
            number(row["held"], ".0f"),
            f"{row['client'] * 100:.2f} %",
            f"{row['server'] * 100:.2f} %",
            number(row["slowest"] * 1e3),
            str(row["lost"]),
            f"{row['kept']:.0f} s",
        ]
        for row in rows
    ]
    return table(
        ["held locks", "client, of a core", "server, of a core", "slowest server call ms", "lost", "kept for"], lines
    )


def names(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        memory = [number(row[of] / 2**20, ".0f") for of in ("rss_before", "rss_after")]
        counted = [number(row[of], ".0f") for of in ("names", "keys")]
        there = [f"{row['server']:.0f}", number(row["keys_left"], ".0f"), f"{row['server_left']:.1f}"]
        lines.append([row["language"], name(row), *counted, *there, *memory])
    head = ["", "library", "names", "counters on the server", "bytes each", "counters after `token_ttl`"]
    return table([*head, "bytes a name", "client MiB after a hundredth of them", "after all"], lines)


UNCONTENDED = ("100 independent", "100 independent, blocks", "sequential", "sequential, blocks", "100 at once")
# The figures to compare: key, column title, scale, format.
PAIR_FIGURES = [
    ("client", "client CPU µs", 1e6, ".1f"),
    ("server", "server CPU µs", 1e6, ".1f"),
    ("rates", "pairs/s", 1, ".0f"),
]
HANDOFF_FIGURES = [
    ("p50", "p50 ms", 1e3, ".2f"),
    ("p99", "p99 ms", 1e3, ".2f"),
    ("calls", "calls a grant", 1, ".1f"),
    ("client", "client CPU µs a grant", 1e6, ".0f"),
    ("server", "server CPU µs a grant", 1e6, ".0f"),
]


def is_better(peer: Row, one: Row, figure: str) -> bool:
    """Return whether the peer is better by more than 2 %, in the median of the rounds."""
    less, more = (peer, one) if figure != "rates" else (one, peer)
    ratio = mid(ratios(less[figure], more[figure]))
    return ratio is not None and ratio < 0.98


def ahead(works: dict[str, list[Row]], figures: list[tuple[str, str, float, str]]) -> str:
    """List where another library has a better figure than ours."""
    lines = []
    for work, rows in works.items():
        for one in by_language(filter(ours, rows)):
            peers = [row for row in rows if kind(row) == "peer" and comparable(one, row)]
            cells = []
            for figure, _, scale, form in figures:
                better = [peer for peer in peers if is_better(peer, one, figure)]
                shown = [f"{peer['library']} {number(mid(peer[figure]) * scale, form)}" for peer in better]
                cells.append(f"{number(mid(one[figure]) * scale, form)}: {', '.join(shown)}" if shown else "")
            if any(cells):
                lines.append([work, f"{one['language']} {one['library']}", *cells])
    head = ["work", "ours", *(label for _, label, _, _ in figures)]
    return table(head, lines) if lines else "Nobody, anywhere."


def contests(contended: list[Row]) -> dict[str, list[Row]]:
    """Group the rows by the number of processes and nodes."""
    groups: dict[str, list[Row]] = {}
    for row in contended:
        nodes = f", {row['nodes']} nodes" if row["nodes"] > 1 else ""
        groups.setdefault(f"{row['processes']} processes{nodes}", []).append(row)
    return groups


def speed(results: dict[str, Any]) -> str:
    """Return the table of the front page: a hundred independent callers, ours beside the best other libraries."""
    lines = []
    for language in LANGUAGES:
        cells = []
        for work in ("100 independent", "100 independent, blocks"):
            rows = [row for row in results["pairs"][work] if row["language"] == language]
            one = next(row for row in rows if ours(row))
            least = min((row for row in rows if kind(row) == "peer"), key=lambda row: mid(row["client"]))
            fastest = max((row for row in rows if kind(row) == "peer"), key=lambda row: mid(row["rates"]))
            cells += [f"**{µs(one['client'])}** / {µs(least['client'])} {least['library']}"]
            cells += [f"{number(mid(ratios(one['rates'], fastest['rates'])))} of {fastest['library']}"]
        lines.append([language, *cells])
    head = ["", "client CPU µs a pair, ours / least", "pairs a second, ours", "the same in blocks", "pairs a second"]
    return table(head, lines)


def main() -> int:
    results = json.loads((RESULTS / "results.json").read_text())
    # Pages keep the tables of suites that were not measured.
    parts = {}
    for suite, turn in (("quorum", quorum), ("herd", herd), ("fair", fair), ("watchdog", watchdog), ("names", names)):
        if results.get(suite):
            parts[suite] = turn(results[suite])
    contended, five = together(results.get("handoff", [])), results.get("quorum", {}).get("5", [])
    if contended:
        parts["ahead in hand-off"] = ahead(contests(contended), HANDOFF_FIGURES)
        parts["handoff"] = handoff([row for row in contended if row["nodes"] == 1])
        parts["handoff on five"] = handoff([row for row in contended if row["nodes"] == 5])
    if results.get("pairs"):
        pairs, machine = results["pairs"], results["machine"]
        where = "{cpus} cores, {system}, Redis {redis}; {rounds} rounds; load before {load:.1f}."
        parts |= {
            "machine": where.format(**machine),
            "speed": speed(results),
            "independent": both(pairs["100 independent"], pairs["100 independent, blocks"]),
            "sequential": both(pairs["sequential"], pairs["sequential, blocks"]),
            "ahead": ahead({**{work: pairs[work] for work in UNCONTENDED}, "5 nodes, sequential": five}, PAIR_FIGURES),
            "goals": goals(results),
            "at once": single(pairs["100 at once"]),
            "nested": single(pairs["nested"]),
        }
    placed = set()
    for page in PAGES:
        text = page.read_text()
        for part in parts:
            pattern = re.compile(rf"(<!-- {part} -->\n).*?(<!-- end -->)", re.S)
            text, found = pattern.subn(lambda match, part=part: f"{match[1]}{parts[part]}\n{match[2]}", text)
            placed |= {part} if found else set()
        page.write_text(text)
    assert placed == set(parts), f"no page has a place for {set(parts) - placed}"
    plots(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
