"""The two scripts of an uncontended lock, put together as the core does it, for a bare client to send."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "core" / "src" / "protocol" / "lua"


def source(name: str) -> str:
    """Return a script for the wire "redisson", without comments."""
    lines = (
        line for file in ("wire_redisson", "wire", name) for line in (FOLDER / f"{file}.lua").read_text().splitlines()
    )
    return "".join(f"{line}\n" for line in lines if not line.startswith("--"))
