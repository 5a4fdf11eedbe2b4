"""scripts/troubleshooting demands an entry for each error, reason, outcome, event and message, in a copy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["core/src", "bindings/python/src", "python/redlock", "node/src", "kotlin/src/main/kotlin"]
PAGE = "docs/troubleshooting.md"
ERRORS = "core/src/error.rs"


class Copy:
    """The script and all that it reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in FOLDERS:
            shutil.copytree(ROOT / path, folder / path, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        for path in ("scripts/troubleshooting", "scripts/sources.py", PAGE):
            (folder / path).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / path, folder / path)

    def run(self) -> list[str]:
        """Runs the script. Returns the lines that it prints, none if nothing is missing."""
        command = [sys.executable, self.folder / "scripts/troubleshooting"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        assert bool(done.returncode) == bool(done.stdout)
        lines = done.stdout.splitlines()
        assert not lines or lines.pop(0) == "entries do not match the sources:", done.stdout
        return lines

    def replace(self, path: str, before: str, after: str) -> None:
        """Changes one place of a file."""
        text = (self.folder / path).read_text()
        assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
        (self.folder / path).write_text(text.replace(before, after))

    def remove_entry(self, section: str, word: str) -> None:
        """Removes the heading of an entry, and leaves its text."""
        text = (self.folder / PAGE).read_text()
        before, heading, after = text.partition(f"\n## {section}\n")
        entry = re.compile(rf"^### `{word}`.*\n", re.M)
        assert entry.search(after)
        (self.folder / PAGE).write_text(before + heading + entry.sub("", after, count=1))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy in which nothing is missing."""
    return Copy(tmp_path)


def test_nothing_is_missing(copy: Copy) -> None:
    assert copy.run() == []


@pytest.mark.parametrize(
    ("section", "word", "variant"),
    [
        ("Errors", "not_held", "LockError::NotHeld"),
        ("Reasons of a loss", "max_hold", "LostReason::MaxHold"),
        ("Outcomes of a release", "unconfirmed", "ReleaseOutcome::Unconfirmed"),
        # The other sections have an entry with this word, too.
        ("Outcomes of a release", "lost", "ReleaseOutcome::Lost"),
        ("Log lines and events", "at_risk", "Event::AtRisk"),
    ],
)
def test_a_missing_entry_is_reported(copy: Copy, section: str, word: str, variant: str) -> None:
    copy.remove_entry(section, word)
    assert copy.run() == [f"{PAGE}: the section '{section}' has no entry `{word}` ({variant})"]


def test_a_new_variant_needs_an_entry(copy: Copy) -> None:
    copy.replace(
        ERRORS,
        "    /// The client was closed.\n    Closed,\n    /// The process forked",
        "    Stolen,\n    Closed,\n    /// The process forked",
    )
    copy.replace(
        ERRORS,
        'Self::Closed => "closed",\n            Self::Forked',
        'Self::Closed => "closed",\n            Self::Stolen => "stolen",\n            Self::Forked',
    )
    assert copy.run() == [f"{PAGE}: the section 'Reasons of a loss' has no entry `stolen` (LostReason::Stolen)"]


def test_a_variant_without_a_word_is_an_error(copy: Copy) -> None:
    copy.replace(
        ERRORS, "    /// The lock was held for longer than `max_hold`.\n    MaxHold,", "    MaxHold,\n    Stolen,"
    )
    command = [sys.executable, copy.folder / "scripts/troubleshooting"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 1
    assert "`LostReason::as_str` does not spell Stolen" in done.stdout


def test_an_entry_of_no_variant_is_reported(copy: Copy) -> None:
    copy.replace(PAGE, "### `forked`", "### `stolen`\n\n### `forked`")
    assert copy.run() == [
        f"{PAGE}: the section 'Reasons of a loss' has the entry `stolen`, which is no variant of LostReason"
    ]


@pytest.mark.parametrize(
    ("path", "before", "after", "message"),
    [
        (
            "core/src/server/redis/request.rs",
            'not_run_error("replicas have not acknowledged earlier locks yet")',
            'not_run_error(format!("{count} earlier locks lack replicas"))',
            "… earlier locks lack replicas",
        ),
        (
            "core/src/server/redis/errors.rs",
            '"; free memory, or raise maxmemory"',
            '"; free some memory first"',
            "; free some memory first",
        ),
        (
            "core/src/event.rs",
            'write!(f, "node {node} answers again")',
            'write!(f, "node {node} is back again")',
            "node … is back again",
        ),
    ],
)
def test_a_message_that_changes_is_reported_in_both_directions(
    copy: Copy, path: str, before: str, after: str, message: str
) -> None:
    copy.replace(path, before, after)
    reported = copy.run()
    assert reported[0] == f"{PAGE} does not have the message {message!r} of {path}"
    assert len(reported) == 2
    assert reported[1].endswith(", which no source has")


def test_a_message_that_no_source_has_is_reported(copy: Copy) -> None:
    copy.replace(
        PAGE, "- `connection refused`: nothing listens", "- `connection refused`, `nobody is home`: nothing listens"
    )
    assert copy.run() == [f"{PAGE} has the message 'nobody is home', which no source has"]


def test_a_message_of_a_language_is_compared(copy: Copy) -> None:
    copy.replace("node/src/native.ts", "redlock-core needs Node 20 or newer", "redlock-core needs Node 22 or newer")
    assert copy.run() == [
        f"{PAGE} has the message 'redlock-core needs Node 20 or newer; this is Node', which no source has"
    ]


def test_texts_that_users_do_not_see_need_no_entry(copy: Copy) -> None:
    file = copy.folder / "core/src/quorum/ballot.rs"
    code = file.read_text()
    file.write_text(
        code + '\n// not "a message of the core"\n#[allow(unused, reason = "nobody ever calls it")]\n'
        'fn unused(text: &str) -> bool {\n    text.contains("some text of a server")\n}\n'
    )
    assert copy.run() == []
