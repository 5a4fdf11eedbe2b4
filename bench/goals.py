"""The table of goals: the figure before, the goal, and the figure measured now."""

from __future__ import annotations

from typing import Any

from rows import Row, by_language, comparable, kind, mid, ours, ratios, spread, table, times, together, who, µs

NODE = ("Node", "redlock-core")


class Goals:
    """The rows of the table, work by work."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.lines: list[list[str]] = []
        self.pairs = {work: {who(row): row for row in rows} for work, rows in results["pairs"].items()}
        self.five = results.get("quorum", {}).get("5", [])
        self.contended = together(results.get("handoff", []))

    def add(
        self,
        work: str,
        before: str,
        wanted: tuple[str, float],
        values: list[float],
        *,
        whose: str = "",
        more: str = "",
        also: bool = True,
    ) -> None:
        """Add a row with the figures of all rounds. `wanted` is `≤` or `≥` and the limit, `also` another condition."""
        sign, limit = wanted
        middle = mid(values)
        if middle is not None:
            met = (middle <= limit if sign == "≤" else middle >= limit) and also
            self.lines.append(
                [work, before, f"{sign} {whose}{limit:.4g}", spread(values) + more, "yes" if met else "no"]
            )

    def peers(self, rows: list[Row], one: Row, figure: str) -> list[Row]:
        """Return the comparable other libraries, the smallest figure first."""
        able = [row for row in rows if kind(row) == "peer" and comparable(one, row)]
        return sorted(able, key=lambda row: mid(row[figure]))

    def scripts(self) -> None:
        """Relative to the floor, since the time of a script depends on who else uses the machine."""
        of = self.pairs["sequential"]
        floor = of["Node", "setnx"]["script"]
        for library, before, wanted in (("redlock", 15.8 / 2.5, 10.3 / 2.5), ("redlock-token", 13.8 / 2.5, 9 / 2.5)):
            wire = "token" if "token" in library else "redisson"
            work = f"server's script time of a pair, wire {wire}, of that of `SET NX` and a compare-and-delete"
            script = of["Rust", library]["script"]
            more = f"; {µs(script)} and {µs(floor)} µs"
            self.add(work, f"{before:.1f}", ("≤", wanted), times(script, 1 / mid(floor)), more=more)

    def rust(self) -> None:
        for work, before, wanted in (("sequential", "0.56", 0.85), ("100 at once", "0.38", 0.75)):
            one, bare = (self.pairs[work]["Rust", library]["rates"] for library in ("redlock", "bare"))
            self.add(f"Rust, async, {work}, of the bare client's pairs/s", before, ("≥", wanted), ratios(one, bare))

    def node(self) -> None:
        work = "100 independent"
        one, rows = self.pairs[work][NODE], list(self.pairs[work].values())
        least, fastest = self.peers(rows, one, "client")[0], self.peers(rows, one, "rates")[-1]
        cpu, limit = times(one["client"], 1e6), ("≤", mid(times(least["client"], 1e6)))
        whose = f"{least['library']}'s "
        self.add(f"Node, {work}, client CPU µs", "28 to 36; 20, 23", limit, cpu, whose=whose)
        rates = ratios(one["rates"], fastest["rates"])
        self.add(f"Node, {work}, pairs/s, of {fastest['library']}'s", "0.55 to 0.7", ("≥", 1), rates)
        work = "100 independent, blocks"
        one, peer = self.pairs[work][NODE], self.pairs[work]["Node", "redlock"]
        cpu, limit = times(one["client"], 1e6), ("≤", mid(times(peer["client"], 1e6)))
        self.add("Node, the same with `using`, client CPU µs", "50 to 59; 30 to 39", limit, cpu, whose="redlock's ")
        made = self.pairs.get("lock objects", {}).get(NODE, {}).get("client", [])
        self.add("Node, `client.lock(name)`, µs", "5", ("≤", 1), times(made, 1e6))

    def python(self) -> None:
        row = self.pairs["100 at once"]["Python", "redlock-asyncio"]
        self.add("Python, asyncio, 100 at once, client CPU µs", "43", ("≤", 25), times(row["client"], 1e6))

    def quorum(self) -> None:
        before = {"Rust": "309 µs; 188", "Node": "287 µs; 195"}
        for one in by_language(filter(ours, self.five)):
            peers = self.peers(self.five, one, "rates")
            if peers:
                work = f"{one['language']}, {one['library']}, a pair on five nodes, time, of {peers[-1]['library']}'s"
                slower = ratios(peers[-1]["rates"], one["rates"])
                more = f"; {one['p50'] * 1e6:.0f} µs and {peers[-1]['p50'] * 1e6:.0f}"
                self.add(work, before.get(one["language"], "-"), ("≤", 1), slower, more=more)

    def handoff(self, nodes: int, processes: int) -> list[Row]:
        rows = [row for row in self.contended if (row["nodes"], row["processes"]) == (nodes, processes)]
        return by_language(rows)

    def handoff_on_five(self) -> None:
        for row in filter(ours, self.handoff(5, 6)):
            work = f"{row['language']}, {row['library']}, hand-off, 6 processes on five nodes, p50 ms"
            self.add(work, "4.2", ("≤", 1.4), times(row["p50"], 1e3))

    def handoff_in_turn(self) -> None:
        """Ours beside the one other library that has a queue."""
        for processes in (4, 8):
            rows = {who(row): row for row in self.handoff(1, processes)}
            one, peer = rows.get(("Python", "redlock-sync")), rows.get(("Python", "python-redis-lock"))
            if one and peer:
                work = f"Python, redlock-sync, hand-off, {processes} processes, p50 ms"
                fairness, calls = mid(one["fairness"]), mid(one["calls"])
                more = f"; slowest/fastest {fairness:.2f}, {calls:.1f} calls a grant (≥ 0.95, ≤ 3)"
                self.add(
                    work,
                    "0.5; 0.4",
                    ("≤", mid(times(peer["p50"], 1e3))),
                    times(one["p50"], 1e3),
                    whose="python-redis-lock's ",
                    more=more,
                    also=fairness >= 0.95 and calls <= 3,
                )


def goals(results: dict[str, Any]) -> str:
    rows = Goals(results)
    rows.scripts()
    rows.rust()
    rows.node()
    rows.python()
    rows.quorum()
    rows.handoff_on_five()
    rows.handoff_in_turn()
    return table(["work", "before: ours; others", "goal", "measured", "met"], rows.lines)
