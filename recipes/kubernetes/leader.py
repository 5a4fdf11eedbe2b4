"""The recipe for a Deployment with one active pod: all replicas run this program, and the holder of the lock works."""

# --8<-- [start:leader]
import logging
import os
import signal
import threading
from urllib.request import Request, urlopen

import redlock

stopping = threading.Event()


def work(token: int) -> None:
    """Do one step, which takes less than the grace period of the pod."""
    request = Request(f"{os.environ['SHOP_URL']}/invoices", b"", {"Fencing-Token": str(token)})
    urlopen(request, timeout=30).close()


def lead(lock: redlock.Lock) -> None:
    with lock as lease:  # raises LockTimeout after the lock's wait
        logging.info("leading under token %d", lease.token)
        while not stopping.is_set():
            lease.check()  # raises LockLost after a loss: another pod may lead
            work(lease.token)
            stopping.wait(1)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # As process 1 of a container, a program without a handler ignores SIGTERM, and is killed at the end of the grace.
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    # Of the client that connects to REDLOCK_URL. A standby hears of SIGTERM within a second.
    lock = redlock.lock("invoices", wait=1)
    while not stopping.is_set():
        try:
            lead(lock)
        except redlock.LockTimeout:
            pass  # another pod leads
        except (redlock.LockLost, redlock.Unavailable) as error:
            logging.warning("%s", error)
            stopping.wait(1)


if __name__ == "__main__":
    main()
