"""What the library tells about locks and nodes: plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LockInfo:
    """Who holds a lock, as a quorum of nodes saw it."""

    owner: str
    """The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`."""

    ttl: float | None
    """Seconds until the key ends unless it is renewed; None when a peer gave it no time to live."""

    token: int
    """The last fencing token; 0 when the holder draws none."""


@dataclass(frozen=True)
class NodeStatus:
    """What a node says of itself."""

    node: str
    """Its address, without credentials."""

    ok: bool
    """Whether it answered as it should."""

    run: str | None = None
    """The run of the server, which changes with each restart."""

    version: str | None = None
    """The version of the server."""

    cause: str | None = None
    """Why it did not answer, when it did not."""
