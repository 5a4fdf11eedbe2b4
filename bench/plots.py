"""The plots in docs/plots. Bars start at zero; a logarithmic axis is labelled as such."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import patches, ticker
from matplotlib import pyplot as plt
from rows import LANGUAGES, Row, kind, known, mid, number, ours, together

PLOTS = Path(__file__).resolve().parent.parent / "docs" / "plots"
THEMES = {
    "light": {
        "paper": "#ffffff",
        "ink": "#1f2328",
        "grid": "#d0d7de",
        "ours": ["#0969da", "#54aeff"],
        "floor": ["#8c959f", "#afb8c1"],
        "peer": ["#bf8700", "#cf222e", "#8250df", "#1a7f37", "#bc4c00"],
    },
    "dark": {
        "paper": "#0d1117",
        "ink": "#e6edf3",
        "grid": "#30363d",
        "ours": ["#58a6ff", "#a5d6ff"],
        "floor": ["#8b949e", "#6e7681"],
        "peer": ["#d29922", "#f85149", "#bc8cff", "#3fb950", "#f0883e"],
    },
}


def plot(title: str, draw: Callable[[dict[str, Any]], Any]) -> None:
    """Draw the plot once for each theme."""
    for theme, colors in THEMES.items():
        style = {
            "figure.facecolor": colors["paper"],
            "axes.facecolor": colors["paper"],
            "axes.edgecolor": colors["grid"],
            "axes.labelcolor": colors["ink"],
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "text.color": colors["ink"],
            "xtick.color": colors["ink"],
            "ytick.color": colors["ink"],
            "grid.color": colors["grid"],
            "grid.alpha": 0.5,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "svg.fonttype": "none",
            "svg.hashsalt": "redlock",
            "font.size": 9,
        }
        with mpl.rc_context(style):
            figure = draw(colors)
            figure.savefig(PLOTS / f"{title}-{theme}.svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(figure)


def plain(value: float, _: int = 0) -> str:
    return number(value, ".0f") if value == round(value) else f"{value:.6g}"


def bars(rows: list[Row], parts: list[tuple[str, Callable[[Row], float]]], label: str, form: str) -> Any:
    """Draw a bar for each library, made of parts; each language has a panel with a scale of its own, from zero."""
    shades = [1.0, 0.45][: len(parts)]

    def draw(colors: dict[str, Any]) -> Any:
        groups = {language: [row for row in rows if row["language"] == language] for language in languages(rows)}
        groups = {language: group for language, group in groups.items() if group}
        figure, panels = plt.subplots(
            len(groups),
            figsize=(8, 0.26 * len(rows) + 0.5 * len(groups) + 0.6),
            squeeze=False,
            layout="constrained",
            height_ratios=[len(group) + 1 for group in groups.values()],
        )
        for axes, (language, group) in zip(panels[:, 0], groups.items(), strict=True):
            group.sort(key=lambda row: -sum(of(row) for _, of in parts))
            left = [0.0] * len(group)
            for (_, of), shade in zip(parts, shades, strict=True):
                widths = [of(row) for row in group]
                names = [row["library"] for row in group]
                paint = [colors[kind(row)][0] for row in group]
                drawn = axes.barh(names, widths, left=left, color=paint, alpha=shade)
                left = [start + width for start, width in zip(left, widths, strict=True)]
            axes.bar_label(
                drawn, [" + ".join(f"{of(row):{form}}" for _, of in parts) for row in group], padding=3, size=8
            )
            axes.set_title(language, loc="left", fontsize=9, fontweight="bold")
            axes.grid(axis="x")
            axes.tick_params(axis="y", length=0)
            axes.set_xlim(0, 1.2 * max(sum(of(row) for _, of in parts) for row in group))
            axes.xaxis.set_major_formatter(plain)
        figure.supxlabel(f"{label}; each language on a scale of its own", fontsize=9)
        kinds = {"ours": "redlock", "peer": "other libraries", "floor": "a bare client, no library"}
        shown = [patches.Patch(color=colors[of][0], label=text) for of, text in kinds.items() if of in map(kind, rows)]
        if len(parts) > 1:
            for (text, _), shade in zip(parts, shades, strict=True):
                shown.append(patches.Patch(color=colors["ink"], alpha=shade, label=text))
        figure.legend(handles=shown, loc="outside upper center", ncols=len(shown))
        return figure

    return draw


def languages(rows: list[Row]) -> list[str]:
    """Return the languages of the rows; those that the benchmark does not know come last."""
    there = {row["language"] for row in rows}
    return [*(language for language in LANGUAGES if language in there), *sorted(there - set(LANGUAGES))]


Lines = dict[str, list[tuple[float, float]]]


def series(rows: list[Row], x: str, y: Callable[[Row], float | None]) -> dict[str, tuple[list[Row], Lines]]:
    """Return, for each language, a line for each library that has more than one point."""
    panels: dict[str, tuple[list[Row], Lines]] = {}
    for language in languages(rows):
        firsts, lines = {}, {}
        for row in rows:
            if row["language"] == language and y(row) is not None:
                firsts.setdefault(row["library"], row)
                lines.setdefault(row["library"], []).append((row[x], y(row)))
        lines = {library: sorted(points) for library, points in lines.items() if len(points) > 1}
        panels[language] = ([firsts[library] for library in lines], lines)
    return {language: panel for language, panel in panels.items() if panel[1]}


def growth(panels: dict[str, tuple[list[Row], Lines]], x: str, y: str, logarithmic: str = "") -> Any:
    """Draw lines that show how a figure grows; `logarithmic` names the logarithmic axes."""

    def draw(colors: dict[str, Any]) -> Any:
        rows = (len(panels) + 1) // 2
        figure, grid = plt.subplots(
            rows,
            min(2, len(panels)),
            figsize=(9.5, 2.6 * rows + 0.3),
            sharex=True,
            sharey="y" in logarithmic,
            squeeze=False,
            layout="constrained",
        )
        for axes, (title, (firsts, lines)) in zip(grid.flat, panels.items(), strict=False):
            palettes = {of: iter(colors[of]) for of in ("ours", "floor", "peer")}
            for row, points, marker in zip(firsts, lines.values(), "osD^v*P", strict=False):
                style = {"color": next(palettes[kind(row)]), "linewidth": 2 if ours(row) else 1}
                axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=row["library"], **style)
            if "x" in logarithmic:
                axes.set_xscale("log")
            if "y" in logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            else:
                axes.set_ylim(bottom=0)
            axes.set_xticks(sorted({at for points in lines.values() for at, _ in points}))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(plain)
                axis.set_minor_formatter(ticker.NullFormatter())
            axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
            axes.grid()
            axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel(x, fontsize=9)
        figure.supylabel(y, fontsize=9)
        return figure

    return draw


def plots(results: dict[str, Any]) -> None:
    PLOTS.mkdir(exist_ok=True)
    parts = [("client", lambda row: mid(row["client"]) * 1e6), ("server", lambda row: mid(row["server"]) * 1e6)]
    label = "CPU time of an acquire and its release, client + server, µs (a hundred callers"
    works = (("100 independent", "cpu"), ("100 independent, blocks", "cpu-blocks"))
    for work, title in works if results.get("pairs") else ():
        text = label + (", new lock objects)" if title == "cpu-blocks" else ")")
        if results["pairs"].get(work):
            plot(title, bars(results["pairs"][work], parts, text, ".1f"))
    contended = [row for row in together(results.get("handoff", [])) if known(row["p50"])]
    for title, nodes, processes in (("handoff", 1, 4), ("handoff-quorum", 5, 6)):
        rows = [row for row in contended if (row["nodes"], row["processes"]) == (nodes, processes)]
        if rows:
            label = "time from a release to the next grant, ms"
            where = f" ({processes} processes" + (f", {nodes} nodes)" if nodes > 1 else ")")
            plot(title, bars(rows, [("", lambda row: mid(row["p50"]) * 1e3)], label + where, ".2f"))
    if contended:
        alone = [row for row in contended if row["nodes"] == 1]
        panels = series(alone, "processes", lambda row: mid(row["p50"]) * 1e3)
        plot("growth-handoff", growth(panels, "processes", "ms to the next grant (logarithmic)", "y"))
    if results.get("herd"):
        panels = series(results["herd"], "waiters", lambda row: row["seconds"])
        label = "s until all had it (logarithmic)"
        plot("growth-herd", growth(panels, "waiters (logarithmic)", label, "xy"))
    if results.get("quorum"):
        rows = [{**row, "nodes": int(at)} for at, of in results["quorum"].items() if at.isdigit() for row in of]
        plot(
            "growth-quorum",
            growth(
                series(rows, "nodes", lambda row: row["p50"] * 1e6), "nodes", "p50 of an acquire and its release, µs"
            ),
        )
    if results.get("growth"):
        rows = [{**row, "at_once": int(size)} for size, of in results["growth"].items() for row in of]
        panels = series(rows, "at_once", lambda row: mid(row["rates"]))
        plot("growth-parallel", growth(panels, "locks at once (logarithmic)", "acquires and releases a second", "x"))
    held = [{**row, "language": "Rust", "library": "redlock"} for row in results.get("watchdog", []) if row["held"] > 1]
    if held:
        panels = {}
        for of in ("client", "server"):
            panels[f"CPU of the {of}"] = ([held[0]], {"redlock": [(row["held"], row[of] * 100) for row in held]})
        plot("growth-watchdog", growth(panels, "held locks (logarithmic)", "% of a core", "x"))
