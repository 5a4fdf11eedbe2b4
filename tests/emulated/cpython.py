"""Builds CPython from Debian's source, with zig, for a C library for which no registry has one.

The result can install a wheel and use a lock. It has no TLS, so its pip supports only plain http. The build takes two
minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from release import toolchain
from release.commands import Refused
from tests.emulated import debian

VERSION = "3.13"
# By Debian's suite. Mirrors list a new source some days before they have it: the older suite has few new ones.
SOURCES = {"trixie": f"python{VERSION}", "bookworm": "zlib"}


def build(zig_target: str, place: Path, loader: Path | None = None) -> None:
    """Build it in the folder `place`, for a target with zig's name. `loader` is the dynamic loader that starts it."""
    print(f"== Python {VERSION} for {zig_target}", file=sys.stderr, flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as work:
        sources = Path(work, "sources")
        for suite, name in SOURCES.items():
            debian.source(suite, name, sources)
        (python,) = sources.glob("Python-*")
        (zlib,) = sources.glob("zlib-*")
        linking = [f"-Wl,--dynamic-linker={loader}"] if loader else []
        # Link dynamically, also to musl; leave out the checks that zig adds; allow __DATE__.
        options = ["-target", zig_target, "-dynamic", *linking, "-fno-sanitize=all", "-Wno-date-time", "-O1"]
        (zig,) = toolchain.tools().parent.glob("lib/python*/site-packages/ziglang/zig")
        wrapper = Path(work, "cc")
        wrapper.write_text(f'#!/bin/sh\nexec "{zig}" cc {" ".join(options)} "$@"\n')
        wrapper.chmod(0o755)
        environment = os.environ | {
            "CC": str(wrapper),
            "AR": f"{zig} ar",
            "RANLIB": f"{zig} ranlib",
            # Keeps pkg-config from finding libraries of this machine.
            "PKG_CONFIG": "/bin/false",
            "ZIG_GLOBAL_CACHE_DIR": str(toolchain.FOLDER / "zig-cache"),
        }
        environment = {name: value for name, value in environment.items() if not name.endswith("FLAGS")}
        jobs = f"-j{os.cpu_count() or 1}"
        log = place.with_name(f"{place.name}.log")
        with log.open("w") as output:

            def run(*command: str | Path, cwd: Path, **more: str) -> None:
                try:
                    subprocess.run(
                        command, check=True, cwd=cwd, env=environment | more, stdout=output, stderr=subprocess.STDOUT
                    )
                except (OSError, subprocess.CalledProcessError):
                    raise Refused(f"Python {VERSION} cannot be built for {zig_target}: see {log}") from None

            run("./configure", "--static", cwd=zlib, CFLAGS="-fPIC")
            run("make", jobs, "libz.a", cwd=zlib)
            run(
                *("./configure", "--disable-test-modules", "--without-doc-strings", "OPT=-DNDEBUG"),
                *(f"CPPFLAGS=-I{zlib}", f"LDFLAGS=-L{zlib} -s"),
                cwd=python,
            )
            run("make", jobs, cwd=python)
        log.unlink()
        _install(python, Path(work, "made"))
        Path(work, "made").rename(place)


def _install(built: Path, place: Path) -> None:
    """Copies the files that `make install` would install, without tests and bytecode."""
    library = place / "lib" / f"python{VERSION}"
    shutil.copytree(built / "Lib", library, ignore=shutil.ignore_patterns("test", "idlelib", "__pycache__"))
    modules = built / (built / "pybuilddir.txt").read_text()
    shutil.copytree(modules, library / "lib-dynload", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "bin").mkdir()
    shutil.copy2(built / "python", place / "bin" / f"python{VERSION}")
