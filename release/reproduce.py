"""Builds this machine's files in OUT again, in another folder, and prints whether they are the same to the byte.

    python3 -m release.reproduce OUT

The second build uses a clone of the last commit and a target folder of its own: it reuses nothing of the first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from release.commands import Refused, in_one_line
from release.pack import sums
from release.targets import ROOT, Target, load


def rebuilt(target: Target) -> dict[str, str]:
    """Build again in a clone, whose folder has a long name with a space; return the sums of the files."""
    with tempfile.TemporaryDirectory(prefix="redlock-somewhere-else-") as work:
        clone = Path(work, "a clone")
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        # The tools are shared: they are pinned.
        (clone / "target").mkdir()
        (clone / "target" / "release-tools").symlink_to(ROOT / "target" / "release-tools")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CARGO_TARGET")}
        command = [sys.executable, "-m", "release.native", target.rust, str(Path(work, "out"))]
        subprocess.run(command, cwd=clone, env=environment, check=True)
        return sums(Path(work, "out", target.rust))


@in_one_line("release.reproduce")
def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.reproduce", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    given = parser.parse_args()
    target = load().host()
    first = sums(given.out / target.rust)
    if not first:
        raise Refused(f"there is nothing of {target.rust} in {given.out}; see release.native")
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    if changed.stdout:
        raise Refused("the second build uses the last commit, but there are changes: commit or stash them first")
    second = rebuilt(target)
    for name in sorted(first.keys() | second.keys()):
        same = first.get(name) == second.get(name)
        print(f"{first.get(name, 'missing'):64}  {'same' if same else 'OTHER: ' + second.get(name, 'missing')}  {name}")
    sys.exit(first != second)


if __name__ == "__main__":
    main()
