"""scripts/options reports options, defaults, ranges and comments that differ from docs/options.json, in a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [
    *("core/src", "bindings/python/src", "bindings/node/src", "bindings/kotlin/src"),
    *("python/redlock", "node/src", "kotlin/src/main/kotlin"),
]
CONFIG = "core/src/config/mod.rs"
VALIDATION = "core/src/config/validation.rs"
CHOICES = "core/src/ffi/options.rs"
PYTHON = "python/redlock/_options.py"
NODE = "node/src/options.ts"
KOTLIN = "kotlin/src/main/kotlin/dev/redlock/Options.kt"
LIST = "docs/options.json"
PAGE = "docs/configuration.md"


class Copy:
    """The script and all that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in FOLDERS:
            shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for path in ("scripts/options", "scripts/sources.py", LIST, PAGE):
            (folder / path).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / path, folder / path)

    def run(self, *arguments: str) -> list[str]:
        """Runs the script. Returns the lines that it prints, none if all places agree."""
        command = [sys.executable, self.folder / "scripts/options", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert bool(done.returncode) == bool(done.stdout)
        lines = done.stdout.splitlines()
        assert not lines or lines.pop(0) == "options do not agree:", done.stdout
        return lines

    def replace(self, path: str, before: str, after: str) -> None:
        """Changes one place of a file."""
        text = (self.folder / path).read_text()
        assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
        (self.folder / path).write_text(text.replace(before, after))

    def change_line(self, path: str, line: str, before: str, after: str) -> None:
        """Changes the one line of a file that has this text."""
        text = (self.folder / path).read_text()
        [found] = [each for each in text.splitlines() if line in each]
        assert found.count(before) == 1
        (self.folder / path).write_text(text.replace(found, found.replace(before, after)))

    def change_list(self, name: str, **changes: Any) -> None:
        """Changes the entry of an option. None removes a field; without changes removes the entry."""
        listed = json.loads((self.folder / LIST).read_text())
        [option] = [option for option in listed["options"] if option["name"] == name]
        if not changes:
            listed["options"].remove(option)
        for field, value in changes.items():
            option[field] = value
        (self.folder / LIST).write_text(json.dumps(listed))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy in which all places agree."""
    return Copy(tmp_path)


def test_all_places_agree(copy: Copy) -> None:
    assert copy.run() == []
    before = (copy.folder / PAGE).read_text()
    assert copy.run("--write") == []
    assert (copy.folder / PAGE).read_text() == before


def test_a_wrong_default_in_the_list_is_reported(copy: Copy) -> None:
    copy.change_list("patience", default="6 s")
    reported = copy.run()
    assert f"{LIST}: the default of patience is 6 s, in the core it is 5 s" in reported
    assert f"{NODE}: the comment of patience does not say its default, 6 s" in reported
    assert f"{PAGE}: differs from {LIST}; write it with scripts/options --write" in reported


@pytest.mark.parametrize(
    ("before", "after", "option", "listed", "found"),
    [
        ("patience: Duration::from_secs(5)", "patience: Duration::from_millis(5)", "patience", "5 s", "5 ms"),
        ("drift: 0.1", "drift: 0.2", "drift", "0.1", "0.2"),
        ("quarantine: true", "quarantine: false", "quarantine", "true", "false"),
        ("strict: false,\n", "strict: true,\n", "strict", "false", "true"),
        ("reentrant: true,", "reentrant: false,", "reentrant", "true", "false"),
        (
            "    /// similar libraries exclude each other.\n    Token",
            "    #[default]\n    Token",
            "wire",
            "redisson",
            "token",
        ),
    ],
)
def test_a_default_that_changes_in_the_core_is_reported(
    copy: Copy, before: str, after: str, option: str, listed: str, found: str
) -> None:
    if option == "wire":
        copy.replace(CONFIG, "    #[default]\n    Redisson,\n    /// A string", "    Redisson,\n    /// A string")
    copy.replace(CONFIG, before, after)
    assert copy.run() == [f"{LIST}: the default of {option} is {listed}, in the core it is {found}"]


@pytest.mark.parametrize(
    ("line", "before", "after", "options"),
    [
        ("const MIN_WATCHDOG", "300", "200", ["watchdog"]),
        ("const MOST_PERMITS", "65_536", "1024", ["permits"]),
        ("contains(&self.drift)", "0.01..0.5", "0.02..0.5", ["drift"]),
        ("contains(&name.len())", "256", "255", ["owner"]),
        ("if timeout < ", "from_millis(1)", "from_millis(2)", ["patience", "connect_timeout", "reply_timeout"]),
    ],
)
def test_a_range_that_changes_in_the_core_is_reported(
    copy: Copy, line: str, before: str, after: str, options: list[str]
) -> None:
    copy.change_line(VALIDATION, line, before, after)
    reported = [found.split(" is (")[0] for found in copy.run()]
    assert reported == [f"{LIST}: the range of {option}" for option in options]


def test_an_option_that_the_list_lacks_is_reported(copy: Copy) -> None:
    copy.change_list("max_hold")
    reported = copy.run()
    for where in (
        f"{CHOICES} (LOCK_OPTIONS)",
        f"{CONFIG} (LockOptions)",
        *(f"{PYTHON} ({name})" for name in ("LockOptions", "ReadWriteOptions", "SemaphoreOptions")),
    ):
        assert f"{where} has the option max_hold, {LIST} does not" in reported
    for where in (f"{NODE} (LockOptions)", f"{KOTLIN} (LockOptions)", f"{KOTLIN} (methods of LockOptions)"):
        assert f"{where} has the option maxHold, {LIST} does not" in reported


def test_an_option_that_a_language_lacks_is_reported(copy: Copy) -> None:
    copy.replace(NODE, "strict?: boolean", "strictly?: boolean")
    assert copy.run() == [
        f"{NODE} (ClientOptions) has the option strictly, {LIST} does not",
        f"{LIST} has the option strict, {NODE} (ClientOptions) does not",
    ]
    copy.replace(KOTLIN, "public fun strict(strict: Boolean)", "public fun strictly(strict: Boolean)")
    assert f"{LIST} has the option strict, {KOTLIN} (methods of RedlockOptions) does not" in copy.run()


def test_an_option_for_another_kind_of_lock_is_reported(copy: Copy) -> None:
    copy.change_list("reentrant", of=["lock", "read_write", "semaphore"])
    reported = copy.run()
    assert f"{LIST} has the option reentrant, {PYTHON} (SemaphoreOptions) does not" in reported
    assert f"{LIST} has the option reentrant, {NODE} (SemaphoreOptions) does not" in reported


def test_an_argument_of_acquire_that_the_list_lacks_is_reported(copy: Copy) -> None:
    copy.replace("python/redlock/_sync.py", "*, n: int = 1) ->", "*, n: int = 1, soon: bool = False) ->")
    assert copy.run() == [f"python/redlock/_sync.py (acquire) has the option soon, {LIST} does not"]


@pytest.mark.parametrize(
    ("path", "line", "before", "after", "option", "wanting"),
    [
        (PYTHON, "before a waiting acquire", "Default: 5 s", "Default: 6 s", "patience", "its default, 5 s"),
        (PYTHON, '"""The time-out of a reply', "1 ms or more", "", "reply_timeout", "its range, 1 ms to 10 years"),
        (NODE, "The time-out of a connect", "Default: 2 s", "", "connect_timeout", "its default"),
        (NODE, "How much faster", "below 0.5", "below 0.6", "drift", "its range, 0.01 to below 0.5"),
        (KOTLIN, "@param quorum", "default: a majority", "default: all", "quorum", "its default, a majority"),
        (KOTLIN, "@param wait", "zero is one try;", "", "wait", "its range, 0 to 10 years"),
        (CONFIG, "A try fails at once.", "5 s", "5 ms", "patience", "its default, 5 s"),
    ],
)
def test_a_comment_without_default_or_range_is_reported(
    copy: Copy, path: str, line: str, before: str, after: str, option: str, wanting: str
) -> None:
    copy.change_line(path, line, before, after)
    assert copy.run() == [f"{path}: the comment of {option} does not say {wanting}"]


def test_a_comment_without_the_unit_is_reported(copy: Copy) -> None:
    copy.replace(
        NODE,
        "/** The options of a lock. Times are milliseconds, 10 years at most",
        "/** The options of a lock. 10 years at most",
    )
    assert copy.run() == [f"{NODE}: the comment of LockOptions does not say that times are milliseconds"]


def test_an_error_that_no_source_has_is_reported(copy: Copy) -> None:
    copy.replace(VALIDATION, "must be from 0.01 to below 0.5, not {}", "must be from 0.01 to 0.5, not {}")
    assert copy.run() == [f"{LIST}: no source has the error 'drift: must be from 0.01 to below 0.5, not 0.5'"]


def test_variables_and_parts_of_urls_are_compared(copy: Copy) -> None:
    copy.replace(CONFIG, 'std::env::var_os("REDLOCK_URL")', 'std::env::var_os("REDLOCK_NODES")')
    copy.replace("core/src/url.rs", 'self.query("protocol")', 'self.query("resp")')
    copy.replace("core/src/url.rs", '"rediss" | "valkeys" =>', '"rediss" =>')
    assert copy.run() == [
        f"the sources has the option REDLOCK_NODES, {LIST} does not",
        f"{LIST} has the option valkeys, core/src/url.rs (schemes) does not",
        f"core/src/url.rs (parameters) has the option resp, {LIST} does not",
        f"{LIST} has the option protocol, core/src/url.rs (parameters) does not",
    ]


def test_a_page_that_was_edited_by_hand_is_reported_and_written_again(copy: Copy) -> None:
    before = (copy.folder / PAGE).read_text()
    copy.replace(PAGE, "| a time | 5 s | 1 ms | 10 years |", "| a time | 7 s | 1 ms | 10 years |")
    copy.replace("python/redlock/_sync.py", "Default: 5 s.", "Default: 7 s.")
    assert copy.run() == [
        f"{PAGE}: differs from {LIST}; write it with scripts/options --write",
        f"python/redlock/_sync.py: differs from {LIST}; write it with scripts/options --write",
    ]
    assert copy.run("--write") == []
    assert (copy.folder / PAGE).read_text() == before


def test_a_part_without_markers_is_reported(copy: Copy) -> None:
    copy.replace(PAGE, "<!-- options: Replicas -->", "")
    assert copy.run() == [f"{PAGE}: the part 'Replicas' has no markers, or nothing makes it"]


def test_sources_that_the_script_does_not_understand_are_an_error(copy: Copy) -> None:
    copy.replace(CHOICES, "const LOCK_OPTIONS:", "const OPTIONS_OF_LOCKS:")
    command = [sys.executable, copy.folder / "scripts/options"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout.startswith("scripts/options does not understand the sources: ")
