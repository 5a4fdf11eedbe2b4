"""Tests of report.py. They need no server and no other library: run.py's suites run with fake servers and contenders,
so the results have the form that run.py writes.

Run them with `pytest bench/test_report.py`.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import zlib
from pathlib import Path
from typing import Any

import figures
import pytest
import report
import rows
import run
import tables
from ahead import HANDOFF_FIGURES, PAIR_FIGURES
from goals import Goals

# Of these figures, the peer in a list of who is ahead must have the larger one.
LARGER = {"per second", "slowest/fastest"}
NO_QUORUM = {"redis-py-sync", "redis-py-asyncio", "python-redis-lock", "redisson-rfenced", "redlock-fair"}
SUITES = ("pairs", "growth", "quorum", "handoff", "herd", "fair", "shared", "watchdog", "names")
NESTS = {"redisson-rlock", "redisson-rfenced"}


def chance(*of: Any) -> float:
    """Return a number from 0.5 to 1.5 that depends on its arguments only."""
    return 0.5 + zlib.crc32(repr(of).encode()) % 1000 / 1000


class FakeServer:
    up = True

    def command(self, *words: str) -> Any:
        return [[1, 0, 570]] if words[:2] == ("SLOWLOG", "GET") else []

    def freeze(self) -> None:
        pass

    thaw = freeze


class FakeContender:
    def __init__(self, language: str, library: str, nodes: int, place: int, of: int) -> None:
        self.language, self.library, self.nodes = language, library, nodes
        self.place, self.of = place, of  # among the processes that start with it
        self.version = f"1.2.3, {language} 4"
        self.used, self.turn, self.told = 0.0, 0, {}

    def cpu(self) -> float:
        return self.used

    def tell(self, **work: Any) -> None:
        self.told = work

    def answer(self, within: float) -> dict[str, Any] | None:
        return self.ask(**self.told)

    def close(self) -> None:
        pass

    def ask(self, within: float = 60, **work: Any) -> dict[str, Any] | None:
        self.turn += 1
        of = work["work"]
        luck = chance(self.language, self.library, of, self.turn, self.nodes) * chance(self.language, self.library)
        self.used += 1000 * 20e-6 * luck
        if of == "nested" and not (run.is_ours(self.language, self.library) or self.library in NESTS):
            return None
        if of == "objects":
            return {"count": 1000, "seconds": 0.4}
        if of == "names":
            return {"seconds": 9.0, "rss": int(50e6 * luck)}
        if of == "herd":
            rss = {"rss_before": 10_000_000, "rss_after": 10_000_000 + int(5_000 * luck * work["waiters"])}
            return {"seconds": luck, "in_order": luck > 0.5, **rss}
        if of == "hold":
            return {"taken": 1.0, "kept": work["seconds"], "released": 1.0, "cpu": 0.1 * work["seconds"], "lost": 0}
        if of == "contend":
            step = 2_000_000 + int(5e5 * luck)  # each in turn
            grants = [(at * self.of + self.place) * step for at in range(20)]
            return {"turns": [[at - step, at, at + 2_000_000, at + 2_100_000] for at in grants], "failures": []}
        rate = 10_000 / luck / self.nodes
        return {"count": 1000, "seconds": 1000 / rate, "p50": 0.8 / rate, "p99": 3 / rate}


class FakeArena:
    def __init__(self, nodes: int = 1) -> None:
        self.servers = [FakeServer() for _ in range(nodes)]
        self.asked, self.used = 0, 0.0

    def __enter__(self) -> FakeArena:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def enter(self, wanted: list[tuple[str, str]], *_: Any, **__: Any) -> list[FakeContender]:
        able = [of for of in wanted if len(self.servers) == 1 or of[1] not in NO_QUORUM]
        return [FakeContender(*of, len(self.servers), at, len(able)) for at, of in enumerate(able)]

    def together(self, _: FakeContender) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def commands(self, library: str) -> tuple[int, float]:
        self.asked += 1
        return 3000 * self.asked, 0.01 * self.asked * chance(library, self.asked)

    def record_scripts(self, at_least: int = 0) -> None:
        pass

    def recorded_scripts(self) -> list[tuple[str, float]]:
        self.asked += 1
        return [(script, 10e-6 * chance(script, self.asked)) for script in ("queue", "release")]

    def cpu(self) -> float:
        self.asked += 1
        self.used += 0.02 * chance(self.asked)
        return self.used

    def memory(self) -> int:
        self.asked += 1
        return 130_000_000 * self.asked

    def keys(self) -> int:
        return 0

    def expire(self) -> None:
        pass


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """The results of all suites of run.py, in three rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Arena", FakeArena)
        patch.setattr(run.time, "sleep", lambda seconds: None)
        bench = run.Bench(smoke=False, rounds=3, languages=list(run.OURS))
        results = {suite: getattr(bench, suite)() for suite in SUITES}
    machine = {"cpus": 2, "system": "Linux 6", "redis": "7.0.15", "rounds": 3, "load": 0.25, "date": "2026-11-24"}
    return json.loads(json.dumps({"machine": machine, **results}))


@pytest.fixture
def results(measured: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(measured)


def cells(text: str) -> list[list[str]]:
    """Return the lines of all tables in a text, with their heads."""
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("|")]


def markers(path: Path) -> list[str]:
    return re.findall(r"<!-- ([\w, ]+) -->\n(?:(?!<!-- ).)*<!-- end -->", path.read_text(), re.S)


def row(library: str, **figures: list[float]) -> dict[str, Any]:
    return {"language": "Node", "library": library, **figures}


@pytest.mark.parametrize("figure", ["client", "server", "p50", "p99", "calls", "worst_wait"])
def test_of_costs_and_times_the_smaller_one_is_ahead(figure: str) -> None:
    less, more = row("less", **{figure: [1.0, 1.1, 1.2]}), row("more", **{figure: [2.0, 2.2, 2.4]})
    assert rows.is_ahead(less, more, figure)
    assert not rows.is_ahead(more, less, figure)
    assert rows.gain(less, more, figure) == pytest.approx(2)
    assert rows.best([more, less], figure) is less


@pytest.mark.parametrize("figure", ["rates", "fairness"])
def test_of_rates_and_fairness_the_larger_one_is_ahead(figure: str) -> None:
    less, more = row("less", **{figure: [1.0, 1.1, 1.2]}), row("more", **{figure: [2.0, 2.2, 2.4]})
    assert rows.is_ahead(more, less, figure)
    assert not rows.is_ahead(less, more, figure)
    assert rows.gain(more, less, figure) == pytest.approx(2)
    assert rows.best([more, less], figure) is more


def test_who_is_ahead_round_by_round_but_not_in_the_shown_median_is_not_ahead() -> None:
    ours, theirs = row("ours", client=[10.0, 87.8, 100.0]), row("theirs", client=[94.2, 60.0, 95.0])
    assert rows.gain(theirs, ours, "client") > 1.02
    assert not rows.is_ahead(theirs, ours, "client")
    assert not rows.is_ahead(ours, theirs, "client")


def test_two_percent_are_nothing() -> None:
    assert not rows.is_ahead(row("a", client=[1.00]), row("b", client=[1.015]), "client")


def test_a_missing_round_does_not_shift_the_others() -> None:
    assert rows.ratios([1.0, 2.0, 3.0], [2.0, 3.0]) == [2.0 / 2.5]
    assert rows.ratios([None, 2.0], [5.0, 4.0]) == [0.5]
    assert rows.ratios([], [1.0]) == []
    merged = rows.together(
        [
            {"language": "Node", "library": "redlock", "nodes": 1, "processes": 2, "overlaps": 0, "p50": p50}
            for p50 in (None, 0.5)
        ]
    )
    assert merged[0]["p50"] == [None, 0.5]


def test_every_library_in_the_list_is_better(results: dict[str, Any]) -> None:
    lines = [line for line in cells(report.parts_of(results)["ahead, all"]) if line[0] not in ("work", "---")]
    assert {line[2] for line in lines} >= {"client CPU µs", "per second", "server CPU µs a grant"}
    for work, ours, figure, own, library, other in lines:
        one, peer = (float(value.replace(" ", "")) for value in (own, other))
        assert peer >= one if figure in LARGER else peer <= one, (work, ours, figure, own, library, other)
    assert {figure.label for figure in (*PAIR_FIGURES, *HANDOFF_FIGURES)} >= LARGER


def test_the_short_list_agrees_with_the_full_one(results: dict[str, Any]) -> None:
    parts = report.parts_of(results)
    full = {(line[0], line[1], line[4]) for line in cells(parts["ahead, all"])}
    for work, ours, *ahead in cells(parts["ahead"])[2:]:
        for cell in filter(None, ahead):
            library, factor = cell.rsplit(" ", 1)
            assert (work, ours, library) in full
            assert float(factor) > 1.02 - 0.005


def test_each_kind_of_lock_is_compared_with_the_plain_lock_of_its_library(results: dict[str, Any]) -> None:
    text = report.parts_of(results)["rows of shared"]
    compared = {line[0] for line in cells(text.split("divided by that of a plain lock")[1].split("###")[0])}
    for language, libraries in run.SHARED.items():
        for library, kinds in libraries.items():
            row = {"language": language, "library": library}
            for kind in {"read", "write"} & set(kinds):
                assert f"{rows.name(row)}, {tables.KIND_NAMES[kind]}" in compared


def test_goals_of_kinds_are_missed_when_the_figures_are_too_large(results: dict[str, Any]) -> None:
    def verdicts(of: dict[str, Any]) -> dict[str, str]:
        return {line[0]: line[-1] for line in cells(report.parts_of(of)["goals of kinds"])[2:]}

    for row in results["fair"]["queue"]:
        row |= {"alone": 10e-6, "handover": 22e-6}
    goal = next(goal for goal in verdicts(results) if "10 000 waiters" in goal)
    assert verdicts(results)[goal] == "yes"
    results["fair"]["queue"][-1]["handover"] = 22.1e-6
    assert verdicts(results)[goal] == "no"
    for row in results["shared"]["semaphore"]:
        if row["library"] == "redis-semaphore":
            row["rates"] = [rate * 1e3 for rate in row["rates"]]
    assert verdicts(results)["Node, semaphore, 100 callers: rate, divided by redis-semaphore's"] == "no"


def test_tables_have_six_columns_at_most_and_one_figure_a_cell(results: dict[str, Any]) -> None:
    for part, text in report.parts_of(results).items():
        for line in cells(text):
            assert len(line) <= 6, (part, line)
            for cell in line[1:]:
                figures = re.findall(r"(?<![\w.-])-?\d[\d ]*(?:\.\d+)?(?![\w.])", cell)
                assert len(figures) <= 1, (part, cell)
                assert not re.search(r"<br|\d / \d|\d, \d|\d - \*\*", cell), (part, cell)


def test_every_row_is_in_the_results(results: dict[str, Any]) -> None:
    parts = report.parts_of(results)
    for suite in ("pairs", "growth", "quorum", "handoff", "herd", "names", "fair"):
        groups = results[suite].values() if isinstance(results[suite], dict) else [results[suite]]
        shown = {line[0] for line in cells(parts[f"rows of {suite}"])}
        assert {rows.name(row) for group in groups for row in group} <= shown


def test_prose_fits_the_lines_of_a_page(results: dict[str, Any]) -> None:
    for part, text in report.parts_of(results).items():
        for line in text.splitlines():
            if not line.startswith(("|", " ", "[Plot: ")):
                assert len(line) <= 125, (part, line)
            assert not re.match(r"\d+\. |[+] ", line), f"{part}: a line that begins a list: {line}"


def test_rows_that_are_not_known_are_shown(results: dict[str, Any]) -> None:
    newcomers = [{"language": "Go", "library": "redsync"}, {"language": "Node", "library": "brand-new"}]
    for work in results["pairs"].values():
        work += [{**work[0], **newcomer} for newcomer in newcomers]
    results["pairs"]["a work of its own"] = results["pairs"]["sequential"]
    results["quorum"]["7"] = results["quorum"]["5"]
    for rounds in (results["handoff"], results["herd"], results["names"], results["fair"]["handoff"]):
        rounds += [{**rounds[0], **newcomer} for newcomer in newcomers]
    results["a suite of its own"] = {"anything": 1}
    parts = report.parts_of(results)
    assert "### A work of its own" in parts["rows of pairs"]
    for of in ("pairs", "handoff", "herd", "names"):
        assert {"Go redsync", "Node brand-new"} <= {line[0] for line in cells(parts[f"rows of {of}"])}


@pytest.mark.parametrize("language", run.OURS)
def test_one_language_alone(results: dict[str, Any], language: str) -> None:
    def only(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in of if row.get("language", language) == language]

    for suite, of in results.items():
        if suite != "machine":
            results[suite] = {key: only(group) for key, group in of.items()} if isinstance(of, dict) else only(of)
    parts = report.parts_of(results)
    assert cells(parts["answer of pairs"])
    assert parts["goals"]


@pytest.mark.parametrize("suite", SUITES)
def test_one_suite_alone(results: dict[str, Any], suite: str) -> None:
    parts = report.parts_of({suite: results[suite]})
    assert set(parts) - {"versions"} <= {f"rows of {suite}", f"answer of {suite}", "speed"}


def test_pages_have_a_place_for_each_part_and_fill_it(results: dict[str, Any], tmp_path: Path) -> None:
    parts = report.parts_of(results)
    assert {marker for page in report.PAGES for marker in markers(page)} == set(parts)
    pages = [tmp_path / page.name for page in report.PAGES]
    for page, original in zip(pages, report.PAGES, strict=True):
        page.write_text(original.read_text())
    assert report.place(parts, pages) == set()
    for page in pages:
        text = page.read_text()
        for marker in markers(page):
            assert f"<!-- {marker} -->\n{parts[marker]}\n<!-- end -->" in text
    written = [page.read_text() for page in pages]
    report.place(parts, pages)
    assert [page.read_text() for page in pages] == written


def test_what_was_not_measured_stays(results: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- answer of names -->\nas it was\n<!-- end -->\n<!-- machine -->\n<!-- end -->\n")
    del results["names"]
    missing = report.place(report.parts_of(results), [page])
    assert "as it was" in page.read_text()
    assert "Redis 7.0.15" in page.read_text()
    assert "answer of pairs" in missing


def test_links_of_the_parts_lead_somewhere(results: dict[str, Any]) -> None:
    parts = report.parts_of(results)
    headings = re.findall(r"^#+ (.*)$", report.PAGES[1].read_text() + "\n".join(parts.values()), re.M)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for text in (*parts.values(), report.PAGES[0].read_text()):
        for anchor in re.findall(r"\(results\.md#([\w-]+)\)", text):
            assert anchor in anchors


def test_a_goal_is_met_as_it_is_shown() -> None:
    goals = Goals({})
    goals.add("just so", ("-", "-"), ("≥", 0.85), [0.8467])
    goals.add("not", ("-", "-"), ("≥", 0.85), [0.8449])
    goals.add("just under", ("-", "-"), ("≤", 25), [25.004])
    assert [line[-1] for line in goals.lines] == ["yes", "no", "yes"]


def test_faults_are_called_faults(results: dict[str, Any]) -> None:
    assert "No grant overlapped" in " ".join(report.parts_of(results)["answer of handoff"].split())
    next(row for row in results["handoff"] if row["library"] == "redlock-core")["overlaps"] = 2
    results["watchdog"][-1]["lost"] = 3
    parts = report.parts_of(results)
    assert "overlapped 2 times" in " ".join(parts["answer of handoff"].split())
    assert "lost 3" in " ".join(parts["answer of watchdog"].split())


def test_each_suite_says_when_it_was_measured(results: dict[str, Any]) -> None:
    results["measured"] = {"names": {"date": "2026-11-20"}}
    parts = report.parts_of(results)
    assert "Results of 2026-11-20." in parts["answer of names"]
    for part in ("answer of pairs", "ahead", "ahead, all"):
        assert "Results of 2026-11-24, 3 rounds." in parts[part]


def test_a_file_without_a_date_is_of_the_day_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('{"machine": {"cpus": 2}}')
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", report.load(path)["machine"]["date"])


def test_figures_of_plots(results: dict[str, Any], tmp_path: Path) -> None:
    pages = "\n".join(path.read_text() for path in report.PAGES) + "\n".join(report.parts_of(results).values())
    shown = set(re.findall(r"plots/([\w-]+)-(?:light|dark)\.svg", pages))
    assert shown == figures.figures(results).keys() == json.loads(figures.FIGURES.read_text()).keys()
    file = tmp_path / "figures.json"
    file.write_text('{"other": {"kind": "bars", "panels": {"Rust": [["redlock", "ours", [1.5]]]}}}')
    figures.write(results, file)
    written = file.read_text()
    assert json.loads(written) == figures.figures(results) | {"other": json.loads(written)["other"]}
    figures.write({}, file)
    assert file.read_text() == written


def test_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import plots

    plots.draw(tmp_path, ["cpu", "growth-herd"])
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {f"{name}-{theme}.svg" for name in ("cpu", "growth-herd") for theme in ("light", "dark")}


def test_titles_of_works_are_known() -> None:
    assert set(tables.EXPLAINED) <= set(tables.WORKS)


@pytest.mark.parametrize(
    ("value", "form", "text"), [(-0.3, ".0f", "0"), (-1.0, ".0f", "-1"), (12345.6, ".1f", "12 345.6")]
)
def test_a_number_that_rounds_to_zero_has_no_sign(value: float, form: str, text: str) -> None:
    assert rows.number(value, form) == text
