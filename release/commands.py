"""Runs commands and returns their output; ends a program with one line if a request cannot be fulfilled."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# The time limit of one command, in seconds.
TIMEOUT = 1800


class Refused(Exception):
    """A request cannot be fulfilled. The message is for the user of the program, as a rule on one line."""


@contextlib.contextmanager
def in_one_line(module: str) -> Iterator[None]:
    """Ends the process with one line if the block raises Refused, or if a program in it failed. Decorates a `main`."""
    try:
        yield
    except Refused as error:
        sys.exit(f"{module}: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{module}: {Path(error.cmd[0]).name} failed; see its messages above")


def run(command: list[str | Path], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command and return its output, without outer blanks. Raises Refused if it fails."""
    done = ended(command, env, cwd)
    if done.returncode:
        raise Refused(shown(done))
    return done.stdout.strip()


def ended(
    command: list[str | Path], env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return the finished process. Raises Refused if it does not start, or does not end in time."""
    words = list(map(str, command))
    # On Windows, mvn and npm are scripts, which subprocess finds only by their full name.
    words[0] = shutil.which(words[0]) or words[0]
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": TIMEOUT}
    try:
        return subprocess.run(words, env=env, cwd=cwd, check=False, **how)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{words[0]} cannot be run: {error}") from None


def shown(done: subprocess.CompletedProcess[str]) -> str:
    """A command with its exit code and output."""
    return f"{' '.join(done.args)}: exit {done.returncode}\n{done.stdout}{done.stderr}".strip()
