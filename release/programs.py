"""Tries the programs of a release: installs them with pip, with npm and from their archives, and runs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from release import runtimes
from release.refused import Refused
from release.targets import Program, Target, version
from release.trial import Trial, bare, line, refused, run, size_of, timed

if TYPE_CHECKING:
    from release.here import Here

WINDOWS = os.name == "nt"
# Runs a command of these words on the machine of the trial; returns its output.
Start = Callable[[list[str | Path]], str]


def use(program: Program, command: str | Path, servers: list[str], start: Start, *, unix: bool) -> str:
    """Run an installed program; return a line about what it did. `exec` is for Unix."""
    said = start([command, "--version"])
    if said != f"{program.name} {version()}":
        raise Refused(f"{command} --version says {said}, not {program.name} {version()}")
    if not servers:
        return said
    url, tls, ca = servers
    secured = ["--url", tls, "--ca", ca]
    lease = start([command, "acquire", "smoke", "--ttl", "10s", *secured])
    start([command, "release", lease, *secured])
    if not unix:
        return f"{said}: acquire; release; TLS"
    # Its own command is the one that every machine of a trial has.
    under_lock = start([command, "exec", "smoke", "--url", url, "--", command, "--version"])
    if under_lock != said:
        raise Refused(f"{command} exec: {under_lock}")
    return f"{said}: acquire; release; exec; TLS"


def by_pip(here: Here, program: Program, python: runtimes.Python) -> None:
    """Install with pip into an empty environment: by its name, and as an extra of the library, which pins it."""
    venv = here.trial.folder("venv")
    interpreter = python.venv(venv)
    env = bare(here.trial.work, PATH="/nonexistent")
    install = [interpreter, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
    install += ["--only-binary", ":all:", "--index-url", here.trial.urls.pip, program.python, "redlock-core[cli]"]
    seconds = timed(lambda: run(install, env=env, cwd=venv))
    command = interpreter.with_name(f"{program.name}.exe" if WINDOWS else program.name)
    said = use(program, command, here.trial.servers, lambda words: run(words, env=env), unix=not WINDOWS)
    here.note(f"pip, Python {python.version}", seconds, command.stat().st_size, said)


def by_npm(here: Here, program: Program, node: runtimes.Node, npm: runtimes.Npm) -> None:
    """Install with npm into an empty folder. Without the package for this machine, a line must say what to do."""
    folder = here.trial.folder("npm")
    env = here.npm_environment(node)
    seconds = timed(lambda: here.npm_install(npm.command(node), folder, env, package=program.npm))
    command = folder / "node_modules" / ".bin" / (f"{program.name}.cmd" if WINDOWS else program.name)
    said = use(program, command, here.trial.servers, lambda words: run(words, env=env), unix=not WINDOWS)
    here.note(f"npm {npm.version}, Node {node.version}", seconds, size_of((folder / "node_modules").rglob("*")), said)
    shutil.rmtree(folder / "node_modules" / Path(program.platforms).parent)
    said = line(refused([command, "--version"], env=env, cwd=folder), "without --omit=optional")
    here.note(f"{program.npm} without its platform package", 0, 0, said)


def unpacked(trial: Trial, program: Program, target: Target) -> Path:
    """Unpack the archive of a target; return the path of the program."""
    folder = trial.folder("archive")
    (archive,) = (trial.packages / "archives").glob(f"{program.name}-{version()}-{target.rust}.*")
    shutil.unpack_archive(archive, folder)
    (path,) = folder.glob(f"*/{target.program(program.name)}")
    # Python unpacks no modes from a zip.
    path.chmod(0o755)
    return path
