"""The workflows have no faults, and each kind of fault is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from release import workflows

GOOD = """
on: push
permissions: {}
jobs:
  one:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions:
      contents: read
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - run: |
          make lint
          python3 -m release.native x86_64-unknown-linux-gnu dist --profile dist
          python3 -m release.version --check "$TAG" && echo so
  two:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    permissions: {}
    strategy:
      matrix:
        command: [make lint, python3 -m release.pack dist]
        include:
          - { target: x86_64-unknown-linux-gnu, runner: ubuntu-24.04 }
    steps:
      - run: ${{ matrix.command }}
"""


def test_the_workflows_pass_every_checker(capfd: pytest.CaptureFixture[str]) -> None:
    assert workflows.check() == 0, capfd.readouterr().err


def test_a_workflow_without_faults_has_no_problems(tmp_path: Path) -> None:
    assert found(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("was", "becomes", "problem"),
    [
        ("permissions: {}\njobs", "jobs", "`permissions: {}` is missing at the top"),
        (" # v7.0.1", "", "an action is named by its commit"),
        ("@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "@v7", "an action is named by its commit"),
        (
            "    timeout-minutes: 5\n    permissions:\n      contents: read\n",
            "    timeout-minutes: 5\n",
            "job one does not",
        ),
        ("    timeout-minutes: 5\n    permissions: {}", "    permissions: {}", "job two has no time limit"),
        ("make lint\n", "make lint no-such-goal\n", "the Makefile has no no-such-goal"),
        ("[make lint,", "[make no-such-goal,", "the Makefile has no no-such-goal"),
        ("release.native", "release.nativ", "there is no module release.nativ:"),
        ("--profile dist", "--profil dist", "release.native knows no --profil:"),
        ("linux-gnu dist --profile", "linux-gnu --profile", "release.native takes 2 to 2 arguments, not 1:"),
        ('--check "$TAG"', '--check "$TAG" 1.0.0 2.0.0', "release.version takes 0 to 1 arguments, not 2:"),
        ("target: x86_64-unknown-linux-gnu", "target: x86_64-unknown-plan9", "x86_64-unknown-plan9 is no target"),
        (
            "gnu, runner: ubuntu-24.04",
            "gnu, runner: macos-15",
            "x86_64-unknown-linux-gnu is built on ubuntu-24.04, not",
        ),
        ("- run: |", "- env: { TOKEN: '${{ secrets.TOKEN }}' }\n        run: |", "job one has a secret outside"),
    ],
)
def test_every_fault_is_found(tmp_path: Path, was: str, becomes: str, problem: str) -> None:
    assert was in GOOD
    assert any(problem in line for line in found(tmp_path, GOOD.replace(was, becomes, 1)))


def test_a_secret_is_allowed_in_the_environment_with_a_reviewer(tmp_path: Path) -> None:
    text = GOOD.replace("- run: |", "- env: { TOKEN: '${{ secrets.TOKEN }}' }\n        run: |")
    assert found(tmp_path, text.replace("  one:\n", "  one:\n    environment: release\n")) == []


def found(folder: Path, text: str) -> list[str]:
    path = folder / "workflow.yml"
    path.write_text(text)
    return list(workflows.problems(path))
