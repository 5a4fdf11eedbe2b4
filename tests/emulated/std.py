"""Runs a command for a target whose standard library rustup has not installed: cargo builds it from its source.

    python3 -m tests.emulated.std TARGET COMMAND...

Debian packages the source for each version of rustc. If rustc has the library, the command runs as it is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from release import toolchain
from release.commands import Refused, in_one_line, run
from tests.emulated import debian

# The Debian suite with the source of every rustc of the last half year.
SUITE = "trixie-backports"


def environment() -> dict[str, str]:
    """The variables that make cargo build the standard library. cargo looks for the source in rustc's sysroot. So this
    makes a sysroot of links, and a rustc that uses it.
    """
    facts = dict(line.split(": ", 1) for line in run(["rustc", "-vV"]).splitlines() if ": " in line)
    sysroot, host = Path(run(["rustc", "--print", "sysroot"])), facts["host"]
    folder = toolchain.FOLDER / f"rust-{facts['release']}"
    rustc = folder / "rustc"
    with toolchain.alone(folder):
        if not rustc.exists():
            source = _source(facts["release"], folder / "source")
            rustlib = folder / "sysroot" / "lib" / "rustlib"
            _link(rustlib / host, sysroot / "lib" / "rustlib" / host)
            _link(rustlib / "src", source)
            toolchain.script(rustc, [sysroot / "bin" / "rustc", "--sysroot", folder / "sysroot"])
    return {
        "RUSTC": str(rustc),
        # Permits a stable rustc and cargo to use nightly features.
        "RUSTC_BOOTSTRAP": "1",
        "CARGO_UNSTABLE_BUILD_STD": "std,panic_unwind",
        # Build scripts depend on RUSTC_BOOTSTRAP. Without a separate folder, each change of target would rebuild all.
        "CARGO_BUILD_BUILD_DIR": str(toolchain.FOLDER / "build-std"),
    }


def _source(release: str, folder: Path) -> Path:
    """A folder that contains `rust/library`, like rustup's component rust-src, from Debian's package of that name."""
    versions = debian.versions(SUITE, "amd64", "rust-src")
    fitting = [version for version in versions if version.split("+")[0] == release]
    if not fitting:
        raise Refused(
            f"no standard library for this target: install it with rustup, or use a rustc whose source is in {SUITE}"
            f" (this one is {release}, the suite has {', '.join(versions) or 'none'})"
        )
    toolchain.say(f"source of Rust's standard library, {release}")
    debian.unpack(SUITE, "amd64", [f"rust-src={fitting[0]}"], folder, dependencies=False)
    _link(folder / "src" / "rust", folder / "usr" / "src" / f"rustc-{release}")
    return folder / "src"


def _link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(to)


@in_one_line("tests.emulated.std")
def main() -> None:
    target, *command = sys.argv[1:]
    added = {} if toolchain.is_installed(target) else environment()
    os.execvpe(command[0], command, os.environ | added)


if __name__ == "__main__":
    main()
