"""Checks packages before anyone installs them: their contents, their sizes, and the requirements of their binaries.

    python3 -m release.checks OUT [--complete]

checks all of OUT/packages and prints a line for each fault. --complete also demands the files of all published targets.
It runs the public checkers (twine, check-wheel-contents, abi3audit, publint, attw) and adds checks that those lack.
auditwheel is not among them: what it refuses in a wheel, `elf` refuses in every kind of package.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from release import toolchain
from release.commands import ended, in_one_line, run, shown
from release.native import remapped
from release.pack import SUMS, sums
from release.sbom import LICENCES, SBOM
from release.targets import ROOT, Release, load, version

MEGABYTE = 1_000_000
# The libraries that a binary may be linked with: the C library, which older versions of glibc split into five files.
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
NEEDED = {
    "gnu": GLIBC | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"},
    "musl": {"libc.so"},
}
# Libraries that every Windows has, and the interpreter's: python3.dll, python3t.dll, and python314t.dll of one version.
SYSTEM = "api-ms-win-.*|kernel32|ntdll|ws2_32|bcrypt(primitives)?|crypt32|advapi32|msvcrt"
WINDOWS = re.compile(rf"({SYSTEM}|python3(t|\d+t)?)\.dll")
# The command reads keys with it. Windows Nano Server alone lacks it.
OF_PROGRAMS = "user32.dll"


@dataclass(frozen=True)
class Package:
    """A package that users install: a wheel, a source distribution, an npm tarball, a jar, a crate, or an archive."""

    path: Path
    budget: int
    """The largest allowed size, in bytes."""

    @property
    def files(self) -> dict[str, bytes]:
        """The contents of each file in the package, by path."""
        if self.path.suffix in (".tgz", ".gz", ".crate"):
            with tarfile.open(self.path) as archive:
                return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
        with zipfile.ZipFile(self.path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def is_binary(content: bytes) -> bool:
    """Whether it is compiled code for Linux, Windows or macOS."""
    return content[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe") or content[:2] == b"MZ"


def packages(folder: Path) -> list[Package]:
    """Every package that users install, with its budget."""
    # The command `redlock` is the largest of them: docs/releasing.md has its size.
    small = ("python/*", "npm/*.tgz", "archives/*", "crates/*")
    found = [(path, 3 * MEGABYTE) for kind in small for path in sorted(folder.glob(kind))]
    jars = [
        path for path in sorted(folder.glob("maven/**/*.jar")) if not re.search(r"-(sources|javadoc)\.jar$", path.name)
    ]
    found += [(path, 20 * MEGABYTE) for path in jars]
    return [Package(path, budget) for path, budget in found]


class Checks:
    """The checks. Each adds a line to `wrong` for every fault it finds."""

    def __init__(self, release: Release, out: Path) -> None:
        self.release = release
        self.out = out
        self.folder = out / "packages"
        self.wrong: list[str] = []

    def demand(self, holds: object, what: str) -> None:
        """Record `what` as a fault unless the condition holds."""
        if not holds:
            self.wrong.append(what)

    def tool(self, name: str | Path, *arguments: str | Path) -> None:
        """Run a checker. An exit code other than 0 is a fault."""
        done = ended([toolchain.tools() / name, *arguments])
        self.demand(done.returncode == 0, shown(done))

    # ---- contents -----------------------------------------------------------------------------------------------

    def contents(self, package: Package) -> None:
        """Check one package: licences, a bill of materials, no paths of the building machine, size within budget."""
        name, files = package.path.name, package.files
        leaves = {Path(path).name for path in files}
        size = package.path.stat().st_size
        self.demand(
            size <= package.budget, f"{name}: {size / MEGABYTE:.2f} MB; at most {package.budget / MEGABYTE:.0f}"
        )
        # A checkout without symbolic links has a file with the link's target in place of the licence.
        texts = [content for path, content in files.items() if Path(path).name == "LICENSE"]
        self.demand((ROOT / "LICENSE").read_bytes() in texts, f"{name}: no LICENSE, or another one")
        if any(map(is_binary, files.values())):
            self.demand(LICENCES in leaves, f"{name}: no {LICENCES}")
            self.demand(SBOM in leaves, f"{name}: no {SBOM}")
        private = [str(path).encode() for path, _ in remapped()]
        for path, content in files.items():
            self.demand(
                not any(place in content for place in private), f"{name}: {path} has a path of this machine in it"
            )

    def wheels(self) -> None:
        """Check the requirements of PyPI and pip for wheels and source distributions."""
        files = sorted((self.folder / "python").iterdir())
        self.tool("twine", "check", "--strict", *files)
        self.demand(any(path.name.endswith(".tar.gz") for path in files), "no source distribution")
        for wheel in (path for path in files if path.suffix == ".whl"):
            # The wheel of a program has no library.
            self.tool("check-wheel-contents", *(["--ignore=W007"] if "-py3-none-" in wheel.name else []), wheel)
            if "-abi3-" in wheel.name and "linux" in wheel.name:
                self.tool("abi3audit", "--strict", wheel)

    def platforms(self) -> dict[str, set[str]]:
        """The names of the npm packages that users ask for, each with those of its published targets."""
        library, targets = self.release.npm, [target.npm.platform for target in self.release.published()]
        program = self.release.program
        prefixes = {library.manifest["name"]: library.platforms, program.npm: program.platforms}
        return {main: {f"{prefix}-{platform}" for platform in targets} for main, prefix in prefixes.items()}

    def tarballs(self) -> None:
        """Check npm tarballs: no install scripts, not private, equal versions, only platform packages of the list."""
        names = self.platforms()
        for path in sorted((self.folder / "npm").glob("*.tgz")):
            manifest = json.loads(Package(path, 0).files["package/package.json"])
            self.demand("scripts" not in manifest, f"{path.name}: has scripts")
            self.demand("private" not in manifest, f"{path.name}: is private")
            self.demand(manifest["version"] == version(), f"{path.name}: is version {manifest['version']}")
            if manifest["name"] in names:
                fits = set(manifest["optionalDependencies"]) == names[manifest["name"]]
                self.demand(fits, f"{path.name}: other platforms than the list's")
                # node/test/fixtures installs these two.
                fixtures = ROOT / self.release.npm.folder / "test" / "fixtures" / "node_modules" / ".bin"
                self.tool(fixtures / "publint", path, "--strict")
                if "types" in manifest:
                    self.tool(fixtures / "attw", path, "--format", "ascii")
            else:
                self.demand(manifest["name"] in set().union(*names.values()), f"{path.name}: not in the list")

    def jars(self, *, complete: bool = False) -> None:
        """Check that jars have the native libraries of all targets that were built, or of all published ones."""
        built = [target for target in self.release.targets if (self.out / target.rust).is_dir()]
        targets = self.release.published() if complete else built
        places = {target.in_jar(self.release.jvm.library) for target in targets}
        jars = [package.files for package in packages(self.folder) if package.path.suffix == ".jar"]
        self.demand(any(places <= files.keys() for files in jars), f"no jar has all of {', '.join(sorted(places))}")

    def complete(self) -> None:
        """Check that no crate, no source distribution and no file of a published target is missing."""
        number = version()
        wheels = len(self.release.published()) * (len(self.release.python.abis) + 1)
        for ending, wanted in (("whl", wheels), ("tar.gz", 2)):
            found = len(list(self.folder.glob(f"python/*.{ending}")))
            self.demand(found == wanted, f"python/: {found} files *.{ending}, not {wanted}")
        names = self.platforms()
        crates = (self.release.crate, self.release.program.crate)
        wanted_files = [f"crates/{crate}-{number}.crate" for crate in crates]
        for name in [*names, *set().union(*names.values())]:
            wanted_files.append(f"npm/{name.removeprefix('@').replace('/', '-')}-{number}.tgz")
        for name in sorted(wanted_files):
            self.demand((self.folder / name).exists(), f"{name} is missing")
        self.jars(complete=True)

    # ---- binaries -----------------------------------------------------------------------------------------------

    def binaries(self) -> None:
        """Check the requirements of each compiled file."""
        for package in packages(self.folder):
            for path, content in package.files.items():
                name = f"{package.path.name}: {Path(path).name}"
                if content[:4] == b"\x7fELF":
                    self.elf(name, content, "musl" in name)
                elif content[:2] == b"MZ":
                    self.pe(name, content)

    def elf(self, name: str, content: bytes, musl: bool) -> None:
        """Check a Linux library: an old C library is enough and no other library is needed, dlopen can load it (no
        static TLS), the stack is not executable, and there are no symbols.
        """
        parts = ("--dynamic", "--version-info", "--program-headers", "--relocs", "--section-headers")
        said = binutils(content, "readelf", "--wide", *parts)
        strange = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said)) - NEEDED["musl" if musl else "gnu"]
        self.demand(not strange, f"{name} needs {', '.join(sorted(strange))}")
        self.demand("STATIC_TLS" not in said, f"{name} has static TLS")
        self.demand(not re.search(r"R_\w+_(TPOFF|TLS_TPREL)", said), f"{name} has relocations of static TLS")
        self.demand(re.search(r"GNU_STACK.*\n?.*\bRW\b", said), f"{name} has a stack that can be executed")
        self.demand(not re.search(r" \.(symtab|debug_info) ", said), f"{name} has symbols")
        if not musl:
            versions = [tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)", said)]
            newest = max(versions, default=(0,))
            oldest = min(tuple(map(int, target.glibc.split("."))) for target in self.release.targets if target.glibc)
            self.demand(newest <= oldest, f"{name} needs GLIBC_{'.'.join(map(str, newest))}")

    def pe(self, name: str, content: bytes) -> None:
        """Check a Windows library or program: it needs only libraries that every Windows has."""
        for library in re.findall(r"DLL Name: (\S+)", binutils(content, "objdump", "--private-headers")):
            known = WINDOWS.fullmatch(library.lower()) or (name.endswith(".exe") and library.lower() == OF_PROGRAMS)
            self.demand(known, f"{name} needs {library}")

    def sums(self) -> None:
        """Check that SHA256SUMS has every file and its sum."""
        lines = (self.folder / SUMS).read_text(encoding="utf-8").splitlines()
        listed = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
        there = {name: sha256 for name, sha256 in sums(self.folder).items() if name != SUMS}
        wrong = sorted({name for name, _ in listed.items() ^ there.items()})
        self.demand(not wrong, f"{SUMS}: {', '.join(wrong)}")


def binutils(content: bytes, program: str, *options: str) -> str:
    """The output of readelf or objdump about a binary."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        return run([program, *options, file.name])


def check(out: Path, *, complete: bool) -> list[str]:
    """All faults of the packages in OUT, a line each."""
    checks = Checks(load(), out)
    for package in packages(checks.folder):
        checks.contents(package)
    for each in (checks.wheels, checks.tarballs, checks.jars, checks.binaries, checks.sums):
        each()
    if complete:
        checks.complete()
    return checks.wrong


@in_one_line("release.checks")
def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.checks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--complete", action="store_true", help="also demand the files of all published targets")
    given = parser.parse_args()
    wrong = check(given.out.resolve(), complete=given.complete)
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
