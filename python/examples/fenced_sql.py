"""Fencing in SQL: the first statement of each transaction presents the token. Copy it; see docs/fencing.md.

The tokens have a table of their own, so that a resource may be any number of rows and tables. This is written for
`sqlite3`; other drivers write parameters differently.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

TABLE = "CREATE TABLE IF NOT EXISTS fence (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL)"

# PostgreSQL and SQLite. It changes no row if a larger token was here.
PRESENT = """
    INSERT INTO fence (resource, token) VALUES (:resource, :token)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
"""


class Outdated(Exception):
    """A later holder of the lock has accessed the resource: stop."""


@contextmanager
def fenced(connection: sqlite3.Connection, resource: str, token: int) -> Iterator[None]:
    """Run a block as one transaction under a token; raise `Outdated` before it if a larger token was here."""
    with connection:  # commits, or rolls back
        if not connection.execute(PRESENT, {"resource": resource, "token": token}).rowcount:
            raise Outdated(f"{resource}: token {token}")
        yield


def deposit(connection: sqlite3.Connection, account: int, amount: int, token: int) -> None:
    """Read, think, write: under a lock, in two transactions, because thinking takes long."""
    with fenced(connection, f"account:{account}", token):
        (balance,) = connection.execute("SELECT balance FROM account WHERE id = ?", (account,)).fetchone()
    balance += amount
    with fenced(connection, f"account:{account}", token):
        connection.execute("UPDATE account SET balance = ? WHERE id = ?", (balance, account))
