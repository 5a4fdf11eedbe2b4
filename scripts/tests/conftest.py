"""A fixture with a copy of the Makefile and its scripts, in which one stand-in replaces all tools."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ["cargo", "go", "gofmt", "mvn", "node", "npm", "npx"]
# The stand-in: records its call, fails if the call matches FAILING, and writes the report of a test runner.
TOOL = """#!{python}
import os, pathlib, re, sys
call = " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]).replace("{folder}/", "")
with open(os.environ["CALLS"], "a") as calls:
    calls.write(call + "\\n")
if call.startswith("npm ci"):
    os.mkdir("node_modules")
failed = re.search(os.environ["FAILING"], call)
runners = r"--junitxml=(\\S+)|--test-reporter-destination=(\\S+xml)|nextest run .*--profile (\\S+)|surefire:test"
report = re.search(runners, " ".join(sys.argv))
if report:
    path = pathlib.Path(report[1] or report[2] or report[3] and f"target/nextest/{{report[3]}}/junit.xml" or
                        "kotlin/target/surefire-reports/TEST-one.xml")
    path.parent.mkdir(parents=True, exist_ok=True)
    problem = '<failure message="it broke"/>' if failed else ""
    path.write_text(f'<testsuites><testcase file="a/b.py" classname="a.b" name="t">{{problem}}</testcase></testsuites>')
if not call.startswith("gofmt"):
    print("output of", call)
sys.exit((100 if "nextest" in call else 1) if failed else 0)
"""


class Project:
    """A folder in which `make test` calls no real tool."""

    def __init__(self, folder: Path) -> None:
        """Copies the Makefile and the scripts under test, and links the stand-in in place of every tool."""
        self.folder = folder
        makefiles = ["Makefile", *re.findall(r"\S+\.mk", (ROOT / "Makefile").read_text())]
        for name in makefiles:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        (folder / "scripts").mkdir()
        for script in ("step", "failures", "seconds"):
            shutil.copy(ROOT / "scripts" / script, folder / "scripts")
        self.tool = folder / "tool"
        self.write("tool", TOOL.format(python=sys.executable, folder=folder))
        for tool in TOOLS:
            self.link(f"tools/{tool}")
        # This interpreter: a `python3` that first chooses one takes most of the time of a step.
        (folder / "tools" / "python3").symlink_to(sys.executable)
        checks = ("imports", "options", "site", "troubleshooting")
        for script in (*checks, "check-python-source", "check-node-source", "check-cli-source"):
            self.link(f"scripts/{script}")
        self.write("scripts/system-packages", "#!/bin/sh\n")
        # Its arguments are PYTHON FOLDER REQUIREMENTS.
        programs = ["pytest", "python", "maturin", "ruff", "mypy", "cargo-nextest"]
        links = "".join(f'ln -sf "{self.tool}" "$2/bin/{program}"\n' for program in programs)
        check = f'"{self.tool}" environment "$2" || exit 1\n'
        self.write("scripts/python-environment", f'#!/bin/sh\nmkdir -p "$2/bin"\n{check}{links}')
        rules = "".join((ROOT / name).read_text() for name in makefiles)
        for path in re.findall(r"^(?:%/)?(\S+/)node_modules/\.ready:", rules, re.M):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path in (
            *("python/requirements-dev.txt", "bench/requirements.txt", "scripts/nextest.txt", "node/package-lock.json"),
            *("node/package.json", "node/test/fixtures/package-lock.json", "bench/node/package-lock.json"),
            "tests/interop/node/package-lock.json",
            *("tests/interop/jvm/pom.xml", "tests/interop/jvm/src/main/java/dev/redlock/interop/Peer.java"),
            *("tests/interop/go/main.go", "tests/interop/go/go.mod", "tests/interop/go/go.sum"),
            *("release/lint.py", "release/native.py", "release/pack.py", "release/smoke.py"),
        ):
            self.write(path, "")

    def write(self, path: str, text: str) -> None:
        """Writes an executable file."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)
        (self.folder / path).chmod(0o755)

    def link(self, path: str) -> None:
        """Links the stand-in at this path."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).symlink_to(self.tool)

    def make(self, *goals: str, failing: str = "$^") -> subprocess.CompletedProcess[str]:
        """Calls make. Tools whose call matches `failing` fail. The returned output has no colours."""
        path = f"{self.folder / 'tools'}:{os.environ['PATH']}"
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        environment |= {"PATH": path, "CALLS": str(calls), "FAILING": failing}
        done = subprocess.run(
            ["make", *goals],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        done.stdout = re.sub(r"\x1b\[\d*m", "", done.stdout)
        self.calls = calls.read_text().splitlines() if calls.exists() else []
        return done


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The Makefile, with stand-ins for all tools."""
    return Project(tmp_path)
