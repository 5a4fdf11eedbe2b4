"""`make test` with stand-ins for all tools: after a failure it continues, does not pass, and lists each failure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Project


def listed(output: str) -> list[str]:
    """The names in the list of failures."""
    return re.findall(r"^\d+\. (.*)$", output, re.M)


def not_run(output: str) -> list[str]:
    """The lines in the list of steps that did not run."""
    return re.findall(r"^   (?!alone)(.*)$", output.partition("\nNot run:\n")[2], re.M)


def test_nothing_fails(project: Project) -> None:
    done = project.make("test")
    assert done.returncode == 0, done.stdout
    end = done.stdout.partition("== All checks passed\n")[2]
    assert re.search(r"node-kotlin-lane:\n.*\n +\d+ s  ktlint\n.*in all:\n +\d+ s\n$", end, re.S), end
    assert any(call.startswith("pytest") and "python/tests" in call for call in project.calls)


def test_every_step_fails(project: Project) -> None:
    green = project.make("test")
    titles = re.findall(r"^== (.*)$", green.stdout, re.M)
    # Building steps pass, and so do the modules of release/, which are empty here.
    builds = r"environment|cargo build .*-cli|npm ci|npm run|maturin|go vet|go build|mvn .*( test-compile| compile )"
    done = project.make("test", failing=f"^(?!{builds}).")
    assert done.returncode != 0
    passed = r"Build|Python env|npm pack|cargo-nextest|A peer|Packages: [cpi]"
    passing = [title for title in titles if re.match(passed, title)]
    others = ["Three lanes side by side", "All checks passed", "One version everywhere; the workflows"]
    assert len(listed(done.stdout) + not_run(done.stdout)) == len(titles) - len(passing) - len(others), done.stdout


def test_tests_of_four_languages_in_all_lanes(project: Project) -> None:
    done = project.make("test", failing="profile rust-tests|^pytest .* python/tests|^node --test|surefire:test")
    assert done.returncode != 0
    assert sorted(listed(done.stdout)) == ["a.b t", "a.b t", "a/b.py::t", "node/a/b.py t"]
    assert "== Failed: 4. Not run: 0.\n" in done.stdout
    assert "     it broke\n   alone: .venv/bin/pytest a/b.py::t\n" in done.stdout
    assert "All checks passed" not in done.stdout


def test_a_step_fails_and_the_next_ones_run(project: Project) -> None:
    done = project.make("test", failing="^cargo fmt")
    assert done.returncode != 0
    assert listed(done.stdout) == ["make rust-lint: rustfmt: exit 1"]
    assert "     output of cargo fmt --all --check\n   alone: cargo fmt --all --check\n" in done.stdout
    assert sum(call.startswith("cargo clippy") for call in project.calls) == 3


def test_a_package_cannot_be_built(project: Project) -> None:
    done = project.make("test", failing="^npm run .*build:dev")
    assert done.returncode != 0
    assert listed(done.stdout) == ["make node: Building the Node package: exit 1"]
    lines = not_run(done.stdout)
    assert "make node-test: Node: the scenarios: not run, because node failed" in lines
    assert "make languages-test: The demo: not run, because node failed" in lines
    assert not any("python-test" in line or "kotlin-test" in line for line in lines)
    assert any("surefire:test" in call for call in project.calls)


def test_an_environment_cannot_be_made(project: Project) -> None:
    done = project.make("test", failing=r"^tool environment \.venv")
    assert done.returncode != 0
    assert listed(done.stdout) == ["make .venv/.ready: Python environment in .venv: exit 1"]
    assert "make python-test: Python examples: not run, because python failed" in not_run(done.stdout)
    # No step of this target was started.
    assert any(line.startswith("make scripts-test: all of its steps: not run") for line in not_run(done.stdout))
    assert not (project.folder / ".venv/.ready").exists()
    assert any("profile rust-tests" in call for call in project.calls)


def test_a_test_runner_that_reports_nothing(project: Project) -> None:
    project.write("tool", project.tool.read_text().replace("path.write_text(", "str("))
    done = project.make("test")
    assert done.returncode != 0
    assert "make python-test: Python examples: wrote no test report" in listed(done.stdout)


def test_a_lane_that_dies(project: Project) -> None:
    # The stand-in kills the shell that loops over the targets of its lane.
    kill = """pid = os.getpid() if "ktlint" in call else 1
while pid > 1:
    pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    if b"for target in" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
        os.kill(pid, 9)
        break
failed = """
    project.write("tool", project.tool.read_text().replace("failed = ", kill, 1))
    done = project.make("test")
    assert done.returncode != 0
    assert "node-kotlin-lane: did not finish" in not_run(done.stdout)


def test_alone_a_target_stops_and_lists(project: Project) -> None:
    done = project.make("python-test", failing="pytest")
    assert done.returncode != 0
    assert listed(done.stdout) == ["a/b.py::t"]
    assert not any("scenario_host" in call for call in project.calls)
    done = project.make("python-test")
    assert done.returncode == 0
    assert any("scenario_host" in call for call in project.calls)
