"""Measures this checkout against another one, in turns: against.py DIRECTORY [--rounds N] [--languages L,…].

Both must have been built with `make bench-build`. Each row shows this checkout's figure divided by the other's, round
by round, as min - **median** - max: pairs a second, and the CPU time of a pair, of the client and of the servers. For a
hand-off it is how many times as fast it is, and the costs of a grant. In brackets: this checkout's own median. A work
that the other checkout cannot do yet is skipped, with a note.
"""

from __future__ import annotations

import argparse
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run import OURS, ROOT, Arena, Contender, Failed, awake, contest

HANDOFF = "contend"


@dataclass
class Row:
    """A work, the number of nodes, and the number of processes."""

    name: str
    work: dict[str, Any]
    nodes: int = 1
    processes: int = 1


ROWS = [
    Row("one after the other", {"work": "pair"}),
    Row("one after the other, blocks", {"work": "block"}),
    Row("100 independent", {"work": "independent", "at_once": 100}),
    Row("100 independent, blocks", {"work": "blocks", "at_once": 100}),
    Row("100 at once", {"work": "parallel", "at_once": 100}),
    Row("nested", {"work": "nested"}),
    Row("one after the other, 5 nodes", {"work": "pair"}, nodes=5),
    Row("hand-off, 4 processes", {"work": HANDOFF}, processes=4),
    Row("hand-off, 6 processes, 5 nodes", {"work": HANDOFF}, nodes=5, processes=6),
]


@dataclass
class Turn:
    """The figures of one side in one round."""

    rate: float
    client: float
    server: float


class CannotDo(Exception):
    """The library cannot do this work, in either checkout."""


@dataclass
class Side:
    """The contenders of one checkout."""

    name: str
    contenders: list[Contender]

    def turn(self, arena: Arena, row: Row, seconds: float) -> Turn:
        if row.work["work"] == HANDOFF:
            of = contest(arena, self.contenders, f"shared by {self.name}", 2 * seconds)
            if not of["p50"]:
                raise Failed(f"no hand-off in {2 * seconds} s")
            return Turn(1 / of["p50"], of["client"], of["server"])
        (contender,) = self.contenders
        client, server = contender.cpu(), arena.cpu()
        answer = contender.ask(seconds=seconds, prefix="uncontended", **row.work)
        if answer is None:
            raise CannotDo
        count = answer["count"]
        return Turn(count / answer["seconds"], (contender.cpu() - client) / count, (arena.cpu() - server) / count)


def measure(row: Row, who: tuple[str, str], other: Path, rounds: int, seconds: float) -> list[tuple[Turn, Turn]]:
    """Return the figures of this checkout and of the other one, round by round."""
    with Arena(row.nodes) as arena:
        sides = [
            Side(name, arena.enter([who] * row.processes, root)) for name, root in (("this", ROOT), ("that", other))
        ]
        results = []
        for number in range(rounds + 1):
            order = sides if number % 2 else sides[::-1]
            turns = {side.name: side.turn(arena, row, seconds) for side in order}
            results.append((turns["this"], turns["that"]))
    return results[1:]  # the first round warms up


def shown(turns: list[tuple[Turn, Turn]], figure: str) -> str:
    """Compare the two sides, round by round."""
    pairs = [(getattr(this, figure), getattr(that, figure)) for this, that in turns]
    ratios = [this / that for this, that in pairs if that > 1e-7]  # a nested pair takes no time on a server
    if not ratios:
        return "too little to measure"
    own = statistics.median(this for this, _ in pairs)
    text = f"{own:,.0f}/s".replace(",", " ") if figure == "rate" else f"{own * 1e6:.1f} µs"
    return f"{min(ratios):.2f} - **{statistics.median(ratios):.2f}** - {max(ratios):.2f} ({text})"


def compare(other: Path, languages: list[str], rounds: int, seconds: float) -> None:
    print("| language | library | work | as fast | CPU of the client | CPU of the servers |")
    print("| --- | --- | --- | --- | --- | --- |")
    for who in [(language, library) for language in languages for library in OURS[language]]:
        for row in ROWS:
            try:
                turns = measure(row, who, other, rounds, seconds)
            except CannotDo:
                continue
            except Failed as error:
                figures = [f"skipped: {error}".replace("|", "/"), "", ""]
            else:
                figures = [shown(turns, figure) for figure in ("rate", "client", "server")]
            print("| " + " | ".join([*who, row.name, *figures]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="a turn's length; a hand-off's is twice that")
    parser.add_argument("--languages", default=",".join(OURS))
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    with awake():
        languages = arguments.languages.split(",")
        compare(arguments.directory.resolve(), languages, arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
