"""Draws the figures of figures.json: plots.py FOLDER [NAME...]

The pictures that the README shows are in docs/plots. `make site` draws all of them. Bars start at zero; a logarithmic
axis is labelled as such. Needs matplotlib alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import patches, ticker
from matplotlib import pyplot as plt

FIGURES = Path(__file__).with_name("figures.json")
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


def plot(title: str, of: dict[str, Any], folder: Path) -> None:
    """Draw a figure once for each theme."""
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
            figure = (bars if of["kind"] == "bars" else growth)(of, colors)
            figure.savefig(folder / f"{title}-{theme}.svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(figure)


def plain(value: float, _: int = 0) -> str:
    return f"{value:,.0f}".replace(",", " ") if value == round(value) else f"{value:.6g}"


def bars(of: dict[str, Any], colors: dict[str, Any]) -> Any:
    """Draw a bar for each library, made of parts; each language has a panel with a scale of its own, from zero."""
    panels, parts = of["panels"], of["parts"]
    shades = [1.0, 0.45][: len(parts)]
    rows = [row for group in panels.values() for row in group]
    figure, grid = plt.subplots(
        len(panels),
        figsize=(8, 0.26 * len(rows) + 0.5 * len(panels) + 0.6),
        squeeze=False,
        layout="constrained",
        height_ratios=[len(group) + 1 for group in panels.values()],
    )
    for axes, (language, group) in zip(grid[:, 0], panels.items(), strict=True):
        names = [library for library, _, _ in group]
        paint = [colors[kind][0] for _, kind, _ in group]
        left = [0.0] * len(group)
        for at, shade in enumerate(shades):
            widths = [values[at] for _, _, values in group]
            drawn = axes.barh(names, widths, left=left, color=paint, alpha=shade)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        labels = [" + ".join(f"{value:{of['form']}}" for value in values) for _, _, values in group]
        axes.bar_label(drawn, labels, padding=3, size=8)
        axes.set_title(language, loc="left", fontsize=9, fontweight="bold")
        axes.grid(axis="x")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1.2 * max(left))
        axes.xaxis.set_major_formatter(plain)
    figure.supxlabel(f"{of['label']}; each language on a scale of its own", fontsize=9)
    kinds = {"ours": "redlock", "peer": "other libraries", "floor": "a bare client, no library"}
    there = {kind for _, kind, _ in rows}
    shown = [patches.Patch(color=colors[kind][0], label=text) for kind, text in kinds.items() if kind in there]
    if len(parts) > 1:
        for text, shade in zip(parts, shades, strict=True):
            shown.append(patches.Patch(color=colors["ink"], alpha=shade, label=text))
    figure.legend(handles=shown, loc="outside upper center", ncols=len(shown))
    return figure


def growth(of: dict[str, Any], colors: dict[str, Any]) -> Any:
    """Draw lines that show how a figure grows; `logarithmic` names the logarithmic axes."""
    panels, logarithmic = of["panels"], of["logarithmic"]
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
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        palettes = {kind: iter(colors[kind]) for kind in ("ours", "floor", "peer")}
        for (library, kind, points), marker in zip(lines, "osD^v*P", strict=False):
            style = {"color": next(palettes[kind]), "linewidth": 2 if kind == "ours" else 1}
            axes.plot(*zip(*points, strict=True), marker=marker, markersize=4, label=library, **style)
        if "x" in logarithmic:
            axes.set_xscale("log")
        if "y" in logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({at for _, _, points in lines for at, _ in points}))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(plain)
            axis.set_minor_formatter(ticker.NullFormatter())
        axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
        axes.grid()
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel(of["x"], fontsize=9)
    figure.supylabel(of["y"], fontsize=9)
    return figure


def draw(folder: Path, names: Iterable[str] = ()) -> None:
    """Draw the figures with these names, or all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.loads(FIGURES.read_text())
    for title in names or figures:
        plot(title, figures[title], folder)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), sys.argv[2:])
