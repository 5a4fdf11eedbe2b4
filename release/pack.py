"""Makes the packages to publish from the files that `release.native` compiled.

    python3 -m release.pack OUT [--verify-crates]

reads OUT/TARGET/ of every target that is there and writes OUT/packages/:

    python/      wheels and the source distribution
    npm/         the main packages, and one for each target with its compiled files
    maven/       a repository: jars with the libraries of all those targets, sources, documentation, checksums
    crates/      the crates that cargo publishes
    archives/    the programs, each with its manual pages and completions, for users who want no package
    SHA256SUMS   the checksums of all of these
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from release import native, sbom, toolchain
from release.commands import Refused, in_one_line, run
from release.targets import ROOT, Npm, OnNpm, Program, Release, Target, load, version

LICENCE = ROOT / "LICENSE"
SUMS = "SHA256SUMS"
# The shells for which an archive has completions, and the names under which they load them.
COMPLETIONS = {"bash": "{}.bash", "fish": "{}.fish", "zsh": "_{}"}


class Packer:
    """Packs the compiled files of all targets in OUT."""

    def __init__(self, release: Release, out: Path) -> None:
        self.release = release
        self.out = out
        self.packages = out / "packages"
        # A target that is not published stands in for the published one with the same name in npm and the JVM.
        self.targets = [target for target in release.targets if (out / target.rust).is_dir()]
        if not self.targets:
            raise Refused(f"nothing was compiled: there is no folder of a target in {out}; see release.native")

    def python(self) -> None:
        """Collect the wheels, and make the source distributions."""
        folder = self._fresh("python")
        for target in self.targets:
            for wheel in sorted((self.out / target.rust / "wheels").glob("*.whl")):
                shutil.copy(wheel, folder)
        for project in (self.release.python.folder, self.release.program.folder):
            sdist = [toolchain.tools() / "maturin", "sdist", "--out", folder]
            run(sdist, cwd=ROOT / project, env=os.environ | {"SOURCE_DATE_EPOCH": native.EPOCH})

    def npm(self) -> None:
        """Make the packages of the library and of the programs, and a package with compiled files for each target."""
        self._fresh("npm")
        library = self.release.npm
        for target in self.targets:
            self._npm_platform(target, library, self.out / target.rust / library.file, library.file)
        self._npm_library(library)
        program = self.release.program
        for target in self.targets:
            name = target.program(program.name)
            self._npm_platform(target, program, self.out / target.rust / "programs" / name, f"bin/{name}")
        starter = program.manifest["bin"][program.name]
        self._npm_main(program, [(ROOT / program.folder / name, name) for name in (starter, "README.md")])

    def _npm_platform(self, target: Target, package: OnNpm, compiled: Path, name: str) -> None:
        """Make the package of one target. npm installs only the one that fits the machine."""
        platform, manifest = target.npm, package.manifest
        own = {
            "name": f"{package.platforms}-{platform.platform}",
            "version": version(),
            "description": f"What of {manifest['name']} is compiled, for {target.rust}",
            "os": [platform.os],
            "cpu": [platform.cpu],
            **({"libc": [platform.libc]} if platform.libc else {}),
            **{key: manifest[key] for key in ("license", "author", "homepage", "repository", "bugs", "engines")},
            "publishConfig": {"access": "public"},
            # Yarn Plug'n'Play leaves packages zipped otherwise.
            "preferUnplugged": True,
            **({"main": name} if name.endswith(".node") else {}),
        }
        with tempfile.TemporaryDirectory() as work:
            sbom.write(package.crate, [target.rust], Path(work))
            beside = [(Path(work, beside), beside) for beside in (sbom.LICENCES, sbom.SBOM)]
            self._npm_pack(own, [(compiled, name), *beside])

    def _npm_library(self, library: Npm) -> None:
        folder = ROOT / library.folder
        run(["node", "scripts/build.mjs", "--javascript"], cwd=folder)
        compiled = [
            path for path in (folder / "dist").rglob("*") if path.name.endswith((".js", ".mjs", ".d.ts", ".d.mts"))
        ]
        files = [(path, str(path.relative_to(folder))) for path in sorted(compiled)]
        files += [(folder / name, name) for name in ("README.md", "compat/redlock/package.json")]
        self._npm_main(library, files)

    def _npm_main(self, package: OnNpm, files: list[tuple[Path, str]]) -> None:
        """Make the package that users name. It needs those of the targets."""
        # In the repository, package.json says private, so that nobody publishes the folder itself.
        not_published = ("private", "devDependencies", "scripts")
        published = {key: value for key, value in package.manifest.items() if key not in not_published}
        platforms = [f"{package.platforms}-{target.npm.platform}" for target in self.release.published()]
        published["optionalDependencies"] = dict.fromkeys(platforms, version())
        self._npm_pack(published, files)

    def _npm_pack(self, manifest: dict[str, Any], files: Iterable[tuple[Path, str]]) -> None:
        with tempfile.TemporaryDirectory() as work:
            for source, name in [*files, (LICENCE, "LICENSE")]:
                place = Path(work, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
                # Uploads between machines of a workflow lose the mode.
                place.chmod(0o755 if name.startswith("bin/") else 0o644)
            Path(work, "package.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            run(["npm", "pack", "--silent", "--pack-destination", self.packages / "npm"], cwd=Path(work))

    def maven(self) -> None:
        """Make the JVM modules, in the layout of a Maven repository."""
        repository = self._fresh("maven")
        module = self.release.jvm
        with tempfile.TemporaryDirectory() as work:
            natives = Path(work, "natives")
            natives.mkdir()
            for target in self.targets:
                place = natives / target.in_jar(module.library)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.out / target.rust / place.name, place)
            (natives / "META-INF").mkdir()
            sbom.write(module.crate, [target.rust for target in self.targets], natives / "META-INF")
            # Builds in a folder of its own, so that neither the checkout nor the local repository changes.
            maven = ["mvn", "-q", "-B", "-ntp", "-f", module.folder, "-Ppackages", "deploy"]
            maven += ["-Dmaven.test.skip=true", "-Dmdep.skip=true", "-Dmaven.install.skip=true"]
            maven += [f"-Dredlock.natives={natives}", f"-Dredlock.build={Path(work, 'build')}"]
            run([*maven, f"-DaltDeploymentRepository=packed::file://{repository}"], cwd=ROOT)

    def crates(self, verify: bool) -> None:
        """Make the crates of the library and the programs."""
        folder = self._fresh("crates")
        crates = [self.release.crate, self.release.program.crate]
        packages = [f"--package={crate}" for crate in crates]
        how = [] if verify else ["--no-verify"]
        # In a folder of its own: cargo takes a version of a crate for unchanged, and would verify the program with an
        # earlier state of the library. --allow-dirty, so that a change can be tried before it is committed.
        with tempfile.TemporaryDirectory() as made:
            how += [f"--target-dir={made}", "--allow-dirty"]
            run(["cargo", "package", "--locked", "--quiet", *how, *packages], cwd=ROOT)
            for crate in crates:
                shutil.copy(Path(made, "package", f"{crate}-{version()}.crate"), folder)

    def archives(self) -> None:
        """Make an archive of each program, for users who want no package."""
        folder = self._fresh("archives")
        program = self.release.program
        for target in self.targets:
            name = target.program(program.name)
            with tempfile.TemporaryDirectory() as work:
                made = Path(work, f"{program.name}-{version()}-{target.rust}")
                made.mkdir()
                sources = [self.out / target.rust / "programs" / name, ROOT / program.folder / "README.md", LICENCE]
                for source in sources:
                    shutil.copyfile(source, made / source.name)
                sbom.write(program.crate, [target.rust], made)
                windows = target.system == "windows"
                if not windows:
                    self._pages(program, made)
                _archive(folder, made, name, windows=windows)

    def _pages(self, program: Program, folder: Path) -> None:
        """Write the manual pages and completions. They are the same for all Unix systems, so this machine's program
        prints them.
        """
        here = self.out / self.release.host().rust / "programs" / program.name
        if not here.exists():
            raise Refused(f"{here}, which prints the manual pages, is missing: python3 -m release.native host OUT")
        with tempfile.TemporaryDirectory() as work:
            # Uploads between machines of a workflow lose the mode.
            runs = shutil.copyfile(here, Path(work, program.name))
            runs.chmod(0o755)
            run([runs, "man", folder / "man"])
            (folder / "completions").mkdir()
            for shell, name in COMPLETIONS.items():
                script = subprocess.run([runs, "completions", shell], check=True, stdout=subprocess.PIPE).stdout
                (folder / "completions" / name.format(program.name)).write_bytes(script)

    def sums(self) -> None:
        """Write SHA256SUMS."""
        (self.packages / SUMS).unlink(missing_ok=True)
        lines = [f"{sha256}  {name}\n" for name, sha256 in sums(self.packages).items()]
        (self.packages / SUMS).write_text("".join(lines), encoding="utf-8")

    def _fresh(self, name: str) -> Path:
        folder = self.packages / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder


def sums(folder: Path) -> dict[str, str]:
    """The sha256 of each file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _archive(folder: Path, packed: Path, program: str, *, windows: bool) -> None:
    """Make an archive of a folder, with equal dates and owners and the program as the only executable."""
    files = sorted(path for path in packed.rglob("*") if path.is_file())
    entries = [
        (path.relative_to(packed.parent).as_posix(), path, 0o755 if path.name == program else 0o644) for path in files
    ]
    if windows:
        with zipfile.ZipFile(folder / f"{packed.name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, source, mode in entries:
                entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
                entry.external_attr = mode << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, source.read_bytes())
        return
    date = int(native.EPOCH)
    with (
        (folder / f"{packed.name}.tar.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=date, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, source, mode in entries:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = source.stat().st_size, mode, date
            with source.open("rb") as content:
                tar.addfile(member, content)


@in_one_line("release.pack")
def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.pack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--verify-crates", action="store_true", help="also compile the crates from what is in them")
    given = parser.parse_args()
    packer = Packer(load(), given.out.resolve())
    packer.python()
    packer.npm()
    packer.maven()
    packer.crates(given.verify_crates)
    packer.archives()
    packer.sums()
    print(packer.packages)


if __name__ == "__main__":
    main()
