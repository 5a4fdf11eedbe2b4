"""Turns results/results.json into the tables of docs/performance.md and the plots in docs/plots: report.py."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from run import OURS, RESULTS, is_floor

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PLOTS = HERE.parent / "docs" / "plots"
LANGUAGES = tuple(OURS)
THEMES = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1f2328",
        "grid": "#d0d7de",
        "ours": "#0969da",
        "floor": "#8c959f",
        "peer": "#bf8700",
    },
    "dark": {
        "paper": "#0d1117",
        "ink": "#e6edf3",
        "grid": "#30363d",
        "ours": "#58a6ff",
        "floor": "#6e7681",
        "peer": "#d29922",
    },
}

Row = dict[str, Any]


def is_ours(row: Row) -> bool:
    return row["library"] in OURS[row["language"]]


def kind(row: Row) -> str:
    return "floor" if is_floor(row["library"]) else "ours" if is_ours(row) else "peer"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: list[float], form: str = ".2f") -> str:
    return f"{min(values):{form}} - **{statistics.median(values):{form}}** - {max(values):{form}}"


def ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def µs(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


def comparable(ours: Row, other: Row) -> bool:
    """Sync with sync, asyncio with asyncio, blocking with blocking."""
    if ours["language"] != other["language"]:
        return False
    if ours["language"] == "Python":
        return ("asyncio" in ours["library"]) == ("asyncio" in other["library"])
    if ours["language"] == "Rust":
        return ("blocking" in ours["library"]) == ("blocking" in other["library"])
    return True


def pairs(rows: list[Row]) -> str:
    """Each library's pairs a second, and how many times faster ours is in the same round."""
    lines = []
    for row in sorted(rows, key=lambda row: (LANGUAGES.index(row["language"]), -statistics.median(row["rates"]))):
        ratios = []
        for ours in rows:
            if is_ours(ours) and ours is not row and comparable(ours, row) and not is_ours(row):
                name = f"{ours['library']} " if row["language"] == "JVM" else ""
                ratios.append(name + spread([a / b for a, b in zip(ours["rates"], row["rates"], strict=True)]))
        name = f"**{row['library']}**" if is_ours(row) else row["library"]
        rate = f"{statistics.median(row['rates']):,.0f}".replace(",", " ")
        cost = [f"{statistics.median(row[of]) * 1e6:.1f}" for of in ("client", "server")]
        lines.append([row["language"], name, rate, *cost, µs(row["p50"]), µs(row["p99"]), "<br>".join(ratios) or "-"])
    head = ["", "library", "pairs/s", "client CPU µs", "server CPU µs", "p50 µs", "p99 µs"]
    return table([*head, "ours is so many times as fast"], lines)


def handoff(rows: list[Row]) -> str:
    lines = []
    grouped: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        grouped.setdefault((row["language"], row["library"], row["processes"]), []).append(row)
    for (language, library, processes), group in grouped.items():

        def mid(field: str, group: list[Row] = group) -> float | None:
            values = [row[field] for row in group if row[field] is not None]
            return statistics.median(values) if values else None

        fair, calls = mid("fairness"), mid("calls")
        name = f"**{library}**" if is_ours(group[0]) else library
        lines.append(
            [
                language,
                name,
                str(processes),
                ms(mid("p50")),
                ms(mid("p99")),
                ms(mid("worst_wait")),
                f"{fair:.2f}" if fair is not None else "-",
                f"{calls:.1f}" if calls is not None else "-",
                str(sum(row["overlaps"] for row in group)),
            ]
        )
    head = [
        "",
        "library",
        "processes",
        "p50 ms",
        "p99 ms",
        "worst wait ms",
        "slowest/fastest",
        "calls a grant",
        "overlaps",
    ]
    return table(head, lines)


def herd(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        name = f"**{row['library']}**" if is_ours(row) else row["library"]
        memory = (row["rss_after"] - row["rss_before"]) / row["waiters"] / 1024
        order = "yes" if row["in_order"] else "no"
        lines.append(
            [
                row["language"],
                name,
                str(row["waiters"]),
                f"{row['seconds']:.2f}",
                order,
                f"{memory:.1f}",
                f"{row['calls']:.1f}",
            ]
        )
    return table(["", "library", "waiters", "s until all had it", "in order", "KiB a waiter", "calls a grant"], lines)


def quorum(results: dict[str, list[Row]]) -> str:
    """Ours on several nodes against ours on one, round by round, and peers beside it."""
    lines = []
    alone = {(row["language"], row["library"]): row for row in results["1"]}
    for nodes, rows in results.items():
        for row in rows:
            if nodes == "1" and not is_ours(row):
                continue
            name = f"**{row['library']}**" if is_ours(row) else row["library"]
            single = alone[row["language"], row["library"]]
            slower = [one / many for one, many in zip(single["rates"], row["rates"], strict=True)]
            lines.append([row["language"], name, nodes, µs(row["p50"]), µs(row["p99"]), spread(slower)])
    return table(["", "library", "nodes", "p50 µs", "p99 µs", "times as long as on one node"], lines)


def watchdog(rows: list[Row]) -> str:
    lines = [
        [
            f"{row['held']:,}".replace(",", " "),
            f"{row['client'] * 100:.1f} %",
            f"{row['server'] * 100:.1f} %",
            ms(row["slowest"]),
            str(row["lost"]),
            f"{row['kept']:.0f} s",
        ]
        for row in rows
    ]
    return table(
        ["held locks", "client, of a core", "server, of a core", "slowest server call ms", "lost", "kept for"], lines
    )


def goals(results: dict[str, Any]) -> str:
    """What the design set out for, and what came of it."""
    lines: list[list[str]] = []

    def against(what: str, kind: str, language: str, ours: str, other: str | None, goal: float) -> None:
        """Compare round by round; without `other` with the fastest peer."""
        rows = {row["library"]: row for row in results["pairs"][kind] if row["language"] == language}
        peers = [name for name in rows if name not in OURS[language] and not is_floor(name)]
        other = other or max(peers, key=lambda name: statistics.median(rows[name]["rates"]))
        ratios = [a / b for a, b in zip(rows[ours]["rates"], rows[other]["rates"], strict=True)]
        lines.append([what, f"{ours} / {other}", f"≥ {goal}", spread(ratios)])

    if results.get("pairs"):
        against("uncontended, Rust", "sequential", "Rust", "redlock-blocking", "bare-blocking", 0.9)
        against("", "sequential", "Rust", "redlock", "bare", 0.9)
        against("uncontended, Python", "sequential", "Python", "redlock-sync", "redis-py-sync", 2.2)
        against("", "sequential", "Python", "redlock-asyncio", "redis-py-asyncio", 1.8)
        against("a hundred at once, Python", "100 at once", "Python", "redlock-asyncio", "redis-py-asyncio", 4)
        against("uncontended, Node", "sequential", "Node", "redlock-core", None, 1.0)
        against("a hundred at once, Node", "100 at once", "Node", "redlock-core", None, 1.2)
        against("uncontended, JVM", "sequential", "JVM", "redlock", "redisson-rlock", 1.0)
        against("", "sequential", "JVM", "redlock-java", "redisson-rlock", 1.0)
        for row in results["pairs"]["nested"]:
            if row["library"].startswith("redlock-") and row["language"] == "Python":
                goal = "≥ 500 000" if row["library"] == "redlock-sync" else ""
                lines.append(["nested, pairs/s", row["library"], goal, spread(row["rates"], ",.0f").replace(",", " ")])
    four = [row for row in results.get("handoff", []) if row["processes"] == 4 and is_ours(row)]
    for field, what, goal, scale in (
        ("p50", "hand-off between 4 processes, p50 ms", "≤ 0.5", 1e3),
        ("p99", "p99 ms", "≤ 2", 1e3),
        ("fairness", "slowest / fastest", "≥ 0.9", 1),
        ("calls", "script calls a grant", "≤ 6", 1),
    ):
        if four:
            libraries = ", ".join(sorted({row["language"] for row in four}))
            lines.append([what, libraries, goal, spread([row[field] * scale for row in four])])
    for row in results.get("herd", []):
        if row["waiters"] == 10_000 and is_ours(row):
            memory = (row["rss_after"] - row["rss_before"]) / row["waiters"] / 1024
            name = f"{row['language']} {row['library']}"
            order = "in order" if row["in_order"] else "not in order"
            lines.append(
                [
                    "10 000 waiters: calls a grant, KiB a waiter with the host's own",
                    name,
                    "≤ 3, ≤ 2",
                    f"{row['calls']:.1f}, {memory:.1f}, {order}",
                ]
            )
    if results.get("quorum"):
        alone = {(row["language"], row["library"]): row for row in results["quorum"]["1"]}
        whole = {(row["language"], row["library"]): row for row in results["quorum"]["5"]}
        for row in results["quorum"]["5"] + results["quorum"]["5, one frozen"]:
            key = (row["language"], row["library"])
            if is_ours(row) and row["language"] == "Rust":
                frozen = row is not whole[key]
                base = whole[key] if frozen else alone[key]
                ratios = [one / many for one, many in zip(base["rates"], row["rates"], strict=True)]
                what = "one of five frozen, against all well" if frozen else "quorum of 5 against one node"
                lines.append([what, row["library"], "1" if frozen else "≤ 1.5", spread(ratios)])
    for row in results.get("watchdog", []):
        if row["held"] == 100_000:
            shown = f"{row['client'] * 100:.1f} % of a core, {row['lost']} lost"
            lines.append(["100 000 held locks, 5 min", "Rust", "≤ 15 %, 0", shown])
    return table(["work", "what against what", "goal", "measured"], lines)


def plot(name: str, draw: Any) -> None:
    """Draw once for each theme."""
    for theme, colors in THEMES.items():
        style = {
            "figure.facecolor": colors["paper"],
            "axes.facecolor": colors["paper"],
            "axes.edgecolor": colors["grid"],
            "axes.labelcolor": colors["ink"],
            "text.color": colors["ink"],
            "xtick.color": colors["ink"],
            "ytick.color": colors["ink"],
            "grid.color": colors["grid"],
            "svg.hashsalt": "redlock",
            "font.size": 9,
        }
        with mpl.rc_context(style):
            figure = draw(colors)
            figure.tight_layout()
            figure.savefig(PLOTS / f"{name}-{theme}.svg", metadata={"Date": None})
            plt.close(figure)


def bars(rows: list[Row], value: Any, label: str, logarithmic: bool = False) -> Any:
    """Draw a bar for each library, by language."""

    def draw(colors: dict[str, str]) -> Any:
        ordered = sorted(rows, key=lambda row: (-LANGUAGES.index(row["language"]), value(row)))
        figure, axes = plt.subplots(figsize=(7, 0.24 * len(ordered) + 0.8))
        names = [f"{row['language']} · {row['library']}" for row in ordered]
        axes.barh(names, [value(row) for row in ordered], color=[colors[kind(row)] for row in ordered])
        if logarithmic:
            axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    return draw


def series(rows: list[Row], x: str, y: str, scale: float = 1) -> dict[str, list[tuple[float, float]]]:
    """Collect a line of points for each library that has more than one."""
    seen: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row[y]:
            seen.setdefault(f"{row['language']} {row['library']}", {}).setdefault(row[x], []).append(row[y] * scale)
    lines = {name: [(at, statistics.median(values)) for at, values in points.items()] for name, points in seen.items()}
    return {name: points for name, points in lines.items() if len(points) > 1}


def growth(lines: dict[str, list[tuple[float, float]]], x: str, y: str) -> Any:
    """Draw lines that show whether something bends as it grows."""

    def draw(colors: dict[str, str]) -> Any:
        figure, axes = plt.subplots(figsize=(7, 3.2))
        ours = {f"{language} {library}" for language, libraries in OURS.items() for library in libraries}
        styles = dict(zip(LANGUAGES, ["-", "--", ":", "-."], strict=True))
        for (name, points), marker in zip(lines.items(), itertools.cycle("os^Dv*P")):
            color = colors["ours"] if name in ours or "(redlock)" in name else colors["peer"]
            style = styles.get(name.split()[0], "-")
            axes.plot(*zip(*sorted(points), strict=True), style, marker=marker, markersize=4, color=color, label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.5)
        axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    return draw


def main() -> int:
    results = json.loads((RESULTS / "results.json").read_text())
    PLOTS.mkdir(exist_ok=True)
    parts: dict[str, str] = {}
    for name, rows in results.get("pairs", {}).items():
        parts[name] = pairs(rows)
        if rows:
            plot(
                f"pairs-{name.replace(' ', '-')}",
                bars(rows, lambda row: statistics.median(row["rates"]), "pairs a second"),
            )
    for name, turn in (("quorum", quorum), ("handoff", handoff), ("herd", herd), ("watchdog", watchdog)):
        if results.get(name):
            parts[name] = turn(results[name])
    if results.get("handoff"):
        four = {(r["language"], r["library"]): r for r in results["handoff"] if r["processes"] == 4 and r["p50"]}
        label = "time from release to the next process's grant, median, ms (4 processes)"
        plot("handoff", bars(list(four.values()), lambda row: row["p50"] * 1e3, label, logarithmic=True))
        plot(
            "growth-handoff", growth(series(results["handoff"], "processes", "p50", 1e3), "processes", "ms to the next")
        )
    if results.get("herd"):
        plot("growth-herd", growth(series(results["herd"], "waiters", "seconds"), "waiters", "s until all had it"))
    if results.get("quorum"):
        rows = [
            {**row, "nodes": int(nodes)} for nodes, of in results["quorum"].items() if nodes.isdigit() for row in of
        ]
        plot("growth-quorum", growth(series(rows, "nodes", "p50", 1e6), "nodes", "µs a pair"))
    if results.get("growth"):
        rows = [
            {**row, "at_once": int(size), "rate": statistics.median(row["rates"])}
            for size, of in results["growth"].items()
            for row in of
        ]
        plot("growth-parallel", growth(series(rows, "at_once", "rate"), "locks at once", "pairs a second"))
    if results.get("watchdog"):
        points = {
            "client CPU (redlock)": [(row["held"], row["client"]) for row in results["watchdog"]],
            "server CPU": [(row["held"], max(row["server"], 1e-5)) for row in results["watchdog"]],
        }
        plot("growth-watchdog", growth(points, "held locks", "share of a core"))
    parts["goals"] = goals(results)
    page = PAGE.read_text()
    for name, text in parts.items():
        pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.S)
        page, found = pattern.subn(lambda match, text=text: match[1] + text + "\n" + match[2], page)
        assert found, f"docs/performance.md has no place for {name}"
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
