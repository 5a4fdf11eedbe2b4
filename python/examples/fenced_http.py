"""Fencing in an HTTP service: every request, a read too, has the token in a header. Copy it; see docs/fencing.md.

    python fenced_http.py database-file port

The service does not check tokens itself. Its database does, in the transaction of the request. So several processes
may serve, and a restart forgets no token.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import fenced_sql
from fenced_sql import Outdated

# ---- the service: documents at any path ------------------------------------------------------------------------------

TABLE = "CREATE TABLE IF NOT EXISTS document (path TEXT PRIMARY KEY, content BLOB)"


class Handler(BaseHTTPRequestHandler):
    """Serves GET and PUT requests that present a token."""

    server: Service

    def do_GET(self) -> None:
        """Read a document."""
        self._access("SELECT content FROM document WHERE path = ?", self.path)

    def do_PUT(self) -> None:
        """Write a document."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self._access("REPLACE INTO document VALUES (?, ?) RETURNING content", self.path, content)

    def _access(self, statement: str, *values: str | bytes) -> None:
        token = self.headers.get("Fencing-Token", "")
        if not (token.isascii() and token.isdecimal() and int(token) < 2**63):
            self._answer(428)  # Precondition Required: without a token nobody gets anything, not even to read
            return
        try:
            with self.server.connected() as connection, fenced_sql.fenced(connection, self.path, int(token)):
                rows = connection.execute(statement, values).fetchall()
        except Outdated:
            self._answer(412)  # Precondition Failed
        else:
            self._answer(200 if rows else 404, rows[0][0] if rows else b"")

    def _answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Service(ThreadingHTTPServer):
    """A service on 127.0.0.1; with port 0, on any free port."""

    def __init__(self, database: str, port: int = 0) -> None:
        self.database = database
        with self.connected() as connection, connection:
            connection.execute(fenced_sql.TABLE)
            connection.execute(TABLE)
        super().__init__(("127.0.0.1", port), Handler)

    def connected(self) -> closing[sqlite3.Connection]:
        """Connect to the database for one request."""
        return closing(sqlite3.connect(self.database, timeout=30))


# ---- its client ------------------------------------------------------------------------------------------------------


def access(url: str, token: int, write: bytes | None = None) -> bytes:
    """Write a document, unless `write` is None. Return the content afterwards, which is empty without a document."""
    request = Request(url, write, {"Fencing-Token": str(token)}, method="GET" if write is None else "PUT")
    try:
        with urlopen(request) as response:
            content: bytes = response.read()
            return content
    except HTTPError as error:
        if error.code == 412:
            raise Outdated(f"{url}: token {token}") from error
        if error.code == 404:
            return b""
        raise


def deposit(url: str, amount: int, token: int) -> None:
    """Read, compute and write; the caller holds the lock."""
    balance = int(access(url, token) or 0)
    access(url, token, b"%d" % (balance + amount))


if __name__ == "__main__":
    Service(sys.argv[1], int(sys.argv[2])).serve_forever()
