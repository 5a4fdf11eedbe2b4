"""Uses an installed redlock as a user's program does: use.py [URL [TLS_URL CA]]

Prints one line about what it did, or fails. Needs only the package, and a redis-server if a URL is given.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redlock
import redlock.asyncio

ROUNDS = 30
WATCHDOG = 1.0


def main(url="memory://", tls_url=None, ca=None):
    did = [memory(url)]
    asyncio.run(asynchronous(url))
    did.append("asyncio")
    if url != "memory://":
        did += [nested(url), kept_alive(url), contention(url)]
        if hasattr(os, "fork"):
            did.append(fork(url))
    if tls_url:
        did.append(tls(tls_url, ca))
    print(f"redlock-core {redlock.__version__}, Python {sys.version.split()[0]}: {', '.join(did)}")


def memory(url):
    with redlock.Redlock("memory://").lock("packaging") as lease:
        assert lease.held, lease
        assert lease.token > 0, lease
    return "memory://"


def nested(url):
    lock = redlock.Redlock(url).lock("packaging")
    with lock as outer, lock as inner:
        assert outer.held, outer
        assert inner.token == outer.token, (inner, outer)
        assert redlock.Redlock(url).lock("packaging").acquire(blocking=False) is None
    return "nested"


def kept_alive(url):
    with redlock.Redlock(url, watchdog=WATCHDOG).lock("packaging") as lease:
        # Longer than the ttl, so that only a renewed lease is still held.
        time.sleep(3 * WATCHDOG)
        lease.check()
        assert redlock.Redlock(url).lock("packaging").acquire(blocking=False) is None
    return "kept alive"


def contention(url):
    with tempfile.TemporaryDirectory() as folder:
        counter = Path(folder, "counter")
        counter.write_text("0")
        command = [sys.executable, __file__, "count", url, str(counter)]
        processes = [subprocess.Popen(command) for _ in range(2)]
        assert [process.wait(120) for process in processes] == [0, 0]
        assert int(counter.read_text()) == 2 * ROUNDS, counter.read_text()
    return "contention of processes"


def count(url, counter):
    """Increment a counter in a file ROUNDS times. Without the lock, increments would be lost."""
    lock = redlock.Redlock(url).lock("packaging:counter")
    for _ in range(ROUNDS):
        with lock:
            Path(counter).write_text(str(int(Path(counter).read_text()) + 1))


def fork(url):
    client = redlock.Redlock(url)
    with client.lock("packaging") as lease:
        child = os.fork()
        if child == 0:
            # A child does not hold its parent's locks, and can acquire its own.
            held = client.lock("packaging").acquire(blocking=False)
            with client.lock("packaging:child"):
                os._exit(0 if held is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        lease.check()
    return "fork"


def tls(url, ca):
    with redlock.Redlock(url, ca=ca).lock("packaging") as lease:
        lease.check()
    try:
        redlock.Redlock(url).lock("packaging", wait=0).acquire()
    except redlock.Unavailable:
        return "TLS"
    raise AssertionError("a server with a certificate of nobody's was trusted")


async def asynchronous(url):
    async with redlock.asyncio.Redlock(url).lock("packaging") as lease:
        lease.check()


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        count(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
