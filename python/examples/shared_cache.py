"""A cache that many processes read. When it is too old, one of them rebuilds it, and the others wait for that.

    python shared_cache.py [redis-url]

The cache is a folder with two files, which belong together: prices, and an index of them. A reader must never see one
of them old and the other one new.

- A reader has the read lock while it reads. Readers do not wait for each other.
- If the cache is too old, the reader releases its lock, acquires the write lock, and compares again: perhaps another
  process has rebuilt the cache meanwhile. It must release first. Two readers that both kept their read locks would wait
  for each other, so an acquire of the write lock inside the read lock fails with `WouldDeadlock`.
- The process that rebuilt the cache downgrades its lease: it goes on as a reader, and the others come in.

The readers are threads with a client each, as if each ran on a machine of its own.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import redlock

READERS = 8
VERSIONS = 3


class Cache:
    """Two files that belong together."""

    def __init__(self, folder: str) -> None:
        self._prices, self._index = Path(folder, "prices.json"), Path(folder, "index.json")
        self.rebuilt: list[int] = []

    def version(self) -> int:
        """Read both files; fail if they do not belong together."""
        if not self._index.exists():
            return 0
        prices, index = (json.loads(file.read_text()) for file in (self._prices, self._index))
        if prices["version"] != index["version"]:
            raise RuntimeError(f"prices {prices['version']}, but index {index['version']}")
        return int(prices["version"])

    def rebuild(self, version: int) -> None:
        """Write one file after the other, which takes a while."""
        for file in (self._prices, self._index):
            file.write_text(json.dumps({"version": version}))
            time.sleep(0.05)
        self.rebuilt.append(version)


def read(lock: redlock.ReadWriteLock, cache: Cache, at_least: int) -> int:
    """Return the cache's version, after it was rebuilt if it is older than `at_least`."""
    with lock.read():
        if (version := cache.version()) >= at_least:
            return version
    with lock.write() as lease:
        if cache.version() < at_least:  # nobody has rebuilt it since
            lease.check()
            cache.rebuild(at_least)
        lease.downgrade()  # other readers come in
        return cache.version()


def serve(url: str, cache: Cache, reads: list[int]) -> None:
    """Read each version of the cache."""
    with redlock.Redlock(url) as client:
        lock = client.read_write_lock("prices:cache")
        for version in range(1, VERSIONS + 1):
            reads.append(read(lock, cache, at_least=version))


def main(url: str) -> None:
    """Let all readers want each version at about the same time."""
    with tempfile.TemporaryDirectory() as folder:
        cache, reads = Cache(folder), list[int]()
        readers = [threading.Thread(target=serve, args=(url, cache, reads)) for _ in range(READERS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        print(f"rebuilt: {', '.join(map(str, cache.rebuilt))}")
        print(f"{len(reads)} reads by {READERS} readers, all of them whole")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379")
