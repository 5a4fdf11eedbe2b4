"""The table of goals: the figure before, the goal, and the figure measured now."""

from __future__ import annotations

from typing import Any

from rows import Row, best, by_language, known, mid, number, ours, ratios, rivals, table, together, who
from tables import KIND_NAMES, plain_beside

NODE = ("Node", "redlock-core")
MISSING: Row = {"library": "", "client": [], "rates": [], "script": []}


class Goals:
    """The rows of the table, work by work. Rows of contenders that were not measured are left out."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.lines: list[list[str]] = []
        self.pairs = {work: {who(row): row for row in rows} for work, rows in results.get("pairs", {}).items()}
        self.five = results.get("quorum", {}).get("5", [])
        self.contended = together(results.get("handoff", []))
        self.queued = results.get("fair", {})
        self.shared = results.get("shared", {})

    def add(self, work: str, before: tuple[str, str], wanted: tuple[str, float | None], values: list[float]) -> None:
        """Add a row with the median of all rounds.

        `before` are the best figures of ours and of others when the goal was set. `wanted` is `≤` or `≥` and the limit.
        The goal is met if the figures are as they are shown, so that no row says "≥ 0.85", "0.85" and "no".
        """
        sign, limit = wanted
        middle = mid(values)
        if middle is None or limit is None:
            return
        shown, goal = round(middle, 2), round(limit, 2)
        met = shown <= goal if sign == "≤" else shown >= goal
        self.lines.append([work, *before, f"{sign} {number(goal)}", number(shown), "yes" if met else "no"])

    def row(self, work: str, *of: str) -> Row:
        return self.pairs.get(work, {}).get(of, MISSING)

    def scripts(self) -> None:
        """Relative to the floor, since the time of a script depends on who else uses the machine."""
        floor = mid(self.row("sequential", "Node", "setnx")["script"])
        wires = (("redisson", "redlock", 15.8, 10.3), ("token", "redlock-token", 13.8, 9))
        for wire, library, before, wanted in wires if floor else ():
            work = f"script time, wire {wire}, divided by that of `SET NX` and a compare-and-delete"
            script = [value / floor for value in self.row("sequential", "Rust", library)["script"]]
            self.add(work, (f"{before / 2.5:.1f}", "-"), ("≤", wanted / 2.5), script)

    def rust(self) -> None:
        for work, title, before, wanted in (
            ("sequential", "one caller", "0.56", 0.85),
            ("100 at once", "bursts of 100", "0.38", 0.75),
        ):
            one, bare = (self.row(work, "Rust", library)["rates"] for library in ("redlock", "bare"))
            text = f"Rust, async, {title}: rate, divided by the bare client's"
            self.add(text, (before, "-"), ("≥", wanted), ratios(one, bare))

    def node(self) -> None:
        work = "100 independent"
        one = self.pairs.get(work, {}).get(NODE)
        peers = rivals(one, self.pairs[work].values()) if one else []
        least, fastest = best(peers, "client"), best(peers, "rates")
        if one and least and fastest:
            limit = mid(least["client"]) * 1e6
            text = f"Node, 100 callers: client CPU µs, beside {least['library']}'s"
            self.add(text, ("28", "20"), ("≤", limit), [value * 1e6 for value in one["client"]])
            rates = ratios(one["rates"], fastest["rates"])
            text = f"Node, 100 callers: rate, divided by {fastest['library']}'s"
            self.add(text, ("0.7", "-"), ("≥", 1), rates)
        work = "100 independent, blocks"
        peer, cpu = (self.row(work, "Node", library)["client"] for library in ("redlock", NODE[1]))
        limit = mid(peer)
        text = "Node, 100 callers, new lock objects: client CPU µs, beside redlock's"
        self.add(text, ("50", "30"), ("≤", limit and limit * 1e6), [value * 1e6 for value in cpu])
        made = self.row("lock objects", *NODE)["client"]
        self.add("Node, `client.lock(name)`: µs", ("5", "-"), ("≤", 1), [value * 1e6 for value in made])

    def python(self) -> None:
        cpu = self.row("100 at once", "Python", "redlock-asyncio")["client"]
        self.add("Python, asyncio, bursts of 100: client CPU µs", ("43", "-"), ("≤", 25), [at * 1e6 for at in cpu])

    def quorum(self) -> None:
        for one in by_language(filter(ours, self.five)):
            peer = best(rivals(one, self.five), "rates")
            if peer:
                work = f"{one['language']}, {one['library']}, 5 nodes: time, divided by {peer['library']}'s"
                self.add(work, ("-", "-"), ("≤", 1), ratios(peer["rates"], one["rates"]))

    def handoff(self, nodes: int, processes: int) -> list[Row]:
        rows = [row for row in self.contended if (row["nodes"], row["processes"]) == (nodes, processes)]
        return by_language(rows)

    def handoff_on_five(self) -> None:
        for row in filter(ours, self.handoff(5, 6)):
            work = f"{row['language']}, {row['library']}, hand-off, 6 processes, 5 nodes: p50 ms"
            self.add(work, ("4.2", "-"), ("≤", 1.4), [value * 1e3 for value in known(row["p50"])])

    def handoff_in_turn(self) -> None:
        """Ours beside the one other library that has a queue."""
        for processes in (4, 8):
            rows = {who(row): row for row in self.handoff(1, processes)}
            one, peer = rows.get(("Python", "redlock-sync")), rows.get(("Python", "python-redis-lock"))
            if one and peer and known(peer["p50"]):
                work = f"Python, redlock-sync, hand-off, {processes} processes"
                limit = mid(peer["p50"]) * 1e3
                own = [value * 1e3 for value in known(one["p50"])]
                self.add(f"{work}: p50 ms, beside python-redis-lock's", ("0.5", "0.4"), ("≤", limit), own)
                self.add(f"{work}: slowest/fastest", ("-", "-"), ("≥", 0.95), one["fairness"])
                self.add(f"{work}: calls a grant", ("-", "-"), ("≤", 3), one["calls"])

    def fair(self) -> None:
        """Fair locks beside plain ones, and beside the one other library that has a queue."""
        rows = {who(row): row for row in self.queued.get("pairs", [])}
        for (language, library), row in rows.items():
            plain = rows.get((language, {"Rust": "redlock", "Python": "redlock-sync"}.get(language, "")))
            if "fair" in library and plain:
                text = f"{language}, fair lock, one caller: time, divided by a plain lock's"
                self.add(text, ("-", "-"), ("≤", 1.15), ratios(plain["rates"], row["rates"]))
        contended = together(self.queued.get("handoff", []))
        for processes in (4, 8):
            found = {who(row): row for row in contended if row["processes"] == processes}
            one, peer = found.get(("Python", "redlock-fair")), found.get(("Python", "python-redis-lock"))
            if one and peer and known(peer["p50"]):
                work = f"Python, fair lock, hand-off, {processes} processes"
                own = [value * 1e3 for value in known(one["p50"])]
                self.add(f"{work}: p50 ms, beside python-redis-lock's", ("-", "-"), ("≤", mid(peer["p50"]) * 1e3), own)
                self.add(f"{work}: slowest/fastest", ("-", "-"), ("≥", 0.95), known(one["fairness"]))
                self.add(f"{work}: calls a grant", ("-", "-"), ("≤", 3), known(one["calls"]))
        for row in self.queued.get("queue", []):
            if row["waiters"] == 10_000:
                text = "fair lock, 10 000 waiters: server time of a hand-over, divided by a script's without waiters"
                self.add(text, ("-", "-"), ("≤", 2.2), [row["handover"] / row["alone"]])

    def read_write(self) -> None:
        for row, plain in plain_beside(self.shared.get("one caller", [])):
            if ours(row):
                text = f"{row['language']}, {KIND_NAMES[row['kind']]}, one caller: time, divided by a plain lock's"
                self.add(text, ("-", "-"), ("≤", 1.3), ratios(plain["rates"], row["rates"]))
        for row, plain in plain_beside(self.shared.get("100 callers", [])):
            if ours(row):
                text = f"{row['language']}, 100 readers of a name: rate, divided by that of 100 plain locks"
                self.add(text, ("-", "-"), ("≥", 0.8), ratios(row["rates"], plain["rates"]))

    def semaphore(self) -> None:
        for title, text in (("semaphore", "semaphore"), ("semaphore, 2 ms", "semaphore, held for 2 ms")):
            rows = self.shared.get(title, [])
            for one in by_language(filter(ours, rows)):
                for peer in rivals(one, rows):
                    work = f"{one['language']}, {text}, 100 callers: "
                    rates, costs = ratios(one["rates"], peer["rates"]), ratios(one["client"], peer["client"])
                    self.add(f"{work}rate, divided by {peer['library']}'s", ("-", "-"), ("≥", 1), rates)
                    self.add(f"{work}client CPU, divided by {peer['library']}'s", ("-", "-"), ("≤", 1), costs)


def goals_of_kinds(results: dict[str, Any]) -> str:
    """Return the goals of fair locks, read/write locks and semaphores."""
    rows = Goals(results)
    rows.fair()
    rows.read_write()
    rows.semaphore()
    lines = [[goal, limit, measured, met] for goal, _, _, limit, measured, met in rows.lines]
    return table(["goal", "limit", "measured", "met"], lines)


def goals(results: dict[str, Any]) -> str:
    rows = Goals(results)
    rows.scripts()
    rows.rust()
    rows.node()
    rows.python()
    rows.quorum()
    rows.handoff_on_five()
    rows.handoff_in_turn()
    return table(["goal", "before, ours", "before, others", "limit", "measured", "met"], rows.lines)
