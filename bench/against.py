"""Measures this checkout against another one, in turns: against.py DIRECTORY [--rounds N] [--languages L,…].

Both were built by `make bench-build`. Each row has the ratio of this one's figure to the other's, round by round, as
min - **median** - max: how many pairs a second, and what a pair costs in CPU time, of the client and of the server.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run import OURS, ROOT, Arena, Contender, awake

# What is measured, on how many nodes.
WORKS: list[tuple[str, int, dict[str, Any]]] = [
    ("one after the other", 1, {"work": "pair"}),
    ("100 at once", 1, {"work": "parallel", "at_once": 100}),
    ("nested", 1, {"work": "nested"}),
    ("one after the other, 3 nodes", 3, {"work": "pair"}),
    ("100 at once, 3 nodes", 3, {"work": "parallel", "at_once": 100}),
]


@dataclass
class Turn:
    """What one contender did in one round."""

    rate: float
    client: float
    server: float


@dataclass
class Side:
    """One checkout's contender, and its turns."""

    contender: Contender
    turns: list[Turn] = field(default_factory=list)

    def go(self, arena: Arena, seconds: float, work: dict[str, Any]) -> bool:
        """Take a turn; false if the library cannot do this."""
        client, server = self.contender.cpu(), arena.cpu()
        answer = self.contender.ask(seconds=seconds, prefix="uncontended", **work)
        if answer is None:
            return False
        count = answer["count"]
        client, server = self.contender.cpu() - client, arena.cpu() - server
        self.turns.append(Turn(count / answer["seconds"], client / count, server / count))
        return True


def spread(values: list[float]) -> str:
    return f"{min(values):.2f} - **{statistics.median(values):.2f}** - {max(values):.2f}"


def ratios(ours: list[Turn], theirs: list[Turn], figure: str) -> str:
    """Compare turns that lay next to each other."""
    pairs = [(getattr(one, figure), getattr(other, figure)) for one, other in zip(ours, theirs, strict=True)]
    able = [one / other for one, other in pairs if other]
    return spread(able) if able else "too little to measure"


def compare(other: Path, languages: list[str], rounds: int, seconds: float) -> None:
    print("| language | library | work | pairs a second | CPU of the client | CPU of the server |")
    print("| --- | --- | --- | --- | --- | --- |")
    for language in languages:
        for library in OURS[language]:
            for name, nodes, work in WORKS:
                with Arena(nodes) as arena:
                    wanted = [(language, library)]
                    sides = [Side(one) for root in (ROOT, other) for one in arena.enter(wanted, root)]
                    for turn in range(rounds + 1):
                        order = sides if turn % 2 else sides[::-1]
                        if not all(side.go(arena, seconds, work) for side in order):
                            break
                ours, theirs = (side.turns[1:] for side in sides)  # the first round warms up
                if ours:
                    figures = [ratios(ours, theirs, figure) for figure in ("rate", "client", "server")]
                    print("| " + " | ".join([language, library, name, *figures]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="a turn's length; CPU time is counted in 10 ms")
    parser.add_argument("--languages", default=",".join(OURS))
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with awake():
        languages = arguments.languages.split(",")
        compare(arguments.directory.resolve(), languages, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
