"""The version is the same everywhere, and a forgotten place is found."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from release import toolchain, version
from release.refused import Refused
from release.targets import ROOT

NEXT = "98.76.5-rc.4"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the repository's files, in a git repository of its own."""
    for file in version._files(ROOT):
        if (ROOT / file).is_file():
            place = tmp_path / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, place)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    changelog = tmp_path / version.CHANGELOG
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- Faster.\n\n## 0.0.1 - 2020-02-02\n\n- All.\n")
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_the_repository_agrees_with_itself():
    assert version.problems(ROOT) == []


def test_writes_every_place_so_that_nothing_names_the_old_version(copy):
    old = version.current(copy)
    assert version.write(copy, NEXT, "2030-01-02") >= len(version.PLACES)
    assert version.problems(copy) == []
    assert version.current(copy) == NEXT
    for place in version.PLACES:
        assert {match[1] for match in place.find((copy / place.file).read_text())} == {NEXT}
    # No old version is left: with the old one in Cargo.toml, every other place differs and no unlisted place is found.
    replace(copy / "Cargo.toml", f'[workspace.package]\nversion = "{NEXT}"', f'[workspace.package]\nversion = "{old}"')
    assert not [line for line in version.problems(copy) if "should say" not in line]


def test_cargo_agrees_with_the_lock_file_that_was_written(copy):
    version.write(copy, NEXT, "2030-01-02")
    command = ["cargo", "metadata", "--locked", "--format-version=1"]
    done = subprocess.run(command, cwd=copy, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_maturin_spells_a_candidate_as_python_does(copy, tmp_path_factory):
    version.write(copy, NEXT, "2030-01-02")
    out = tmp_path_factory.mktemp("metadata")
    command = [toolchain.tools() / "maturin", "pep517", "write-dist-info", "--metadata-directory", str(out)]
    subprocess.run(command, cwd=copy / "python", check=True, capture_output=True)
    (metadata,) = out.glob("*.dist-info/METADATA")
    assert f"\nVersion: {version.python(NEXT)}\n" in metadata.read_text()
    assert version.python(NEXT) == "98.76.5rc4"
    assert version.python("1.2.3") == "1.2.3"


def test_a_place_that_differs_is_reported_with_its_line(copy):
    old = version.current(copy)
    replace(copy / "node/package.json", f'"version": "{old}"', '"version": "9.9.9"')
    assert version.problems(copy) == [f"node/package.json:3: says 9.9.9, should say {old}"]


@pytest.mark.parametrize("place", version.PLACES[1:], ids=lambda place: place.file)
def test_a_place_that_moved_is_reported_and_nothing_is_written(copy, place):
    file = copy / place.file
    text = file.read_text(encoding="utf-8")
    for match in reversed(place.find(text)):
        text = text[: match.start()] + re.sub("redlock|version", "other", match[0]) + text[match.end() :]
    file.write_text(text, encoding="utf-8")
    assert any("nothing matches" in line and line.startswith(place.file) for line in version.problems(copy))
    with pytest.raises(Refused, match="nothing matches"):
        version.write(copy, NEXT, "2030-01-02")
    assert NEXT not in (copy / "Cargo.toml").read_text()


def test_an_unlisted_place_is_reported(copy):
    old = version.current(copy)
    (copy / "docs" / "new.md").write_text(f"Get it:\n\n    pip install redlock-core=={old}\n")
    (told,) = version.problems(copy)
    assert told.startswith(f"docs/new.md:3: names {old}, ")


def test_numbers_that_only_contain_the_version_are_not_reported(copy):
    old = version.current(copy)
    (copy / "docs" / "new.md").write_text(f"{old}.1 1.{old} {old}5\n")
    assert version.problems(copy) == []


def test_dates_the_changelog_once(copy):
    version.write(copy, "1.0.0", "2030-01-02")
    changelog = (copy / version.CHANGELOG).read_text()
    assert changelog == (
        "# Changelog\n\n## Unreleased\n\n## 1.0.0 - 2030-01-02\n\n- Faster.\n\n## 0.0.1 - 2020-02-02\n\n- All.\n"
    )
    version.write(copy, "1.0.0", "2031-03-03")
    assert (copy / version.CHANGELOG).read_text() == changelog
    assert version.section(changelog, "1.0.0") == "- Faster."
    with pytest.raises(Refused, match=r"nothing under .* that 1\.0\.1 could bring"):
        version.write(copy, "1.0.1", "2030-01-02")
    assert version.current(copy) == "1.0.0"


def test_a_tag_must_fit_and_the_changelog_must_have_a_section(copy):
    old = version.current(copy)
    assert [line for line in version.untold(copy, f"v{old}") if "no section" in line]
    version.write(copy, NEXT, "2030-01-02")
    assert version.untold(copy, f"v{NEXT}") == []
    (told,) = version.untold(copy, "v98.76.5")
    assert "should be v98.76.5-rc.4" in told


@pytest.mark.parametrize("form", ["1.0", "v1.0.0", "1.0.0rc1", "1.0.0-rc1", "1.0.0-beta.1", "01.0.0", "1.0.0-rc.0"])
def test_an_invalid_version_is_refused(copy, form):
    with pytest.raises(Refused, match="a version is"):
        version.write(copy, form, "2030-01-02")


def test_the_command_fails_with_one_line_for_each_problem(copy, monkeypatch, capsys):
    monkeypatch.setattr(version, "ROOT", copy)
    assert version.main([]) == 0
    assert capsys.readouterr() == ("", "")
    old = version.current(copy)
    assert version.main(["--check", "v0.0.0"]) == 1
    assert capsys.readouterr().err == (
        f"the tag is v0.0.0, Cargo.toml says {old}: it should be v{old}\n"
        f"CHANGELOG.md: no section `## {old} - YYYY-MM-DD` that says what is new\n"
    )
    assert version.main([NEXT]) == 0
    assert version.main(["--check", f"v{NEXT}"]) == 0
    assert version.main(["1.0"]) == 1
