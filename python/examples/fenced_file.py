"""Fencing of a file on one host: a second file beside it holds the token. Copy this recipe; see docs/fencing.md."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Outdated(Exception):
    """A later holder of the lock has accessed the resource: stop."""


@contextmanager
def fenced(path: Path, token: int) -> Iterator[None]:
    """Run a block that reads or replaces a file, under a token; raise `Outdated` before it if a larger one was here."""
    fence = os.open(f"{path}.fence", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fence, fcntl.LOCK_EX)  # orders the accesses, on this host; the lock orders the tenures
        if int(os.pread(fence, 20, 0) or 0) > token:
            raise Outdated(f"{path}: token {token}")
        os.pwrite(fence, b"%020d" % token, 0)  # of one length: written at once, never half of it
        os.fsync(fence)
        yield
    finally:
        os.close(fence)


def deposit(path: Path, amount: int, token: int) -> None:
    """Read, compute and write; the caller holds the lock."""
    with fenced(path, token):
        balance = int(path.read_text() if path.exists() else 0)
    balance += amount
    with fenced(path, token):
        replacement = path.with_suffix(".new")
        replacement.write_text(str(balance))
        replacement.replace(path)
