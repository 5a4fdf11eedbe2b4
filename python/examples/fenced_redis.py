"""Fencing in Redis: one script checks the token, and reads and writes a hash. Copy it; see docs/fencing.md.

The token is a field of the hash that it protects. One key works on a cluster, and no copy has the data without the
token.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import redis

SCRIPT = """
-- KEYS  a hash      ARGV  the token, then fields and values to write: none, if this only reads
-- Returns all fields and values, or nothing if a larger token was here.
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return false end
redis.call('HSET', KEYS[1], 'fence', unpack(ARGV))
return redis.call('HGETALL', KEYS[1])
"""


class Outdated(Exception):
    """A later holder of the lock has accessed the resource: stop."""


def access(client: redis.Redis, key: str, token: int, **write: str | int) -> dict[str, str]:
    """Write the given fields, if any, and return all; the client must have `decode_responses=True`."""
    reply = client.register_script(SCRIPT)([key], [token, *chain.from_iterable(write.items())])
    if reply is None:
        raise Outdated(f"{key}: token {token}")
    return dict(zip(reply[::2], reply[1::2], strict=True))


def deposit(client: redis.Redis, account: int, amount: int, token: int) -> None:
    """Read, compute and write; the caller holds the lock."""
    balance = int(access(client, f"account:{account}", token).get("balance", 0))
    access(client, f"account:{account}", token, balance=balance + amount)
