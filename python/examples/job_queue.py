"""A queue of jobs, many workers, and three licences: at most three jobs run at once, each with a licence of its own.

    python job_queue.py [redis-url]

The licences are the slots of a semaphore. A worker acquires a permit before it takes a job, so a worker that waits has
no job. The permit's slot is the number of the licence: no other worker has it meanwhile.

A worker that dies frees its licence when its lease ends; the others go on with theirs. A worker that hangs for longer
than its lease may wake up while another one has its licence. So the licence server compares the permit's token with the
largest one that it has seen for this licence, and refuses an older one.

The workers are threads with a client each, as if each ran on a machine of its own.
"""

from __future__ import annotations

import queue
import sys
import threading
import time

import redlock

LICENCES = 3
WORKERS = 6
JOBS = 12


class LicenceServer:
    """The resource. It counts the licences in use, and refuses tokens that are too old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = [0] * LICENCES
        self._in_use: set[int] = set()
        self.most = 0

    def check_out(self, licence: int, token: int) -> None:
        """Start to use a licence."""
        with self._lock:
            if token < self._tokens[licence]:
                raise RuntimeError(f"licence {licence} was given to somebody else meanwhile")
            if licence in self._in_use:
                raise RuntimeError(f"licence {licence} is used twice")
            self._tokens[licence] = token
            self._in_use.add(licence)
            self.most = max(self.most, len(self._in_use))

    def check_in(self, licence: int) -> None:
        """End the use of a licence."""
        with self._lock:
            self._in_use.remove(licence)


def work(url: str, worker: int, jobs: queue.SimpleQueue[int], server: LicenceServer) -> None:
    """Run jobs until the queue is empty."""
    with redlock.Redlock(url) as client:
        licences = client.semaphore("renderer:licences", permits=LICENCES)
        while True:
            with licences as permit:
                try:
                    job = jobs.get_nowait()
                except queue.Empty:
                    return
                licence = permit.slots[0]
                server.check_out(licence, permit.tokens[0])
                time.sleep(0.05)  # the work
                server.check_in(licence)
                # One write a line: `print` writes the line and its end apart, and threads would mix them.
                sys.stdout.write(f"worker {worker} ran job {job} with licence {licence}\n")


def main(url: str) -> None:
    """Let the workers run all jobs."""
    jobs: queue.SimpleQueue[int] = queue.SimpleQueue()
    for job in range(1, JOBS + 1):
        jobs.put(job)
    server = LicenceServer()
    workers = [threading.Thread(target=work, args=(url, number, jobs, server)) for number in range(1, WORKERS + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{JOBS} jobs, {server.most} at once at most")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://127.0.0.1:6379")
