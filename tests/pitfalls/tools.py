"""Tools of the pitfall tests: waiting for a state, a network that loses replies, and processes that can be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnProcess

    import redis

R = TypeVar("R")

# In seconds. Long enough for a busy machine; only a failing test waits this long.
PATIENCE = 20.0


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[Server]:
    """Start an empty redis-server with further command-line arguments, and kill it at the end."""
    with tempfile.TemporaryDirectory(prefix="redlock-") as directory:
        server = Server(Path(directory), *arguments)
        server.start()
        try:
            yield server
        finally:
            # A regular shutdown would wait for replicas.
            server.kill()


def eventually(condition: Callable[[], R], within: float = PATIENCE) -> R:
    """Poll until the condition is true, and return what it returned."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {condition}"
        time.sleep(0.005)
    return result


def bounded(action: Callable[[], R], within: float = PATIENCE) -> R:
    """Run an action in a thread, and fail if it takes longer than `within` seconds."""
    results: list[R] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within)
    assert not thread.is_alive(), f"hangs for more than {within} s"
    if errors:
        raise errors[0]
    return results[0]


def lock_keys(peer: redis.Redis) -> dict[str, int]:
    """The keys of locks, with their PTTL: all keys except redlock's own records, which start with `redlock_`."""
    keys = [key.decode() for key in peer.scan_iter(count=1000)]
    found = {key: int(peer.pttl(key)) for key in keys if not key.startswith("redlock_")}
    # -2: the key expired between SCAN and PTTL.
    return {key: pttl for key, pttl in found.items() if pttl != -2}


@contextlib.contextmanager
def process(target: Callable[..., None], *args: Any) -> Iterator[SpawnProcess]:
    """Run `target` in a new Python process, and kill it at the end if it still runs."""
    child = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


class Proxy:
    """A network between clients and a server, with faults that a test switches on. Clients connect to `url`.

    It can lose a reply (`lose_reply`), hold replies back (`hold_replies`), drop everything (`swallow`), break all
    connections (`cut`), and lead to another server (`mend`), as an address that follows a failover does.
    """

    def __init__(self, port: int) -> None:
        self.target = port
        self.requests: list[bytes] = []
        """Everything that clients sent, in pieces as it came."""
        self.lost = threading.Event()
        """Set when the reply that `lose_reply` chose was lost."""
        self._needle: bytes | None = None
        self._flow = threading.Event()
        self._flow.set()
        self._swallow = False
        self._refuse = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_reply(self, needle: bytes) -> None:
        """Pass the next request that contains `needle` to the server, then close the connection without a reply."""
        self.lost.clear()
        self._needle = needle

    def hold_replies(self) -> None:
        """Hold replies back. Requests still reach the server."""
        self._flow.clear()

    def let_replies_go(self) -> None:
        """End `hold_replies`."""
        self._flow.set()

    def swallow(self) -> None:
        """Drop all data in both directions without closing a connection: a black hole."""
        self._swallow = True

    def refuse(self) -> None:
        """Refuse new connections. Existing ones stay open."""
        self._refuse = True

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self.refuse()
        self._break()

    def mend(self, port: int | None = None) -> None:
        """End `refuse`, `cut` and `swallow`, break all connections, and lead to `port` (default: as before)."""
        self.target = port or self.target
        self._break()
        self._swallow = self._refuse = False

    def close(self) -> None:
        """Close the listener and all connections."""
        self._flow.set()
        with contextlib.suppress(OSError):
            # Wakes the thread in `accept`; closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._break()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _break(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._end(pair)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuse:
                client.close()
                continue
            try:
                upstream = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for end in (client, upstream):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, upstream)
            with self._lock:
                self._pairs.add(pair)
            doomed = threading.Event()
            threading.Thread(target=self._carry_requests, args=(pair, doomed), daemon=True).start()
            threading.Thread(target=self._carry_replies, args=(pair, doomed), daemon=True).start()

    def _carry_requests(self, pair: tuple[socket.socket, socket.socket], doomed: threading.Event) -> None:
        client, upstream = pair
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self.requests.append(data)
                if self._needle is not None and self._needle in data:
                    self._needle = None
                    doomed.set()
                if not self._swallow:
                    upstream.sendall(data)
        self._end(pair)

    def _carry_replies(self, pair: tuple[socket.socket, socket.socket], doomed: threading.Event) -> None:
        client, upstream = pair
        with contextlib.suppress(OSError):
            while data := upstream.recv(65536):
                # The reply proves that the server has run the request. It is dropped here.
                if doomed.is_set():
                    self.lost.set()
                    break
                self._flow.wait()
                if not self._swallow:
                    client.sendall(data)
        self._end(pair)
