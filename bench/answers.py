"""The answers of docs/performance.md: for each question a small table and a conclusion, written from the results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rows import (
    Row,
    best,
    by_language,
    gain,
    is_ahead,
    known,
    leads,
    listed,
    mid,
    ms,
    name,
    number,
    ours,
    page,
    prose,
    ratios,
    rivals,
    scaled,
    table,
    together,
    who,
    µs,
)
from tables import kept, measured, plain_beside

PROCESSES, MANY_PROCESSES = 4, 8


def at(row: Row) -> str:
    return row["language"]


def span(rows: Iterable[Row], figure: str, unit: str, scale: float, form: str) -> str:
    """Return the smallest and the largest figure, each with its language."""
    rows = sorted((row for row in rows if known(row.get(figure))), key=lambda row: mid(row[figure]))
    low, high = (scaled(rows[end][figure], scale, form) for end in (0, -1))
    return f"{low}{unit}" if low == high else f"{low}{unit} ({at(rows[0])}) to {high}{unit} ({at(rows[-1])})"


def extent(values: Iterable[float | None], form: str = ".2f", last: str = "to") -> str:
    """Return the smallest and the largest figure."""
    there = known(values)
    low, high = (number(of(there), form) for of in (min, max))
    return low if low == high else f"{low} {last} {high}"


def verdict(leading: list[Row], rows: list[Row], figure: str, better: str) -> str:
    """Say which other libraries have a better figure than ours, and in which languages none has."""
    ahead, alone = [], []
    for one in leading:
        peers = rivals(one, rows)
        better_ones = [peer["library"] for peer in peers if is_ahead(peer, one, figure)]
        ahead += [f"{library} ({at(one)})" for library in better_ones]
        if peers and not better_ones:
            alone.append(at(one).replace("JVM", "the JVM"))
    if ahead and alone:
        return f"Other libraries that {better}: {listed(ahead)}. There is none for {listed(alone, 'or')}."
    if ahead:
        return f"Other libraries that {better}: {listed(ahead)}."
    return f"There is no other library that was measured and would {better}." if alone else ""


def beside(leading: list[Row], rows: list[Row], *figures: str) -> list[Row]:
    """Return each of ours, followed by the other libraries that are best in one of the figures."""
    shown: list[Row] = []
    for one in leading:
        shown.append(one)
        for figure in figures:
            peer = best(rivals(one, rows), figure)
            if peer and peer not in shown:
                shown.append(peer)
    return shown


def uncontended(results: dict[str, Any]) -> str:
    pairs = results["pairs"]
    rows = pairs.get("100 independent", [])
    leading = leads(rows)
    if not leading:
        return ""
    lines = []
    for row in beside(leading, rows, "client", "rates"):
        one = next(one for one in leading if at(one) == at(row))
        factor = "" if ours(row) else number(mid(ratios(one["rates"], row["rates"])))
        lines.append([name(row), µs(row["client"]), µs(row["server"]), number(mid(row["rates"]), ".0f"), factor])
    head = ["library", "client CPU µs", "server CPU µs", "per second", "our rate / this rate"]
    nested = leads(pairs.get("nested", []))
    return page(
        table(head, lines),
        prose(
            "With a hundred callers, an acquire and its release cost our client",
            f"{span(leading, 'client', ' µs', 1e6, '.1f')} of CPU time, and the server",
            f"{span(leading, 'server', ' µs', 1e6, '.1f')}.",
            verdict(leading, rows, "client", "need less CPU time in the client than ours"),
            f"A nested acquire and its release send nothing, and cost {span(nested, 'client', ' µs', 1e6, '.1f')}."
            if nested
            else "",
        ),
        more(results, "pairs", "acquire-and-release"),
    )


def handoff(results: dict[str, Any]) -> str:
    contested = [row for row in together(results["handoff"]) if row["nodes"] == 1]
    rows = [row for row in contested if row["processes"] == PROCESSES and known(row["p50"])]
    leading = leads(rows)
    if not leading:
        return ""
    lines = [
        [
            *(name(row), ms(row["p50"]), ms(row["p99"])),
            *(ms(row["worst_wait"], ".0f"), number(mid(row["fairness"])), µs(row["server"], ".0f")),
        ]
        for row in beside(leading, rows, "p50")
    ]
    head = ["library", "p50 ms", "p99 ms", "longest wait ms", "slowest/fastest", "server CPU µs"]
    shares = {
        of: extent(mid(row["fairness"]) for row in contested if ours(row) and row["processes"] == of)
        for of in (PROCESSES, MANY_PROCESSES)
        if any(ours(row) and row["processes"] == of and known(row["fairness"]) for row in contested)
    }
    fairness = " and ".join(f"{share} with {processes} processes" for processes, share in shares.items())
    overlaps = sum(row["overlaps"] for row in contested if ours(row))
    return page(
        table(head, lines),
        prose(
            f"With {PROCESSES} processes, the median time that our lock is free between two holders is "
            f"{span(leading, 'p50', ' ms', 1e3, '.2f')}.",
            verdict(leading, rows, "p50", "hand over faster"),
            f"For each grant of the fastest process the slowest gets {fairness}, so an order between processes needs "
            "`fair=True`."
            if fairness
            else "",
            "No grant overlapped another one."
            if not overlaps
            else f"Grants overlapped {number(overlaps, '.0f')} times, which is an error.",
        ),
        more(results, "handoff", "hand-off"),
    )


def queued(results: dict[str, Any]) -> str:
    """Say what a fair lock costs and gives, if that was measured."""
    rows = [row for row in together(results.get("fair", {}).get("handoff", [])) if known(row["p50"])]
    fair = [row for row in rows if "fair" in row["library"]]
    if not fair:
        return ""
    most = max(row["processes"] for row in fair)
    fair = [row for row in fair if row["processes"] == most]
    shares = extent(mid(row["fairness"]) for row in fair)
    return (
        f"With {most} processes, a fair lock gives the slowest {shares} of the fastest's grants and is free for "
        f"{span(fair, 'p50', ' ms', 1e3, '.2f')}."
    )


def quorum(results: dict[str, Any]) -> str:
    of = results["quorum"]
    most = max((nodes for nodes in of if nodes.isdigit()), key=int, default="1")
    found = {nodes: {who(row): row for row in rows} for nodes, rows in of.items()}
    rows, frozen = of.get(most, []), f"{most}, one frozen"
    leading = leads(rows)
    if most == "1" or not leading:
        return ""
    counts = sorted((nodes for nodes in of if nodes.isdigit()), key=int)
    columns = [*counts, *([frozen] if frozen in of else [])]
    lines = [
        [
            name(row),
            *(µs(found[nodes].get(who(row), {}).get("p50"), ".0f") for nodes in columns),
            µs(row["server"], ".0f"),
        ]
        for row in beside(leading, rows, "p50")
    ]
    titles = [f"{nodes} node{'s' * (nodes != '1')}, p50 µs" for nodes in counts]
    titles += [f"{most} nodes, one frozen, p50 µs"] if frozen in of else []
    alone = found.get("1", {})
    slower = {
        nodes: extent(
            mid(ratios(alone[who(row)]["rates"], row["rates"])) for row in of[nodes] if is_of_ours(row, alone)
        )
        for nodes in counts
        if nodes != "1" and any(is_of_ours(row, alone) for row in of[nodes])
    }
    changed = [row["p50"] / found[most][who(row)]["p50"] for row in of.get(frozen, []) if is_of_ours(row, found[most])]
    return page(
        table(["library", *titles, f"CPU µs of {most} servers"], lines),
        prose(
            "An acquire and its release take "
            + listed(f"{times} times as long on {nodes} nodes" for nodes, times in slower.items())
            + " as on one."
            if slower
            else "",
            f"When one of {most} nodes is frozen, they take {extent(changed)} times as long as when all answer."
            if changed
            else "",
            verdict(leading, rows, "rates", f"take less time on {most} nodes"),
        ),
        more(results, "quorum", "quorum"),
    )


def is_of_ours(row: Row, known_rows: dict[tuple[str, str], Row]) -> bool:
    return ours(row) and who(row) in known_rows


def many(results: dict[str, Any]) -> str:
    """Say what many held locks cost, and what many names and waiters leave in memory."""
    rows = [row for row in results["watchdog"] if row["held"]]
    if not rows:
        return ""
    most = max(rows, key=lambda row: row["held"])
    lost = sum(row["lost"] for row in rows)
    return page(
        kept(rows),
        prose(
            f"To keep {number(most['held'], '.0f')} locks alive takes {number(most['client'] * 100)} % of a core in "
            f"the client and {number(most['server'] * 100)} % on the server.",
            f"The client held them for {number(most['kept'], '.0f')} s and",
            "lost none." if not lost else f"lost {number(lost, '.0f')}, which is an error.",
        ),
        more(results, "watchdog", "locks-kept-alive"),
    )


def memory(results: dict[str, Any]) -> str:
    rows = by_language(results["names"])
    if not rows:
        return ""
    grown = {at(row): (row["rss_after"] - row["rss_before"]) / 2**20 for row in rows}
    growth = listed(f"{number(value, '.0f')} MiB ({language})" for language, value in grown.items())
    left = sum(row["keys_left"] for row in rows)
    return page(
        prose(
            f"A used name leaves a token counter of {extent((row['server'] for row in rows), '.0f')} bytes on the "
            "server.",
            "After `token_ttl`, none of them was left."
            if not left
            else f"After `token_ttl`, {number(left, '.0f')} of them were left.",
            f"While a client used {number(rows[0]['names'], '.0f')} names once each, its process grew by {growth}; the "
            "heap of the JVM was limited to 128 MiB.",
        ),
        more(results, "names", "very-many-names"),
    )


def waiters(results: dict[str, Any]) -> str:
    most = max((row["waiters"] for row in results["herd"]), default=0)
    rows = [row for row in results["herd"] if ours(row) and row["waiters"] == most]
    if not rows:
        return ""
    sizes = [(row["rss_after"] - row["rss_before"]) / row["waiters"] / 1024 for row in rows]
    return page(
        prose(
            f"{number(most, '.0f')} waiters of one process get a lock one after another within "
            f"{extent(row['seconds'] for row in rows)} s. A waiter takes {extent(sizes, '.1f')} KiB with the program's "
            f"own task for it, and each grant costs {extent((row['calls'] for row in rows), '.1f')} calls.",
        ),
        more(results, "herd", "many-waiters-in-one-process"),
    )


def fair(results: dict[str, Any]) -> str:
    """Say what a fair lock costs."""
    of = results["fair"]
    plain = {at(row): row for row in of["pairs"] if "fair" not in row["library"]}
    slower = {
        at(row): mid(ratios(plain[at(row)]["rates"], row["rates"]))
        for row in of["pairs"]
        if "fair" in row["library"] and at(row) in plain
    }
    contended = [row for row in together(of["handoff"]) if "fair" in row["library"] and known(row["calls"])]
    longest = max(of["queue"], key=lambda row: row["waiters"], default=None)
    times = listed(f"{number(value)} times ({language})" for language, value in slower.items()) if slower else ""
    return page(
        prose(
            f"An acquire and its release of a fair lock without waiters take {times} as long as those of a plain lock."
            if times
            else "",
            queued(results),
            f"A grant takes {extent((mid(row['calls']) for row in contended), '.1f')} calls." if contended else "",
            f"With {number(longest['waiters'], '.0f')} waiters, the script that hands the lock over takes "
            f"{µs(longest['handover'])} µs, {number(longest['handover'] / longest['alone'])} times as long as a script "
            "without waiters."
            if longest
            else "",
        ),
        more(results, "fair", "fair-locks"),
    )


def shared(results: dict[str, Any]) -> str:
    """Say what read/write locks cost beside plain ones, and semaphores beside other libraries."""
    of = results["shared"]
    slower = [mid(ratios(plain["rates"], row["rates"])) for row, plain in plain_beside(of["one caller"]) if ours(row)]
    readers = [mid(ratios(row["rates"], plain["rates"])) for row, plain in plain_beside(of["100 callers"]) if ours(row)]
    rows = of["semaphore"]
    leading = leads(rows)
    lines = [
        [
            *(name(row), µs(row["client"]), µs(row["server"]), number(mid(row["calls"]), ".1f")),
            *(number(mid(row["rates"]), ".0f"), ms(row["p99"], ".1f")),
        ]
        for row in by_language(rows)
    ]
    head = ["library", "client CPU µs", "server CPU µs", "calls", "per second", "p99 ms"]
    return page(
        prose(
            f"One reader or writer takes {extent(slower)} times as long as one caller of a plain lock. A hundred "
            f"readers of one name get {extent(readers)} times as many locks per second as a hundred callers of plain "
            "locks with names of their own. The table has a semaphore of 10 permits under a hundred callers, which "
            "release each permit at once."
            if slower and readers
            else "",
        ),
        table(head, lines),
        prose(
            verdict(leading, rows, "rates", "give more permits per second"),
            verdict(leading, rows, "client", "need less CPU time in the client for a permit"),
        ),
        more(results, "shared", "readwrite-locks-and-semaphores"),
    )


def more(results: dict[str, Any], suite: str, anchor: str) -> str:
    return prose(measured(results, suite), f"[All rows](results.md#{anchor}).")


def speed(results: dict[str, Any]) -> str:
    """Return the table of the front page: a hundred callers, ours beside the best other library of each language."""
    lines = []
    rows = results["pairs"].get("100 independent", [])
    for one in leads(rows):
        peers = rivals(one, rows)
        least, fastest = best(peers, "client"), best(peers, "rates")
        if least and fastest:
            faster = number(gain(one, fastest, "rates"))
            lines.append([at(one), µs(one["client"]), least["library"], µs(least["client"]), faster])
    other = ["most efficient other library", "its client CPU µs", "our rate / the fastest other's"]
    head = ["language", "our client CPU µs", *other]
    return table(head, lines)


ANSWERS = {
    "pairs": uncontended,
    "handoff": handoff,
    "quorum": quorum,
    "watchdog": many,
    "names": memory,
    "herd": waiters,
    "fair": fair,
    "shared": shared,
}
