"""Checks the version and the workflows with public checkers, as far as that is possible outside of GitHub.

    python3 -m release.lint

bump-my-version must find the version in each place of .bumpversion.toml. The workflows must follow GitHub's schema, and
have no mistake known to actionlint, which needs Go, and no vulnerability known to zizmor. With a GH_TOKEN, zizmor also
checks on GitHub that each action's commit belongs to its tag.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from release import toolchain
from release.targets import ROOT

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
# A dry run writes nothing. Any other version will do.
BUMP = ("bump", "--dry-run", "--allow-dirty", "--new-version", "999.0.0")


def check() -> int:
    """Run every checker; return the number of those that found a fault."""
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    tools = toolchain.tools()
    offline = [] if os.environ.get("GH_TOKEN") else ["--offline"]
    commands: list[list[str | Path]] = [
        [tools / "bump-my-version", *BUMP],
        [tools / "check-jsonschema", "--quiet", "--builtin-schema", "vendor.github-workflows", *files],
        [tools / "zizmor", "--quiet", "--no-progress", *offline, *files],
    ]
    if go := shutil.which("go"):
        commands.append([go, "run", ACTIONLINT, *files])
    else:
        print("release.lint: there is no Go on this machine to build actionlint with; left out", file=sys.stderr)
    return sum(subprocess.run(command, cwd=ROOT, check=False).returncode != 0 for command in commands)


if __name__ == "__main__":
    sys.exit(1 if check() else 0)
