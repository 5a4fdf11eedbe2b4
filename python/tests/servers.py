"""Real redis-servers for tests: they start on free ports, and tests kill, freeze and thaw them.

This module does not import redlock, because other test suites use it too.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def free_port() -> int:
    """Return a free port of 127.0.0.1, which no other test takes before this process ends.

    A server that is stopped must come back on its port. So the owner of a TCP port holds the UDP port with the same
    number, which nobody uses; the tests of all languages do that. The kernel does not take these ports for outgoing
    connections, for which it uses a higher range.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as claim, socket.socket() as probe:
            claim.bind(("127.0.0.1", port))
            # Other programs listen without a claim.
            probe.bind(("127.0.0.1", port))
            # Stays open until the process ends.
            claim.detach()
            return port


def eventually(condition: Callable[[], object], within: float = 10.0, every: float = 0.005) -> None:
    """Check a condition every `every` seconds until it is true; fail after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s: {getattr(condition, '__name__', condition)}"
        time.sleep(every)


class Server:
    """A redis-server without persistence. It keeps its port when it is started again.

    Use it in a `with` statement, or call `start()` and `stop()`. It runs in `directory`, by default a temporary one,
    removed with this object. `arguments` are further arguments of redis-server, such as `"--requirepass", "secret"`.
    """

    def __init__(self, directory: Path | None = None, *arguments: str) -> None:
        self._own_directory = None if directory else tempfile.TemporaryDirectory(prefix="redlock-")
        self.directory = directory or Path(self._own_directory.name)  # type: ignore[union-attr]
        self.port = free_port()
        # The servers of a cluster talk to each other on a second port.
        bus = ("--cluster-port", str(free_port())) if "--cluster-enabled" in arguments else ()
        self.arguments = (*arguments, *bus)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_frozen = False

    @property
    def up(self) -> bool:
        """Whether it runs and is not frozen."""
        return self._process is not None and not self._is_frozen

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        """Its URL, without credentials."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> Server:
        """Start it and wait until it answers."""
        assert self._process is None, "already started"
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self.arguments]
        self._process = subprocess.Popen(command, cwd=self.directory, stdout=subprocess.DEVNULL)
        eventually(self._answers)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "redis-server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in (b"+", b"-")
        return False

    def stop(self) -> None:
        """Shut it down; connections break, keys are gone. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        self._is_frozen = False
        if process is not None:
            # A stopped process does not handle SIGTERM.
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(10)

    def freeze(self) -> None:
        """Stop its process: it answers nothing, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        """End `freeze()`: it runs the requests that it received meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._is_frozen = False

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it while the block runs."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def cli(self, *arguments: str) -> str:
        """Run redis-cli without credentials and return its output, with a line for each element of a list."""
        command = ["redis-cli", "-p", str(self.port), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    def command(self, *words: str | int) -> Any:
        """Run one command over a socket, without a process; replies are int, str, None or lists of these."""
        encoded = [str(word).encode() for word in words]
        request = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as reader:
                return _reply(reader)

    def keys(self, pattern: str = "*") -> list[str]:
        """Return the keys that match, sorted."""
        return sorted(self.cli("KEYS", pattern).split())

    def listeners(self, lock: str) -> int:
        """Return the number of connections that listen for the release of a lock."""
        return int(self.cli("PUBSUB", "NUMSUB", f"redisson_lock__channel:{{{lock}}}").split()[-1])

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call a function in another thread, and return its result or raise its error."""
    result: list[tuple[Any, BaseException | None]] = []

    def call() -> None:
        try:
            result.append((function(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    value, error = result[0]
    if error is not None:
        raise error
    return value


def _reply(reader: Any) -> Any:
    line = reader.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else reader.read(int(rest) + 2)[:-2].decode()
    if kind == b"*":
        return [_reply(reader) for _ in range(int(rest))]
    raise RuntimeError(f"redis-server answered {line!r}")
