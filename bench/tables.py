"""The tables of docs/results.md: every row, at most six columns a table, one figure a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import (
    Row,
    by_language,
    comparable,
    kind,
    mid,
    ms,
    name,
    number,
    ours,
    page,
    prose,
    ratios,
    spread,
    table,
    together,
    who,
    µs,
)

WORKS = {
    "100 independent": "100 callers",
    "100 independent, blocks": "100 callers, new lock objects",
    "sequential": "one caller",
    "sequential, blocks": "one caller, new lock objects",
    "100 at once": "bursts of 100",
    "nested": "nested",
    "lock objects": "lock objects alone",
}
EXPLAINED = {
    "100 independent": "A hundred callers at once, each with a lock name of its own. None waits for another.",
    "100 independent, blocks": "The same, with a new lock object for each acquire and in the form that the library's "
    "documentation shows first, such as `with client.lock(name):`.",
    "sequential": "One acquire and its release after another.",
    "100 at once": "A hundred acquires at once. The next hundred start when the last of them is released.",
    "nested": "Acquires by an owner that holds the lock already.",
    "lock objects": "A lock object is made and not used.",
}
RANGE = ["lowest", "median", "highest"]


def sizes(processes: int, nodes: int) -> str:
    """Return the name of a contest."""
    return f"hand-off, {processes} processes" + (f", {nodes} nodes" if nodes > 1 else "")


def plot(title: str, text: str) -> str:
    """Return a link to a plot of the site. Where the site is built, the plot takes its place."""
    return f"[Plot: {text}](https://redlock.dev/plots/{title}-light.svg)"


def measured(results: dict[str, Any], suite: str) -> str:
    """Say when the suite was measured, and in how many rounds."""
    of = {**results.get("machine", {}), **results.get("measured", {}).get(suite, {})}
    date = f"Results of {of['date']}" if of.get("date") else ""
    in_rounds = ("pairs", "growth", "quorum", "handoff", "fair", "shared")
    rounds = f"{of['rounds']} rounds" if of.get("rounds") and suite in in_rounds else ""
    return ", ".join(filter(None, (date, rounds))) + "." if date or rounds else ""


def machine(results: dict[str, Any]) -> str:
    of = results.get("machine", {})
    parts = [
        f"{of['cpus']} cores" if of.get("cpus") else "",
        of.get("system", ""),
        f"Redis {of['redis']}" if of.get("redis") else "",
        f"{of['rounds']} rounds" if of.get("rounds") else "",
        f"load before the start {of['load']:.1f}" if "load" in of else "",
        of.get("date", ""),
    ]
    return "Measured with: " + ", ".join(filter(None, parts)) + "." if any(parts) else ""


def versions(results: dict[str, Any]) -> str:
    """List what was measured, as each contender says it."""
    rows: list[Row] = []
    for suite in results.values():
        groups = suite.values() if isinstance(suite, dict) else [suite]
        rows += [row for group in groups if isinstance(group, list) for row in group if "version" in row]
    # The version, then a comma and the runtime.
    found = {who(row): [name(row), *row["version"].partition(", ")[::2]] for row in by_language(rows)}
    listed = table(["library", "version", "runtime"], list(found.values()))
    return page("## Versions", listed) if listed else ""


def against_ours(rows: list[Row], figure: str = "rates") -> str:
    """Compare ours with each comparable other library and with the bare client, round by round."""
    lines = []
    for row in by_language(rows, lambda row: (kind(row), row["library"])):
        for one in [] if ours(row) else filter(ours, rows):
            compared = ratios(one[figure], row[figure]) if comparable(one, row) else []
            if compared:
                lines.append([name(one), row["library"], *spread(compared)])
    return table(["ours", "divided by", *RANGE], lines)


def uncontended(rows: list[Row]) -> str:
    lines = [
        [name(row), µs(row["client"]), µs(row["server"]), number(mid(row["rates"]), ".0f")]
        + [µs(row.get(of), ".0f") for of in ("p50", "p99")]
        for row in by_language(rows, lambda row: mid(row["client"]))
    ]
    return table(["library", "client CPU µs", "server CPU µs", "per second", "p50 µs", "p99 µs"], lines)


def pairs(results: dict[str, Any]) -> str:
    parts = []
    for work, rows in results["pairs"].items():
        title = WORKS.get(work, work)
        compared = against_ours(rows)
        parts += [f"### {title[0].upper()}{title[1:]}", prose(EXPLAINED.get(work, "")), uncontended(rows)]
        if work == "100 independent, blocks":
            alt = "CPU time of an acquire and its release with new lock objects: a bar for each library"
            parts.append(plot("cpu-blocks", alt))
        parts += ["Acquires and releases per second, ours divided by the other's:" if compared else "", compared]
    return page("## Acquire and release", prose(measured(results, "pairs")), *parts)


def growth(results: dict[str, Any]) -> str:
    """Show acquires and releases per second against the number of locks at once."""
    counts = sorted(results["growth"], key=int)
    rates: dict[tuple[str, str], tuple[Row, dict[str, str]]] = {}
    for size in counts:
        for row in results["growth"][size]:
            rates.setdefault(who(row), (row, {}))[1][size] = number(mid(row["rates"]), ".0f")
    rows = by_language(row for row, _ in rates.values())
    lines = [[name(row), *(rates[who(row)][1].get(size, "-") for size in counts)] for row in rows]
    return page(
        "## More and more locks at once",
        prose(
            "Bursts, as above, of more and more locks: acquires and releases per second.", measured(results, "growth")
        ),
        plot("growth-parallel", "Acquires and releases per second against the number of locks at once"),
        table(["library", *(f"{number(int(size), '.0f')} at once" for size in counts)], lines),
    )


def quorum(results: dict[str, Any]) -> str:
    """Show ours on several nodes against ours on one, round by round, and other libraries beside it."""
    of = results["quorum"]
    alone = {who(row): row for row in of.get("1", [])}
    tables = {"up": [], "frozen": [], "slower": [], "slower, frozen": [], "others": []}
    for nodes, rows in of.items():
        count, frozen = nodes.split(",")[0], "frozen" in nodes
        for row in by_language(rows, lambda row: row["p50"]):
            figures = [µs(row.get(figure), ".0f") for figure in ("p50", "p99", "client", "server")]
            tables["frozen" if frozen else "up"].append([name(row), count, *figures])
            slower = ratios(alone[who(row)]["rates"], row["rates"]) if who(row) in alone and nodes != "1" else []
            if slower:
                tables["slower, frozen" if frozen else "slower"].append([name(row), count, *spread(slower)])
            for one in [] if ours(row) or nodes == "1" else filter(ours, rows):
                if kind(row) == "peer" and comparable(one, row) and ratios(one["rates"], row["rates"]):
                    tables["others"].append(
                        [name(one), row["library"], count, *spread(ratios(one["rates"], row["rates"]))]
                    )
    figures = table(["library", "nodes", "p50 µs", "p99 µs", "client CPU µs", "servers' CPU µs"], tables["up"])
    frozen = table(["library", "nodes", "p50 µs", "p99 µs", "client CPU µs", "servers' CPU µs"], tables["frozen"])
    slower = [table(["library", "nodes", *RANGE], tables[of]) for of in ("slower", "slower, frozen")]
    others = table(["ours", "divided by", "nodes", *RANGE], tables["others"])
    return page(
        "## Quorum",
        prose("One caller, on one, three and five nodes.", measured(results, "quorum")),
        figures,
        "One node is frozen, so it accepts requests and answers none:" if frozen else "",
        frozen,
        "The time of an acquire and its release, divided by the same library's on one node:" if slower[0] else "",
        slower[0],
        "The same with one node frozen:" if slower[1] else "",
        slower[1],
        "Acquires and releases per second, ours divided by the other's:" if others else "",
        others,
    )


def contested(rows: list[Row], level: str) -> str:
    """Show the time to the next grant, how the processes share the lock, and what a grant costs."""
    rows = by_language(rows, lambda row: (not ours(row), row["library"], row["processes"]))
    first = [[name(row), str(row["processes"])] for row in rows]
    columns: list[tuple[str, list[str], Callable[[Row], list[str]]]] = [
        (
            "Time from a release to the next grant",
            ["p50 ms, lowest", "p50 ms, median", "p50 ms, highest", "p99 ms"],
            lambda row: [*spread(row["p50"], 1e3), ms(row["p99"])],
        ),
        (
            "How the processes share the lock",
            ["longest wait ms", "slowest/fastest", "overlaps"],
            lambda row: [ms(row["worst_wait"], ".0f"), number(mid(row["fairness"])), str(row["overlaps"])],
        ),
        (
            "Cost of a grant",
            ["calls a grant", "client CPU µs", "server CPU µs"],
            lambda row: [number(mid(row["calls"]), ".1f"), µs(row["client"], ".0f"), µs(row["server"], ".0f")],
        ),
    ]
    parts = []
    for title, head, figures in columns:
        lines = [[*start, *figures(row)] for start, row in zip(first, rows, strict=True)]
        parts += [f"{level} {title}", table(["library", "processes", *head], lines)]
    return page(*parts) if rows else ""


def handoff(results: dict[str, Any]) -> str:
    rows = together(results["handoff"])
    one, five = ([row for row in rows if (row["nodes"] > 1) == several] for several in (False, True))
    text = (
        "Processes compete for one lock, hold it for 2 ms and rest for 2 ms. The time runs from a release to the next "
        "grant while another owner waits, whichever owner gets it. Slowest/fastest are the grants of the process that "
        "got fewest, divided by those of the process that got most. An overlap is a grant before the release of the "
        "previous holder; there must be none. Each figure is the median of the rounds, overlaps are the sum."
    )
    nodes = number(five[0]["nodes"], ".0f") if five else ""
    on_five = (
        f"The libraries that support quorums, on {nodes} nodes. Calls and CPU time are those of all nodes together."
        if five
        else ""
    )
    return page(
        "## Hand-off",
        prose(text, measured(results, "handoff")),
        plot("growth-handoff", "Time from a release to the next grant against the number of processes"),
        contested(one, "###"),
        f"### On {nodes} nodes" if five else "",
        prose(on_five),
        plot("handoff-quorum", f"Time from a release to the next grant on {nodes} nodes: a bar for each library")
        if five
        else "",
        contested(five, "####"),
    )


def herd(results: dict[str, Any]) -> str:
    lines = []
    for row in results["herd"]:
        memory = (row["rss_after"] - row["rss_before"]) / row["waiters"] / 1024
        order = "yes" if row["in_order"] else "no"
        lines.append(
            [
                *(name(row), number(row["waiters"], ".0f"), number(row["seconds"]), order),
                *(number(memory, ".1f"), number(row["calls"], ".1f")),
            ]
        )
    text = (
        "Many waiters of one process wait for one lock. It is released, and they get it one after another. Memory is "
        "the growth of the process, with the program's own task, future or thread for each waiter. A garbage "
        "collection in the meantime can make it negative."
    )
    head = ["library", "waiters", "s until all had it", "in order", "KiB a waiter", "calls a grant"]
    return page(
        "## Many waiters in one process",
        prose(text, measured(results, "herd")),
        plot("growth-herd", "Time until all waiters had the lock against their number"),
        table(head, lines),
    )


def fair(results: dict[str, Any]) -> str:
    """Show fair locks beside plain ones: uncontended, under contention, and with a long queue."""
    of = results["fair"]
    plain = {row["language"]: row for row in of["pairs"] if "fair" not in row["library"]}
    alone = [
        [name(row), number(mid(row["rates"]), ".0f"), *(µs(row[figure]) for figure in ("client", "server", "script"))]
        for row in by_language(of["pairs"], lambda row: row["library"])
    ]
    slower = [
        [name(row), *spread(ratios(plain[row["language"]]["rates"], row["rates"]))]
        for row in by_language(of["pairs"])
        if "fair" in row["library"] and row["language"] in plain
    ]
    queue = [
        [
            *(number(row["waiters"], ".0f"), number(row["seconds"]), "yes" if row["in_order"] else "no"),
            *(number(row["calls"], ".1f"), µs(row["handover"]), number(row["handover"] / row["alone"])),
        ]
        for row in of["queue"]
    ]
    text = (
        "`redlock-fair` is a lock with `fair=True`. Without contention both of its scripts read the queue. Under "
        "contention a grant takes three scripts: one queues, one fetches the grant that the server handed over, one "
        "releases and hands the lock to the next waiter. python-redis-lock is the other library with a queue: its "
        "release hands the lock to the waiter that has waited longest."
    )
    return page(
        "## Fair locks",
        prose(text, measured(results, "fair")),
        "One caller:" if alone else "",
        table(["library", "per second", "client CPU µs", "server CPU µs", "script µs"], alone),
        "The time of an acquire and its release, divided by that of a plain lock:" if slower else "",
        table(["library", *RANGE], slower),
        contested(together(of["handoff"]), "###"),
        "### A long queue" if queue else "",
        prose(
            "Many waiters of one process wait for a fair lock, which is then released. A hand-over is the script that "
            "releases the lock and hands it to the next waiter; it is compared with the mean of the two scripts of an "
            "acquire and a release without waiters. A connection has 1024 unanswered requests at most; further "
            "calls wait in their order."
        )
        if queue
        else "",
        table(
            [
                *("waiters", "s until all had it", "in order", "scripts a grant"),
                *("hand-over, server µs", "hand-over / script without waiters"),
            ],
            queue,
        ),
    )


KIND_NAMES = {"lock": "plain lock", "read": "reader", "write": "writer", "semaphore": "semaphore"}


def plain_beside(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Return each row of a read/write lock with that of the same library's plain lock."""
    plain = {who(row): row for row in rows if row["kind"] == "lock"}
    return [(row, plain[who(row)]) for row in by_language(rows) if row["kind"] != "lock" and who(row) in plain]


def shared(results: dict[str, Any]) -> str:
    """Show read/write locks beside plain ones, and semaphores beside those of other libraries."""
    of = results["shared"]

    def costs(rows: list[Row], last: str, figure: Callable[[Row], str]) -> str:
        lines = [
            [
                *(f"{name(row)}, {KIND_NAMES[row['kind']]}", µs(row["client"]), µs(row["server"])),
                *(number(mid(row["calls"]), ".1f"), number(mid(row["rates"]), ".0f"), figure(row)),
            ]
            for row in by_language(rows, lambda row: row["library"])
        ]
        return table(["library", "client CPU µs", "server CPU µs", "calls", "per second", last], lines)

    def p50(row: Row) -> str:
        return µs(row["p50"], ".0f")

    def p99(row: Row) -> str:
        return µs(row["p99"], ".0f")

    slower = [
        [f"{name(row)}, {KIND_NAMES[row['kind']]}", *spread(ratios(plain["rates"], row["rates"]))]
        for row, plain in plain_beside(of["one caller"])
    ]
    faster = [
        [name(row), *spread(ratios(row["rates"], plain["rates"]))] for row, plain in plain_beside(of["100 callers"])
    ]
    text = (
        "`redisson-rlock` stands for Redisson's `RLock`, `RReadWriteLock` and `RPermitExpirableSemaphore` here. A "
        "permit of the latter has a lease that nothing renews. A semaphore has 10 permits."
    )
    parts = [
        "### Read/write locks, one caller",
        "One acquire and its release after another, of a plain lock, by a reader and by a writer.",
        costs(of["one caller"], "p50 µs", p50),
        "The time of an acquire and its release, divided by that of a plain lock of that library:" if slower else "",
        table(["library", *RANGE], slower),
        "### 100 readers",
        prose("A hundred readers of one name at once, beside a hundred callers with a plain lock of a name each."),
        costs(of["100 callers"], "p50 µs", p50),
        "Acquires and releases per second of the readers, divided by those of the plain locks:" if faster else "",
        table(["library", *RANGE], faster),
    ]
    for title, heading, explained in (
        ("semaphore", "Semaphore, 100 callers", "A hundred callers acquire a permit and release it at once."),
        ("semaphore, 2 ms", "Semaphore, 100 callers, 2 ms", "The same, but each holds its permit for 2 ms."),
    ):
        compared = against_ours(of[title])
        parts += [
            f"### {heading}",
            explained,
            costs(of[title], "p99 µs", p99),
            "Acquires and releases per second, ours divided by the other's:" if compared else "",
            compared,
        ]
    return page("## Read/write locks and semaphores", prose(text, measured(results, "shared")), *parts)


def watchdog(results: dict[str, Any]) -> str:
    text = (
        "One Rust client holds locks that its watchdog renews. The CPU time is that of the renewals while all locks "
        "are held. The server records calls of 0.2 ms and more, so 0.20 means that none took longer."
    )
    return page("## Locks kept alive", prose(text, measured(results, "watchdog")), kept(results["watchdog"], full=True))


def kept(rows: list[Row], full: bool = False) -> str:
    lines = [
        [number(row["held"], ".0f"), number(row["client"] * 100), number(row["server"] * 100), ms(row["slowest"])]
        + [str(row["lost"])]
        + ([number(row["kept"], ".0f")] if full else [])
        for row in rows
    ]
    head = ["held locks", "client, % of a core", "server, % of a core", "slowest server call ms", "lost locks"]
    return table(head + (["kept for s"] if full else []), lines)


def names(results: dict[str, Any]) -> str:
    rows = by_language(results["names"])
    server = [
        [
            name(row),
            *(number(row[of], ".0f") for of in ("names", "keys", "server", "keys_left")),
            number(row["server_left"], ".1f"),
        ]
        for row in rows
    ]
    client = [[name(row), *(number(row[of] / 2**20, ".0f") for of in ("rss_before", "rss_after"))] for row in rows]
    text = (
        "One client uses each of very many names once. The server keeps a token counter for each name until "
        "`token_ttl` after its last use. `token_ttl` is shorter here than its default, so that its end is measured, "
        "too. The heap of the JVM is limited to 128 MiB."
    )
    head = ["library", "names", "counters", "bytes each", "counters after `token_ttl`", "bytes a name after it"]
    return page(
        "## Very many names",
        prose(text, measured(results, "names")),
        "On the server:",
        table(head, server),
        "Memory of the client process in MiB (RSS):",
        table(["library", "after a hundredth of the names", "after all names"], client),
    )


SUITES: dict[str, Callable[[dict[str, Any]], str]] = {
    "pairs": pairs,
    "growth": growth,
    "quorum": quorum,
    "handoff": handoff,
    "herd": herd,
    "fair": fair,
    "shared": shared,
    "watchdog": watchdog,
    "names": names,
}
