"""The figures that plots show, from the results: written to figures.json, which git keeps instead of the plots."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import LANGUAGES, Row, kind, known, mid, together

FIGURES = Path(__file__).with_name("figures.json")

Figure = dict[str, Any]


def figures(results: dict[str, Any]) -> dict[str, Figure]:
    """Return the figures of the suites that were measured, by the name of their plot."""
    found: dict[str, Figure] = {}
    parts = {"client": lambda row: mid(row["client"]) * 1e6, "server": lambda row: mid(row["server"]) * 1e6}
    works = (("100 independent", "cpu", ""), ("100 independent, blocks", "cpu-blocks", ", new lock objects"))
    for work, title, more in works if results.get("pairs") else ():
        label = f"CPU time of an acquire and its release, client + server, µs (a hundred callers{more})"
        if results["pairs"].get(work):
            found[title] = bars(results["pairs"][work], parts, label, ".1f")
    contended = [row for row in together(results.get("handoff", [])) if known(row["p50"])]
    for title, nodes, processes in (("handoff", 1, 4), ("handoff-quorum", 5, 6)):
        rows = [row for row in contended if (row["nodes"], row["processes"]) == (nodes, processes)]
        if rows:
            where = f"({processes} processes" + (f", {nodes} nodes)" if nodes > 1 else ")")
            label = f"time from a release to the next grant, ms {where}"
            found[title] = bars(rows, {"": lambda row: mid(row["p50"]) * 1e3}, label, ".2f")
    if contended:
        alone = [row for row in contended if row["nodes"] == 1]
        panels = series(alone, "processes", lambda row: mid(row["p50"]) * 1e3)
        found["growth-handoff"] = growth(panels, "processes", "ms to the next grant (logarithmic)", "y")
    if results.get("herd"):
        panels = series(results["herd"], "waiters", lambda row: row["seconds"])
        found["growth-herd"] = growth(panels, "waiters (logarithmic)", "s until all had it (logarithmic)", "xy")
    if results.get("quorum"):
        rows = [{**row, "nodes": int(at)} for at, of in results["quorum"].items() if at.isdigit() for row in of]
        panels = series(rows, "nodes", lambda row: row["p50"] * 1e6)
        found["growth-quorum"] = growth(panels, "nodes", "p50 of an acquire and its release, µs")
    if results.get("growth"):
        rows = [{**row, "at_once": int(size)} for size, of in results["growth"].items() for row in of]
        panels = series(rows, "at_once", lambda row: mid(row["rates"]))
        label = "locks at once (logarithmic)"
        found["growth-parallel"] = growth(panels, label, "acquires and releases a second", "x")
    held = [row for row in results.get("watchdog", []) if row["held"] > 1]
    if held:
        panels = {
            f"CPU of the {of}": [["redlock", "ours", [[row["held"], short(row[of] * 100)] for row in held]]]
            for of in ("client", "server")
        }
        found["growth-watchdog"] = growth(panels, "held locks (logarithmic)", "% of a core", "x")
    return found


def bars(rows: list[Row], parts: dict[str, Callable[[Row], float]], label: str, form: str) -> Figure:
    """Return a bar for each library, made of parts, by language; the longest bar is the first, at the bottom."""
    panels = {}
    for language in languages(rows):
        group = [row for row in rows if row["language"] == language]
        group.sort(key=lambda row: -sum(of(row) for of in parts.values()))
        panels[language] = [[row["library"], kind(row), [short(of(row)) for of in parts.values()]] for row in group]
    return {"kind": "bars", "label": label, "parts": list(parts), "form": form, "panels": panels}


def growth(panels: dict[str, Any], x: str, y: str, logarithmic: str = "") -> Figure:
    """Return lines that show how a figure grows; `logarithmic` names the logarithmic axes."""
    return {"kind": "growth", "x": x, "y": y, "logarithmic": logarithmic, "panels": panels}


def series(rows: list[Row], x: str, y: Callable[[Row], float | None]) -> dict[str, Any]:
    """Return, for each language, a line for each library that has more than one point."""
    panels: dict[str, Any] = {}
    for language in languages(rows):
        firsts, lines = {}, {}
        for row in rows:
            if row["language"] == language and y(row) is not None:
                firsts.setdefault(row["library"], row)
                lines.setdefault(row["library"], []).append([row[x], short(y(row))])
        panels[language] = [
            [library, kind(firsts[library]), sorted(points)] for library, points in lines.items() if len(points) > 1
        ]
    return {language: panel for language, panel in panels.items() if panel}


def languages(rows: list[Row]) -> list[str]:
    """Return the languages of the rows; those that the benchmark does not know come last."""
    there = {row["language"] for row in rows}
    return [*(language for language in LANGUAGES if language in there), *sorted(there - set(LANGUAGES))]


def short(value: float) -> float:
    """Six digits, more than a plot shows."""
    return float(f"{value:.6g}")


def write(results: dict[str, Any], path: Path = FIGURES) -> None:
    """Write the figures to a file, which keeps those that were not measured. A library has a line of its own."""
    all_figures = (json.loads(path.read_text()) if path.exists() else {}) | figures(results)
    lines = [f"{json.dumps(title)}: {_lines(of)}" for title, of in sorted(all_figures.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(of: Any, indent: str = " ") -> str:
    if not isinstance(of, dict):
        return json.dumps(of, ensure_ascii=False)
    entries = []
    for key, value in of.items():
        text = _lines(value, indent + " ")
        if isinstance(value, list) and value and isinstance(value[0], list):
            text = "[\n" + ",\n".join(f"{indent} {_lines(row)}" for row in value) + f"\n{indent}]"
        entries.append(f"{indent}{json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(entries) + f"\n{indent[1:]}}}"
