"""What the tests of the recipes share: the service that the recipes call, programs, and HTTP requests."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from servers import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from email.message import Message
    from pathlib import Path

# Far more than a busy machine needs: whatever takes longer hangs.
PATIENCE = 60.0


class Held:
    """A request that has arrived at the service. It has no effect and gets no reply until `answer()`."""

    def __init__(self, path: str, headers: Message) -> None:
        self.path = path
        self.headers = headers
        self.answered = threading.Event()

    def answer(self) -> None:
        self.answered.set()


class Service(ThreadingHTTPServer):
    """The service behind the recipes. It tells which orders are paid, and holds each POST until the test answers it.

    `GET /orders/1` is `{"paid": false}` until a `POST /orders/1/charge` was answered. `PUT` creates a document once.
    """

    daemon_threads = True
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.paid: list[str] = []
        self.documents: dict[str, bytes] = {}
        self.creating = threading.Lock()
        self._arrived: queue.Queue[Held] = queue.Queue()

    def next(self) -> Held:
        """Wait for the next POST."""
        return self._arrived.get(timeout=PATIENCE)

    @property
    def idle(self) -> bool:
        """Whether no POST has arrived that `next()` has not returned."""
        return self._arrived.empty()

    def handle_error(self, *_: object) -> None:
        """Do nothing: programs of the tests are killed while they wait for an answer."""

    def __enter__(self) -> Service:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        if self.path.startswith("/orders/"):
            self._reply(200, {"paid": self.path in self.server.paid})
        else:
            self._reply(200 if self.path in self.server.documents else 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.creating:
            is_new = self.path not in self.server.documents
            self.server.documents.setdefault(self.path, body)
        self._reply(201 if is_new else 412)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        held = Held(self.path, self.headers)
        self.server._arrived.put(held)
        held.answered.wait()
        if self.path.endswith("/charge"):
            self.server.paid.append(self.path.removesuffix("/charge"))
        self._reply(200)

    def _reply(self, status: int, content: object = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Program:
    """A process, with all processes that it starts. Its output goes to a file."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    def says(self, text: str, times: int = 1) -> None:
        """Wait until the output has a text."""
        eventually(lambda: self.output.count(text) >= times or self._ended(text), PATIENCE)

    def _ended(self, text: str) -> bool:
        assert self.process.poll() is None, f"ended without {text!r}:\n{self.output}"
        return False

    def terminate(self) -> None:
        """Send SIGTERM to the first process alone, as a container runtime does."""
        self.process.send_signal(signal.SIGTERM)

    def ends(self) -> int:
        """Wait for the end of the first process, and return its exit code; -15 if SIGTERM ended it."""
        return self.process.wait(PATIENCE)

    def children(self) -> list[int]:
        """The processes that the first process started."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            return [int(child) for child in file.read().split()]

    def kill(self) -> None:
        """Kill it with all processes of its session, as a failing machine would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


def listens(port: int) -> bool:
    """Whether a server accepts connections on a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def post(url: str) -> Future[int]:
    """Send a POST request. The result is the status of its reply."""
    return _send("POST", url)


def get(url: str) -> Future[int]:
    return _send("GET", url)


def _send(method: str, url: str) -> Future[int]:
    result: Future[int] = Future()

    def send() -> None:
        try:
            with urlopen(Request(url, b"" if method == "POST" else None, method=method), timeout=PATIENCE) as reply:
                result.set_result(reply.status)
        except HTTPError as error:
            result.set_result(error.code)
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=send, daemon=True).start()
    return result


def is_held(server: object, lock: str) -> bool:
    """Whether the key of a lock exists."""
    return server.command("EXISTS", lock) == 1
