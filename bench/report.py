"""Turns results/results.json into docs/results.md, the tables and conclusions of docs/performance.md, the table of
README.md, the figures that plots show, and the plots in docs/plots.

Every figure that is measured, and every statement of who is ahead, is written here, from the results. A page has a
place for each part, between `<!-- part -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ahead import HANDOFF_FIGURES, PAIR_FIGURES, contested, full, short, uncontended
from answers import ANSWERS, speed
from figures import write
from goals import goals, goals_of_kinds
from rows import page
from run import RESULTS
from tables import SUITES, machine, measured, versions

ROOT = Path(__file__).resolve().parent.parent
PLOTS, KEPT = ROOT / "docs" / "plots", ["cpu"]
PAGES = [ROOT / "docs" / "performance.md", ROOT / "docs" / "results.md", ROOT / "README.md"]


def parts_of(results: dict[str, Any]) -> dict[str, str]:
    """Return the text of each part, without those of suites that were not measured: the pages keep what they have."""
    suites = {suite for suite, of in results.items() if of}
    parts = {"machine": machine(results), "versions": versions(results)}
    parts |= {f"rows of {suite}": of(results) for suite, of in SUITES.items() if suite in suites}
    parts |= {f"answer of {suite}": of(results) for suite, of in ANSWERS.items() if suite in suites}
    if "pairs" in suites:
        parts["speed"] = speed(results)
    if {"pairs", "handoff", "quorum"} <= suites:
        parts["ahead"] = page(short(results), measured(results, "pairs"))
        parts["ahead, all"] = page(
            measured(results, "pairs"),
            "### Without contention",
            full(uncontended(results), PAIR_FIGURES),
            "### In a hand-off",
            full(contested(results), HANDOFF_FIGURES),
        )
        parts["goals"] = goals(results)
    if {"fair", "shared"} <= suites:
        parts["goals of kinds"] = goals_of_kinds(results)
    return {part: text for part, text in parts.items() if text}


def place(parts: dict[str, str], pages: Iterable[Path]) -> set[str]:
    """Write the parts into the pages, and return those for which no page has a place."""
    missing = set(parts)
    for path in pages:
        text = path.read_text()
        for part, of in parts.items():
            pattern = re.compile(rf"(<!-- {re.escape(part)} -->\n).*?(<!-- end -->)", re.S)
            text, found = pattern.subn(lambda match, of=of: f"{match[1]}{of}\n{match[2]}", text)
            missing -= {part} if found else set()
        path.write_text(text)
    return missing


def load(path: Path) -> dict[str, Any]:
    """Read the results; they are of the day on which the file was written, if they do not say."""
    results: dict[str, Any] = json.loads(path.read_text())
    written = time.strftime("%Y-%m-%d", time.gmtime(path.stat().st_mtime))
    results["machine"] = {"date": written, **results.get("machine", {})}
    return results


def main() -> int:
    from plots import draw  # here, so that the tests need no matplotlib

    results = load(RESULTS / "results.json")
    missing = place(parts_of(results), PAGES)
    write(results)
    # Git keeps these alone. The others are drawn when the site is built.
    draw(PLOTS, KEPT)
    if missing:
        print(f"no page has a place for {', '.join(sorted(missing))}", file=sys.stderr)
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
