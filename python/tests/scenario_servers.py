"""The redis-servers of the scenarios: each a process of its own, which can be killed, restarted, frozen and asked.

They listen on free ports of 127.0.0.1 below those that outgoing connections get, so that a stopped server finds its
port again. Nothing is persisted, so that a restart loses every key. Needs no Redis client, and no redis-cli.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any

_ports = itertools.count(os.getpid() * 97)


class Server:
    """A redis-server process; `close()` it, or use it in a `with` statement."""

    def __init__(self, *options: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="redlock-py-")
        self.options = options or ("--save", "", "--appendonly", "no")
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen = False
        for _ in range(20):
            self.port = _free_port()
            if self._run():
                return
        raise RuntimeError("no redis-server could be started; is it installed?")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def up(self) -> bool:
        """Whether it can answer."""
        return self.process is not None and not self.frozen

    def stop(self) -> None:
        """Kill it, as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process, self.frozen = None, False

    def restart(self) -> None:
        """Start it again on the same port, empty; returns once it answers."""
        if self.process is None and not self._run():
            raise RuntimeError(f"redis-server did not come back on port {self.port}")

    def freeze(self) -> None:
        """Suspend it: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.frozen = False

    def command(self, *words: str | int) -> Any:
        """Run one command; replies are int, str, None or lists of these."""
        encoded = [str(word).encode() for word in words]
        request = b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in encoded)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as reader:
                return _reply(reader)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> bool:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.directory]
        self.process = subprocess.Popen([*command, *self.options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < end:
            try:
                # The pid tells this server from another one that was faster on the same port.
                if f"process_id:{self.process.pid}\r" in self.command("INFO", "server"):
                    return True
            except (OSError, RuntimeError):
                pass
            time.sleep(0.005)
        self.stop()
        return False

    def _signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)


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


def _free_port() -> int:
    """A port below those that the kernel gives to outgoing connections: nobody takes it while its server is down."""
    while True:
        port = 12_000 + next(_ports) % 18_000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
