"""What npm installs as the command `redlock` starts the program of this machine's package, or says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from release import targets

PROGRAM = targets.load().program
STARTER = targets.ROOT / PROGRAM.folder / PROGRAM.manifest["bin"][PROGRAM.name]
MACHINE = subprocess.run(
    ["node", "-p", "`${process.platform}-${process.arch}`"], check=True, stdout=subprocess.PIPE, text=True
).stdout.strip()
# Versions of Node that cannot replace their process start the program as a child.
AS_CHILD = {"NODE_OPTIONS": "--import=data:text/javascript,delete%20process.execve"}


def installed(folder: Path, *platforms: str, script: str = 'echo "$0 $*"') -> Path:
    """Install the package and those of these platforms; return the path of the command."""
    modules = folder / "node_modules"
    main = modules / PROGRAM.npm
    (main / "npm").mkdir(parents=True)
    shutil.copy(STARTER, main / "npm")
    listed = {f"{PROGRAM.platforms}-{target.npm.platform}": "0.0.0" for target in targets.load().published()}
    (main / "package.json").write_text(json.dumps(PROGRAM.manifest | {"optionalDependencies": listed}))
    for platform in platforms:
        package = modules / f"{PROGRAM.platforms}-{platform}"
        (package / "bin").mkdir(parents=True)
        (package / "package.json").write_text("{}")
        (package / "bin" / PROGRAM.name).write_text(f"#!/bin/sh\n{script}\n")
        (package / "bin" / PROGRAM.name).chmod(0o755)
    return main / "npm" / STARTER.name


def started(command: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", command, *arguments], check=False, capture_output=True, text=True, env=os.environ | variables
    )


@pytest.mark.parametrize("variables", [{}, AS_CHILD], ids=["in its place", "as a child"])
def test_the_program_gets_the_arguments_and_gives_the_exit_code(tmp_path: Path, variables: dict[str, str]) -> None:
    command = installed(tmp_path, f"{MACHINE}-gnu", script='echo "$1:$2"; exit 79')
    done = started(command, "a b", "--c", **variables)
    assert (done.stdout, done.stderr, done.returncode) == ("a b:--c\n", "", 79)


def test_a_static_program_is_preferred_if_both_are_installed(tmp_path: Path) -> None:
    command = installed(tmp_path, f"{MACHINE}-gnu", f"{MACHINE}-musl")
    assert f"{MACHINE}-musl/bin/" in started(command).stdout


@pytest.mark.parametrize("variables", [{}, AS_CHILD], ids=["in its place", "as a child"])
def test_a_signal_reaches_the_program_and_ends_both(tmp_path: Path, variables: dict[str, str]) -> None:
    script = """
        sleep 60 &
        trap 'kill $!; echo told; trap - TERM; kill -TERM $$' TERM
        echo ready
        wait
    """
    command = installed(tmp_path, f"{MACHINE}-gnu", script=script)
    environment = os.environ | variables
    with subprocess.Popen(["node", command], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        assert process.wait(timeout=60) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("arch", "begin", "end"),
    [
        (MACHINE.partition("-")[2], f"the program for {MACHINE} is not installed. Install redlock-cli again ", ""),
        ("mips", "no package has a program for ", "-mips. Build one: cargo install redlock-cli\n"),
    ],
)
def test_a_missing_program_is_reported_with_the_remedy(tmp_path: Path, arch: str, begin: str, end: str) -> None:
    other = f"--import=data:text/javascript,Object.defineProperty(process,'arch',{{value:'{arch}'}})"
    done = started(installed(tmp_path), NODE_OPTIONS=other)
    assert done.returncode == 70
    assert done.stderr.startswith(f"redlock: {begin}")
    assert done.stderr.endswith(end)
    assert len(done.stderr.splitlines()) == 1


def test_a_checkout_without_its_program_is_told_to_run_the_scripts(tmp_path: Path) -> None:
    command = installed(tmp_path)
    (command.parent.parent / "package.json").write_text(json.dumps(PROGRAM.manifest))
    done = started(command)
    assert done.returncode == 70
    assert done.stderr.endswith("is missing. Install the package with scripts: npm install --foreground-scripts\n")
