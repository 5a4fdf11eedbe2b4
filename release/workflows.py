"""Checks the workflows in .github/workflows, as far as that is possible outside of GitHub.

    python3 -m release.workflows

They must follow GitHub's schema and have no known mistake (actionlint) and no known vulnerability (zizmor). Everything
that they call must exist: modules of this package with these arguments, goals of the Makefile, targets of targets.json.
actionlint needs Go; without it, a line says that actionlint was left out. With a GH_TOKEN, zizmor also checks on GitHub
that each action's commit belongs to its tag.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from release import toolchain
from release.targets import ROOT, load

FOLDER = ROOT / ".github" / "workflows"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v[0-9.]+$")
# The required default permissions of a workflow; each job lists its own.
NOTHING: dict[str, str] = {}
TO_JSON = (
    "import json, sys; from ruamel.yaml import YAML; print(json.dumps(YAML(typ='safe', pure=True).load(sys.stdin)))"
)


def read(path: Path) -> dict[str, Any]:
    """The contents of a workflow. `on` is a string key, because the parser uses YAML 1.2."""
    command = [toolchain.tools() / "python", "-c", TO_JSON]
    text = path.read_text(encoding="utf-8")
    return json.loads(subprocess.run(command, input=text, check=True, stdout=subprocess.PIPE, text=True).stdout)


def commands(workflow: dict[str, Any]) -> Iterator[str]:
    """Every line that a workflow runs in a shell, including those in a matrix."""
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        yield from (line for line in matrix.get("command", []) if isinstance(line, str))
        for step in job.get("steps", []):
            yield from step.get("run", "").replace("\\\n", " ").splitlines()


def problems(path: Path) -> Iterator[str]:
    """The faults of a workflow that no general checker finds."""
    text = path.read_text(encoding="utf-8")
    workflow = read(path)
    if workflow.get("permissions") != NOTHING:
        yield "`permissions: {}` is missing at the top"
    for number, line in enumerate(text.splitlines(), 1):
        if "uses:" in line and not PINNED.search(line):
            yield f"line {number}: an action is named by its commit, with the tag as a comment: {line.strip()}"
    for name, job in workflow["jobs"].items():
        if "permissions" not in job:
            yield f"job {name} does not say what it may do"
        if "timeout-minutes" not in job:
            yield f"job {name} has no time limit"
        if "secrets." in json.dumps(job) and job.get("environment") != "release":
            yield f"job {name} has a secret outside of the environment `release`"
    for line in commands(workflow):
        yield from _wrong_call(line)
    known = {target.rust: target.runner for target in load().targets}
    for name in sorted(set(re.findall(r"\b(?:x86_64|aarch64)-[a-z]+-[a-z0-9]+(?:-[a-z]+)?\b", text)) - known.keys()):
        yield f"{name} is no target of targets.json"
    for rust, runner in re.findall(r"target: ([\w-]+), runner: ([\w.-]+)", text):
        if known.get(rust) != runner:
            yield f"{rust} is built on {known.get(rust)}, not on {runner}, says targets.json"


def _wrong_call(line: str) -> Iterator[str]:
    for module, arguments in re.findall(r"python3? -m release\.(\w+)([^|;&<>)]*)", line):
        if not (ROOT / "release" / f"{module}.py").exists():
            yield f"there is no module release.{module}: {line}"
            continue
        if not (usage := _help(module)):
            yield f"release.{module} --help fails: {line}"
            continue
        words = shlex.split(arguments)
        options = [word.split("=")[0] for word in words if word.startswith("-")]
        yield from (f"release.{module} knows no {option}: {line}" for option in options if option not in usage.split())
        least, most = positionals(usage)
        given = sum(not word.startswith("-") for word in words) - sum(_takes_value(usage, option) for option in options)
        if not least <= given <= most:
            yield f"release.{module} takes {least} to {most} arguments, not {given}: {line}"
    for goals in re.findall(r"^\s*make ([\w -]+)$", line):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for goal in goals.split():
            if not re.search(rf"^(?:[\w %/-]+ )?{re.escape(goal)}(?: [\w %/-]+)?:(?!=)", makefile, re.MULTILINE):
                yield f"the Makefile has no {goal}: {line}"


@cache
def _help(module: str) -> str:
    """A module's --help, with its usage on one line and each option as a separate word; empty if it fails."""
    command = [sys.executable, "-m", f"release.{module}", "--help"]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return ""
    usage, _, rest = done.stdout.partition("\n\n")
    return re.sub(r"([\[\]|,])", r" \1 ", " ".join(usage.split())) + "\n" + rest.replace(",", " ")


def positionals(usage: str) -> tuple[int, int]:
    """The least and the largest number of arguments without a dash that a usage permits."""
    words = usage.splitlines()[0].split("release.", 1)[1].split()[1:]
    depth = least = most = 0
    option = False
    for word in words:
        if word in "[]":
            depth += 1 if word == "[" else -1
            option = option and depth > 0
        elif word == "...":
            most = 99
        elif word.startswith("-"):
            option = True
        elif word != "|" and not option:
            most += 1
            least += depth == 0
    return least, most


def _takes_value(usage: str, option: str) -> bool:
    return bool(re.search(rf"{re.escape(option)} [^\]\[|]", usage.splitlines()[0]))


def check() -> int:
    """Run every checker; return the number of those that found a fault."""
    files = sorted(FOLDER.glob("*.yml"))
    failed = 0
    for path in files:
        for problem in problems(path):
            print(f"{path.relative_to(ROOT)}: {problem}", file=sys.stderr)
            failed = 1
    tools = toolchain.tools()
    offline = [] if os.environ.get("GH_TOKEN") else ["--offline"]
    failed += _failed(tools / "check-jsonschema", "--quiet", "--builtin-schema", "vendor.github-workflows", *files)
    failed += _failed(tools / "zizmor", "--quiet", "--no-progress", *offline, *files)
    if go := shutil.which("go"):
        actionlint = toolchain.FOLDER / ACTIONLINT.rsplit("/", 1)[1] / "actionlint"
        if not actionlint.exists():
            environment = os.environ | {"GOBIN": str(actionlint.parent)}
            subprocess.run([go, "install", ACTIONLINT], env=environment, check=True)
        failed += _failed(actionlint, *files)
    else:
        print("release.workflows: there is no Go on this machine to build actionlint with; left out", file=sys.stderr)
    return failed


def _failed(*command: str | Path) -> bool:
    return bool(subprocess.run(command, cwd=ROOT, check=False).returncode)


def main() -> None:
    description = (__doc__ or "").splitlines()[0]
    argparse.ArgumentParser(prog="python3 -m release.workflows", description=description).parse_args()
    sys.exit(1 if check() else 0)


if __name__ == "__main__":
    main()
