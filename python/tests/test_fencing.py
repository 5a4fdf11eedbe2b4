"""Tests of the fencing recipes of docs/fencing.md: on real resources, in all interleavings of two holders.

A resource counts updates. Each holder reads, adds one, and writes. An update is lost if it was accepted and is missing
from the final count. The negative controls run without the check, or with a check on writes only: they must lose
updates, or these tests would find nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import redis

import redlock

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/fencing.md"
sys.path.append(str(ROOT / "python/examples"))

import fenced_file  # noqa: E402
import fenced_http  # noqa: E402
import fenced_redis  # noqa: E402
import fenced_sql  # noqa: E402
import fenced_store  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from multiprocessing.connection import Connection

    from servers import Server

Outdated = (fenced_file.Outdated, fenced_redis.Outdated, fenced_sql.Outdated, fenced_store.Outdated)

# ---- resources: counters that start at 0, with access under a token and, as a control, without the check ------------


class Resource:
    """A counter; `where` is the text by which another process finds it."""

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self, token: int) -> int:
        """Read under a token."""
        raise NotImplementedError

    def write(self, token: int, value: int) -> None:
        """Write under a token."""
        raise NotImplementedError

    def plain_read(self) -> int:
        """Read without the check."""
        raise NotImplementedError

    def plain_write(self, value: int) -> None:
        """Write without the check."""
        raise NotImplementedError


class Sql(Resource):
    """A row of SQLite; the tokens are in a table of their own."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        with self.connected() as connection, connection:
            connection.execute(fenced_sql.TABLE)
            connection.execute("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, fence BIGINT, balance INT)")
            connection.execute("INSERT OR IGNORE INTO account VALUES (7, 0, 0)")

    def connected(self) -> closing[sqlite3.Connection]:
        return closing(sqlite3.connect(self.where, timeout=60))

    def read(self, token: int) -> int:
        with self.connected() as connection, fenced_sql.fenced(connection, "account:7", token):
            return select(connection)

    def write(self, token: int, value: int) -> None:
        with self.connected() as connection, fenced_sql.fenced(connection, "account:7", token):
            update(connection, value)

    def plain_read(self) -> int:
        with self.connected() as connection:
            return select(connection)

    def plain_write(self, value: int) -> None:
        with self.connected() as connection, connection:
            update(connection, value)


def select(connection: sqlite3.Connection) -> int:
    value: int = connection.execute("SELECT balance FROM account WHERE id = 7").fetchone()[0]
    return value


def update(connection: sqlite3.Connection, value: int) -> None:
    connection.execute("UPDATE account SET balance = ? WHERE id = 7", (value,))


class SqlRow(Sql):
    """A row of SQLite that has the token in it; the statements are read from the guide."""

    _text = re.findall(r"```sql\n(UPDATE account.*?)```", GUIDE.read_text(), re.DOTALL)[0]
    present, select, update = filter(str.strip, re.sub(r"--.*", "", _text).split(";"))

    def read(self, token: int) -> int:
        with self.connected() as connection, connection:
            self.changes(connection.execute(self.present, {"token": token, "id": 7}))
            value: int = connection.execute(self.select, {"id": 7}).fetchone()[0]
            return value

    def write(self, token: int, value: int) -> None:
        with self.connected() as connection, connection:
            self.changes(connection.execute(self.update, {"token": token, "id": 7, "balance": value}))

    @staticmethod
    def changes(cursor: sqlite3.Cursor) -> None:
        if not cursor.rowcount:
            raise fenced_sql.Outdated


class Redis(Resource):
    """A hash of a redis-server."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        url, self.key = where.split()
        self.client = redis.Redis.from_url(url, decode_responses=True)

    def read(self, token: int) -> int:
        return int(fenced_redis.access(self.client, self.key, token).get("count", 0))

    def write(self, token: int, value: int) -> None:
        fenced_redis.access(self.client, self.key, token, count=value)

    def plain_read(self) -> int:
        return int(self.client.hget(self.key, "count") or 0)

    def plain_write(self, value: int) -> None:
        self.client.hset(self.key, "count", str(value))


class Store(Resource):
    """An object of an object store."""

    def read(self, token: int) -> int:
        return int(fenced_store.access(self.where, token) or 0)

    def write(self, token: int, value: int) -> None:
        fenced_store.access(self.where, token, value)

    def plain_read(self) -> int:
        return fenced_store.get(self.where)[0]["value"] or 0

    def plain_write(self, value: int) -> None:
        content, _ = fenced_store.get(self.where)
        content["value"] = value
        with urlopen(Request(self.where, json.dumps(content).encode(), method="PUT")):
            pass


class Http(Resource):
    """A document of an HTTP service. The controls access the service's database directly."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.url, self.database = where.split()
        self.path = (urlsplit(self.url).path,)

    def read(self, token: int) -> int:
        return int(fenced_http.access(self.url, token) or 0)

    def write(self, token: int, value: int) -> None:
        fenced_http.access(self.url, token, b"%d" % value)

    def plain_read(self) -> int:
        with closing(sqlite3.connect(self.database, timeout=60)) as connection:
            row = connection.execute("SELECT content FROM document WHERE path = ?", self.path).fetchone()
            return int(row[0]) if row else 0

    def plain_write(self, value: int) -> None:
        with closing(sqlite3.connect(self.database, timeout=60)) as connection, connection:
            connection.execute("REPLACE INTO document VALUES (?, ?)", (*self.path, b"%d" % value))


class File(Resource):
    """A file."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.path = Path(where)

    def read(self, token: int) -> int:
        with fenced_file.fenced(self.path, token):
            return self.plain_read()

    def write(self, token: int, value: int) -> None:
        with fenced_file.fenced(self.path, token):
            self.plain_write(value)

    def plain_read(self) -> int:
        return int(self.path.read_text()) if self.path.exists() else 0

    def plain_write(self, value: int) -> None:
        self.path.write_text(str(value))


class ObjectStore(BaseHTTPRequestHandler):
    """Stands for S3 and similar stores: conditional writes are atomic, and an etag is the MD5 of the content."""

    objects: ClassVar[dict[str, bytes]] = {}
    mutex = threading.Lock()

    def do_GET(self) -> None:
        with self.mutex:
            content = self.objects.get(self.path)
        self.answer(404 if content is None else 200, content or b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with self.mutex:
            now = self.objects.get(self.path)
            missed = now is not None and self.headers["If-None-Match"] == "*"
            missed |= self.headers["If-Match"] not in (None, now and etag(now))
            if not missed:
                self.objects[self.path] = content
        self.answer(412 if missed else 200)

    def answer(self, status: int, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", etag(content))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    """Serve from a thread; yield the URL."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


Make = Callable[[], Resource]


@pytest.fixture(params=[Sql, SqlRow, Redis, Store, Http, File])
def make(request: pytest.FixtureRequest, tmp_path: Path, server: Server) -> Iterator[Make]:
    """Make new counters of one kind."""
    numbers = itertools.count()
    kind = request.param
    if kind is Redis:
        yield lambda: Redis(f"{server.url} {tmp_path}:{next(numbers)}")
    elif kind is Store:
        with serving(ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore)) as url:
            yield lambda: Store(f"{url}{tmp_path}/{next(numbers)}")
    elif kind is Http:
        database = str(tmp_path / "service.db")
        with serving(fenced_http.Service(database)) as url:
            yield lambda: Http(f"{url}/{next(numbers)} {database}")
    else:
        yield lambda: kind(str(tmp_path / f"{next(numbers)}"))


# ---- rules: the operations of a resource that a holder uses ---------------------------------------------------------

Rule = Callable[[Resource, int], tuple[Callable[[], int], Callable[[int], None]]]


def every_access(resource: Resource, token: int) -> tuple[Callable[[], int], Callable[[int], None]]:
    """The rule of the guide."""
    return partial(resource.read, token), partial(resource.write, token)


def writes_only(resource: Resource, token: int) -> tuple[Callable[[], int], Callable[[int], None]]:
    """A control: a check on writes only, which is often believed to be enough."""
    return resource.plain_read, partial(resource.write, token)


def no_check(resource: Resource, _: int) -> tuple[Callable[[], int], Callable[[int], None]]:
    """A control: the lock alone, without a check."""
    return resource.plain_read, resource.plain_write


def play(resource: Resource, rule: Rule, order: Iterable[str]) -> tuple[bool, set[str]]:
    """Run the steps of A, the earlier holder, and of B; return whether an update is lost, and the refused holders."""
    holders = {"A": rule(resource, 1), "B": rule(resource, 2)}
    seen: dict[str, int] = {}
    refused: set[str] = set()
    accepted = 0
    for who in order:
        read, write = holders[who]
        if who in refused:
            continue
        try:
            if who in seen:
                write(seen[who] + 1)
                accepted += 1
            else:
                seen[who] = read()
        except Outdated:
            refused.add(who)
    return resource.plain_read() != accepted, refused


@pytest.mark.parametrize(("rule", "expected"), [(every_access, 0), (writes_only, 2), (no_check, 4)])
def test_lost_updates(make: Make, rule: Rule, expected: int) -> None:
    """In the 6 interleavings of two reads and two writes, the rule loses no update, and the controls do."""
    orders = sorted(set(itertools.permutations("AABB")))
    outcomes = {"".join(order): play(make(), rule, order) for order in orders}
    assert len(outcomes) == 6
    assert sum(lost for lost, _ in outcomes.values()) == expected, outcomes
    assert not any("B" in refused for _, refused in outcomes.values()), "the newest holder is never refused"
    if rule is every_access:
        assert [order for order, (_, refused) in outcomes.items() if not refused] == ["AABB"]


def test_accesses_are_atomic(make: Make) -> None:
    """Four holders that run at the same time, as after pauses, lose no update either."""
    resource, tokens, together = make(), itertools.count(1), threading.Barrier(4)

    def tenures() -> int:
        accepted = 0
        for _ in range(25):
            token = next(tokens)
            together.wait(60)
            try:
                resource.write(token, resource.read(token) + 1)
                accepted += 1
            except Outdated:
                pass
        return accepted

    with ThreadPoolExecutor(4) as threads:
        accepted = sum(future.result() for future in [threads.submit(tenures) for _ in range(4)])
    assert 0 < accepted < 100, "some come too late, and some do not"
    assert resource.read(next(tokens)) == accepted


def test_repeated_access(make: Make) -> None:
    """An access whose reply was lost may be repeated. Today's tokens fit, and are compared as numbers."""
    resource = make()
    token = 1_800_000_000_000_000
    for _ in range(2):
        resource.write(token, 5)
        assert resource.read(token) == 5
    with pytest.raises(Outdated):
        resource.read(999)
    resource.write(token + 1, 6)
    with pytest.raises(Outdated):
        resource.write(token, 7)
    assert resource.read(2**53 - 1) == 6
    with pytest.raises(Outdated):
        resource.read(2**53 - 2)


# ---- the real lock --------------------------------------------------------------------------------------------------


def stale_holder(lock_url: str, kind: type[Resource], where: str, rule: Rule, reply: Connection) -> None:
    """Read, be stopped for longer than the lease, and write nevertheless."""
    with redlock.Redlock(lock_url) as client:
        lease = client.lock("count", ttl=0.5).acquire()
        read, write = rule(kind(where), lease.token)
        value = read()
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            write(value + 1)
            reply.send(("accepted", lease.held))
        except Outdated:
            reply.send(("refused", lease.held))


@pytest.mark.parametrize(("rule", "outcome"), [(every_access, "refused"), (writes_only, "accepted")])
def test_stopped_holder(make: Make, server: Server, rule: Rule, outcome: str) -> None:
    """A process that is stopped past its lease is refused. With a check on writes only, its update is lost."""
    resource = make()
    replies, reply = multiprocessing.Pipe(duplex=False)
    arguments = (server.url, type(resource), resource.where, rule, reply)
    process = multiprocessing.get_context("spawn").Process(target=stale_holder, args=arguments)
    process.start()
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the holder ended: {status}"
        with redlock.Redlock(server.url) as client, client.lock("count", wait=60) as lease:
            read, write = rule(resource, lease.token)
            value = read()
            os.kill(process.pid, signal.SIGCONT)
            assert replies.poll(60)
            assert replies.recv() == (outcome, False)
            write(value + 10)
    finally:
        process.kill()
        process.join()
    assert resource.plain_read() == 10, "an accepted update of the stopped holder is lost, a refused one never was"


# ---- claims of the guide about single kinds of resource -------------------------------------------------------------


def test_deposits(server: Server, tmp_path: Path) -> None:
    """The function `deposit` of each recipe works, and refuses an older token."""
    row = Sql(str(tmp_path / "row"))
    with row.connected() as connection:
        fenced_sql.deposit(connection, 7, 30, token=1)
        fenced_sql.deposit(connection, 7, 12, token=2)
        with pytest.raises(fenced_sql.Outdated):
            fenced_sql.deposit(connection, 7, 1, token=1)
    assert row.plain_read() == 42

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        fenced_redis.deposit(client, 7, 30, token=1)
        fenced_redis.deposit(client, 7, 12, token=2)
        with pytest.raises(fenced_redis.Outdated):
            fenced_redis.deposit(client, 7, 1, token=1)
        assert client.hgetall("account:7") == {"fence": "2", "balance": "42"}

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore)) as url:
        url += str(tmp_path)
        fenced_store.deposit(url, 30, token=1)
        fenced_store.deposit(url, 12, token=2)
        with pytest.raises(fenced_store.Outdated):
            fenced_store.deposit(url, 1, token=1)
        assert fenced_store.get(url)[0] == {"fence": "2", "value": 42}

    with serving(fenced_http.Service(str(tmp_path / "service"))) as url:
        fenced_http.deposit(f"{url}/7", 30, token=1)
        fenced_http.deposit(f"{url}/7", 12, token=2)
        with pytest.raises(fenced_sql.Outdated):
            fenced_http.deposit(f"{url}/7", 1, token=1)
        assert fenced_http.access(f"{url}/7", 2) == b"42"

    path = tmp_path / "balance"
    fenced_file.deposit(path, 30, token=1)
    fenced_file.deposit(path, 12, token=2)
    with pytest.raises(fenced_file.Outdated):
        fenced_file.deposit(path, 1, token=1)
    assert path.read_text() == "42"


def test_service_demands_tokens(tmp_path: Path) -> None:
    """The service refuses reads and writes without a valid token, and these register no token."""
    with serving(fenced_http.Service(str(tmp_path / "service"))) as url:
        for headers in ({}, {"Fencing-Token": ""}, {"Fencing-Token": "-1"}, {"Fencing-Token": str(2**63)}):
            for content in (None, b"1"):
                with (
                    pytest.raises(HTTPError) as refused,
                    urlopen(Request(url, content, headers, method=content and "PUT")),
                ):
                    pass
                assert refused.value.code == 428
                refused.value.close()
        assert fenced_http.access(url, 0) == b""


def test_service_remembers(tmp_path: Path) -> None:
    """A restart forgets no token."""
    database = str(tmp_path / "service")
    with serving(fenced_http.Service(database)) as url:
        fenced_http.access(f"{url}/x", 2, b"1")
    with serving(fenced_http.Service(database)) as url, pytest.raises(fenced_http.Outdated):
        fenced_http.access(f"{url}/x", 1)


def test_etag_changes_with_the_token(tmp_path: Path) -> None:
    """The token must be in the object's content, because an etag that is a hash only changes with the content."""
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore)) as url:
        url += str(tmp_path)
        fenced_store.access(url, 1, "same")
        content, old = fenced_store.get(url)
        assert fenced_store.access(url, 2) == "same"
        # The write of a stale holder that read the token before the newer holder's access.
        assert not fenced_store.put(url, content, old)
        # The write of a stale holder that found no object before.
        assert not fenced_store.put(url, content, None)
        # The control: with the token elsewhere, content and etag stay the same, and the stale holder's write passes.
        bare = {"value": "same"}
        assert fenced_store.put(f"{url}/bare", bare, None)
        _, old = fenced_store.get(f"{url}/bare")
        assert fenced_store.put(f"{url}/bare", bare, old), "the newer holder's first access"
        assert fenced_store.put(f"{url}/bare", {"value": "stale"}, old)


def test_file_accesses_exclude_each_other(tmp_path: Path) -> None:
    """While one holder accesses the file, another waits: the check and the access are one step."""
    path = tmp_path / "file"
    with fenced_file.fenced(path, 1), open(f"{path}.fence") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with fenced_file.fenced(path, 1):
        pass


def test_guide_quotes_the_examples() -> None:
    """A code block of the guide that follows the name of a file is an excerpt of that file, in any language."""
    quoted = re.compile(r"\[`[^`]+`\]\(\.\./([^)]+)\):\n\n```[a-z,]+\n(.*?)\n```\n", re.DOTALL)
    blocks = quoted.findall(GUIDE.read_text())
    assert {Path(file).suffix for file, _ in blocks} == {".py", ".mjs", ".kt", ".rs"}
    for file, block in blocks:
        text = (ROOT / file).read_text()
        assert all(excerpt in text for excerpt in re.split(r"\n\n\.\.\.\n\n+", block)), f"{file}:\n{block}"
