"""How it is said that something cannot be done: in one line, by whichever program found out."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


class Refused(Exception):
    """Something that was asked for cannot be done; the message is one line for whoever asked."""


@contextlib.contextmanager
def in_one_line(module: str) -> Iterator[None]:
    """Ends the process when what is inside is refused, or a program that it ran failed. Decorates a `main`."""
    try:
        yield
    except Refused as error:
        sys.exit(f"{module}: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{module}: {Path(error.cmd[0]).name} failed; see its messages above")
