"""Installs the tools of a release, and configures them to build for other targets.

    python3 -m release.toolchain TARGET...      compiles everything for these targets, links nothing

zig and maturin come from PyPI, pinned by hash. zig links, compiles C, and has the C library of every target. Rust's
standard library for another target comes from rustup: `rustup target add TARGET`. All files are in
target/release-tools, except zig's own cache; nothing is installed on the system.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from release.commands import Refused, in_one_line, run
from release.targets import ROOT

try:
    import fcntl
except ImportError:  # Windows, where no two of these programs run at once
    fcntl = None  # type: ignore[assignment]

REQUIREMENTS = ROOT / "release" / "requirements.txt"
FOLDER = ROOT / "target" / "release-tools"
WINDOWS = os.name == "nt"


# ---- tools from PyPI ------------------------------------------------------------------------------------------------


@cache
def tools() -> Path:
    """The folder with the programs of requirements.txt. On systems other than Linux it has only maturin."""
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    made_for = hashlib.sha256(f"{sys.version}\n{wanted}".encode()).hexdigest()
    venv = FOLDER / "venv"
    programs = venv / ("Scripts" if WINDOWS else "bin")
    stamp = venv / "made-for"
    with alone(FOLDER):
        if stamp.exists() and stamp.read_text() == made_for:
            return programs
        say("tools from PyPI")
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "--only-binary=:all:", "-r", REQUIREMENTS], check=True)
        stamp.write_text(made_for)
    return programs


# ---- the environment of cargo and maturin ---------------------------------------------------------------------------


def environment(target: str) -> dict[str, str]:
    """The variables to add to `os.environ` before `cargo zigbuild` and `maturin build --zig` for a target on Linux, and
    before `cargo build` and `maturin build` elsewhere. The target may end in a version of glibc: x.2.17.
    """
    rust_target, _, glibc = target.partition(".")
    path = [str(tools())]
    # maturin sets this, too: an extension module finds Python's symbols in the process that loads it.
    added = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    if sys.platform.startswith("linux"):
        wrappers = _wrappers(rust_target, glibc)
        name = rust_target.replace("-", "_")
        # cargo-zigbuild and maturin have wrappers of their own, in different places. With the same wrappers, each can
        # reuse files that the other has built.
        added |= {
            f"CC_{name}": str(wrappers / "cc"),
            f"CXX_{name}": str(wrappers / "c++"),
            f"AR_{name}": str(wrappers / "ar"),
            f"RANLIB_{name}": str(wrappers / "ranlib"),
            f"CARGO_TARGET_{name.upper()}_LINKER": str(wrappers / "cc"),
            "CARGO_ZIGBUILD_CACHE_DIR": str(FOLDER / "zig"),
        }
        if rust_target.endswith("-windows-gnu"):
            path.append(str(wrappers / "path"))
            added["LIBNODE_PATH"] = str(wrappers / "libnode")
    if "CARGO_UNSTABLE_BUILD_STD" not in os.environ and not is_installed(rust_target):
        raise Refused(f"rustc has no standard library for {rust_target}: rustup target add {rust_target}")
    added["PATH"] = os.pathsep.join([*path, os.environ.get("PATH", os.defpath)])
    return added


def rustflags(target: str, *, program: bool = False) -> list[str]:
    """The flags of rustc that a target requires for libraries, or for programs."""
    if target.endswith("-msvc"):
        # Not every Windows has the C library's vcruntime140.dll.
        return ["-C", "target-feature=+crt-static"]
    if "-musl" not in target:
        return []
    # A program for musl is static, so that it runs on every Linux. zig has the C library's start files.
    if program:
        return ["-C", "target-feature=+crt-static", "-C", "link-self-contained=no"]
    # A library that a host loads uses the host's C library. Two words: maturin adds the flag unless it finds these.
    return ["-C", "target-feature=-crt-static"]


def is_installed(rust_target: str) -> bool:
    """Whether rustc has the standard library of this target, as `rustup target add` installs it."""
    folder = run(["rustc", "--print", "target-libdir", "--target", rust_target])
    return any(Path(folder).glob("libstd-*"))


# ---- zig ------------------------------------------------------------------------------------------------------------

# zig's names of Rust's targets, without the architecture.
ZIG = {
    "unknown-linux-gnu": "linux-gnu",
    "unknown-linux-musl": "linux-musl",
    "pc-windows-gnu": "windows-gnu",
    "apple-darwin": "macos-none",
}


def _wrappers(rust_target: str, glibc: str) -> Path:
    """The folder with wrappers of zig for one target: a C compiler, which also links, and binutils."""
    architecture, _, system = rust_target.partition("-")
    if system not in ZIG:
        raise Refused(f"{rust_target} cannot be built on this machine; a machine of its kind can")
    folder = FOLDER / "wrappers" / (f"{rust_target}.{glibc}" if glibc else rust_target)
    zig_target = f"{architecture}-{ZIG[system]}" + (f".{glibc}" if glibc else "")
    # `-g` keeps zig from stripping; cargo decides about that.
    options = ["-g", "-fno-sanitize=all", "-target", zig_target]
    programs = {"cc": ["cc", *options], "c++": ["c++", *options], "ar": ["ar"], "ranlib": ["ranlib"]}
    if system == "pc-windows-gnu":
        # zig turns a use of __DATE__ into an error.
        for compiler in ("cc", "c++"):
            programs[compiler].append("-Wno-error=date-time")
        # rustc looks for it on the PATH. The other wrappers must not be there: they would hide this machine's programs.
        programs[f"path/{architecture}-w64-mingw32-dlltool"] = ["dlltool"]
        # napi-build requires a libnode.dll, but uses nothing in it: Node's symbols are looked up at run time. An empty
        # archive satisfies the linker.
        for name in ("libnode.dll", "node.lib"):
            _write(folder / "libnode" / name, "!<arch>\n")
    for name, (tool, *arguments) in programs.items():
        script(folder / name, [tools() / "cargo-zigbuild", "zig", tool, "--", *arguments])
    return folder


# ---- helpers --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """A lock between processes: one at a time runs a block for this folder. Makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        if fcntl:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a file, unless it already has this text: other processes may be reading it."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(mode)
    fresh.replace(path)


def script(path: Path, command: list[str | Path]) -> None:
    """Writes a script that runs a command with further arguments."""
    _write(path, f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', 0o755)


def say(what: str) -> None:
    print(f"== {what}", file=sys.stderr, flush=True)


# ---- the command line -----------------------------------------------------------------------------------------------


@in_one_line("release.toolchain")
def main() -> None:
    packages = [f"--package=redlock-{name}" for name in ("core", "python", "node", "kotlin", "cli")]
    for target in sys.argv[1:]:
        say(f"compiling for {target}")
        rust_target = target.partition(".")[0]
        flags = {"RUSTFLAGS": " ".join(["-Dwarnings", *rustflags(target)])}
        command = ["cargo", "check", "--locked", "--quiet", "--target", rust_target, *packages]
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | environment(target) | flags)


if __name__ == "__main__":
    main()
