"""Compiles everything for one target: the native libraries, the wheels, which contain theirs, and the programs.

    python3 -m release.native TARGET OUT [--profile dist|dev] [--abi ABI]...

writes OUT/TARGET/: the Node module and the JVM libraries under their names in packages, `wheels/`, `programs/`. The
profile `dist` is for publishing: on Linux, zig links, so that the result runs with an old C library. The result is the
same to the byte on every machine. `dev` is for tests of the later steps: it uses this machine's linker and takes a
tenth of the time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from release import sbom, toolchain
from release.commands import Refused, in_one_line
from release.targets import ROOT, Release, Target, load

# The date of every file in an archive, in Unix seconds: 1980-01-01, the earliest that a wheel can hold. It is not the
# commit's date, because a change of it makes cargo compile all C code and everything that needs it again.
EPOCH = "315532800"

# The options with which maturin builds a wheel for an interpreter that need not be installed here.
ABIS = {
    "abi3": [],
    "cp314t": ["--interpreter", "python3.14t"],
    "abi3t": ["--interpreter", "python3.15t", "--features", "pyo3/abi3t-py315"],
}


class Build:
    """A build of one target in one profile."""

    def __init__(self, release: Release, target: Target, out: Path, profile: str, abis: list[str]) -> None:
        self.release = release
        self.target = target
        self.folder = out / target.rust
        self.profile = profile
        self.abis = abis
        self.is_dev = profile == "dev"
        if self.is_dev and not target.is_host():
            raise Refused(f"the profile dev is for this machine's own kind, not for {target.rust}")
        self.by_zig = not self.is_dev and sys.platform.startswith("linux")
        # Development builds share all compiled files with `cargo build`, so nothing names the target.
        self.environment = os.environ | ({} if self.is_dev else self._environment())
        self.cargo_target = Path(self.environment.get("CARGO_TARGET_DIR", ROOT / "target"))

    def _environment(self, *, program: bool = False) -> dict[str, str]:
        flags = [
            *toolchain.rustflags(self.target.rust, program=program),
            *(f"--remap-path-prefix={old}={new}" for old, new in remapped()),
        ]
        # mimalloc contains its compilation date. SOURCE_DATE_EPOCH does not help: zig's cache ignores it and returns
        # code that was compiled with another value.
        c_flags = ['-D__DATE__="-"', '-D__TIME__="-"', "-Wno-builtin-macro-redefined"]
        c_flags += [f"-ffile-prefix-map={old}={new}" for old, new in remapped()]
        # Microsoft's compiler does not have these options.
        c_code = {"CFLAGS": shlex.join(c_flags), "CC_SHELL_ESCAPED_FLAGS": "1"}
        return {
            **toolchain.environment(self.target.zig if self.by_zig else self.target.rust),
            "SOURCE_DATE_EPOCH": EPOCH,
            # Not RUSTFLAGS, which splits a path at a space.
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
            **({} if self.target.rust.endswith("-msvc") else c_code),
        }

    def libraries(self, crate: str) -> Path:
        """Build a crate; return the folder with the result."""
        if self.is_dev:
            self._run("cargo", "build", "--locked", "--quiet", "--package", crate)
            return self.cargo_target / "debug"
        build, target = ("zigbuild", self.target.zig) if self.by_zig else ("build", self.target.rust)
        self._run(
            "cargo", build, "--locked", "--quiet", "--profile", self.profile, "--target", target, "--package", crate
        )
        return self.cargo_target / self.target.rust / self.profile

    def wheel(self, folder: str, crate: str, profile: str, arguments: list[str]) -> Path:
        """Build the wheel of the Python project in `folder`, with the crate's licences and bill of materials."""
        with tempfile.TemporaryDirectory() as work:
            sbom.write(crate, [self.target.rust], Path(work))
            maturin = [str(toolchain.tools() / "maturin"), "build", "--locked", "--quiet", "--profile", profile]
            maturin += ["--compression-level", "9"]
            maturin += ["--out", work, "--sbom-include", str(Path(work, sbom.SBOM)), *arguments]
            if not self.is_dev:
                maturin += ["--target", self.target.rust, "--compatibility", self.target.wheel]
            if self.by_zig:
                maturin.append("--zig")
            # maturin takes licences from the project alone.
            texts = shutil.move(Path(work, sbom.LICENCES), ROOT / folder / sbom.LICENCES)
            try:
                self._run(*maturin, cwd=ROOT / folder)
            finally:
                texts.unlink()
            (made,) = Path(work).glob("*.whl")
            return self._keep(made, f"wheels/{made.name}")

    def node(self) -> None:
        """Build the Node module."""
        npm = self.release.npm
        self._keep(self.libraries(npm.crate) / self.target.library(npm.library), npm.file)

    def jvm(self) -> None:
        """Build the library of the JVM module."""
        jvm = self.release.jvm
        made = self.libraries(jvm.crate) / self.target.library(jvm.library)
        self._keep(made, Path(self.target.in_jar(jvm.library)).name)

    def python(self) -> None:
        """Build a wheel for each ABI."""
        shutil.rmtree(self.folder / "wheels", ignore_errors=True)
        if self.target.rust.endswith("-windows-gnu"):
            # maturin writes an export file that this linker cannot read. This target is not published, so the library
            # alone is enough.
            made = self.libraries(self.release.python.crate) / self.target.library("redlock_native")
            self._keep(made, "redlock/_native.pyd")
            return
        for abi in self.abis:
            self.wheel(self.release.python.folder, self.release.python.crate, self.profile, ABIS[abi])

    def programs(self) -> None:
        """Build the wheels that put the programs on the PATH. All other packages have the program from its wheel."""
        if not self.is_dev:
            self.environment |= self._environment(program=True)
        program = self.release.program
        profile, arguments = (self.profile, []) if self.is_dev else (f"{self.profile}-program", ["--strip"])
        wheel = self.wheel(program.folder, program.crate, profile, arguments)
        name = self.target.program(program.name)
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as work:
            (entry,) = [entry for entry in archive.namelist() if entry.endswith(f".data/scripts/{name}")]
            made = Path(archive.extract(entry, work))
            made.chmod(0o755)
            self._keep(made, f"programs/{name}")

    def _keep(self, made: Path, name: str) -> Path:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # Replace the file instead of writing into it: a process may have the old one loaded.
        fresh = place.with_name(f"{place.name}.new")
        shutil.copyfile(made, fresh)
        shutil.copymode(made, fresh)
        # Packages of development builds are only tried. Without debug information they are packed in a third of the
        # time.
        if self.is_dev and place.suffix != ".whl":
            self._run("strip", "-S", str(fresh))
        return fresh.replace(place)

    def _run(self, *command: str, cwd: Path = ROOT) -> None:
        subprocess.run(command, check=True, env=self.environment, cwd=cwd)


def remapped() -> list[tuple[Path, str]]:
    """The paths of this machine that a binary would contain, each with its replacement."""
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    # rustc and the C compiler apply the last one that fits.
    return [(cargo, "/cargo"), (ROOT, "/redlock")]


@in_one_line("release.native")
def main() -> None:
    release = load()
    parser = argparse.ArgumentParser(prog="python3 -m release.native", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", metavar="TARGET", help="as in targets.json, or `host`")
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--profile", choices=("dist", "dev"), default="dist")
    parser.add_argument("--abi", action="append", choices=list(ABIS), help="default: all of targets.json")
    given = parser.parse_args()
    target = release.host() if given.target == "host" else release.target(given.target)
    job = Build(release, target, given.out.resolve(), given.profile, given.abi or release.python.abis)
    for part in (job.node, job.jvm, job.python, job.programs):
        print(f"== {target.rust}: {part.__name__}", file=sys.stderr, flush=True)
        part()
    print(job.folder)


if __name__ == "__main__":
    main()
