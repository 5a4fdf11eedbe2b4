"""The exception for requests that cannot be fulfilled, and the one-line message that a program prints for it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


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
