"""The recipe for a CronJob: a report that is made once for each time of the schedule."""

# --8<-- [start:job]
import os
import signal
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import redlock

# The name of the Job has the time of the schedule, and all pods of the Job have the same name of the Job.
REPORT = f"{os.environ['SHOP_URL']}/reports/{os.environ['JOB_NAME']}"


def exists() -> bool:
    try:
        urlopen(Request(REPORT, method="HEAD"), timeout=30).close()
    except HTTPError as error:
        if error.code != 404:
            raise
        return False
    return True


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves the blocks, and so releases
    # Longer than the job and a lease, 30 s: if the pod that works is killed, one that waits gets the lock.
    with redlock.lock("report", wait=900) as lease:  # of the client that connects to REDLOCK_URL
        if exists():
            print("done before")
            return
        with urlopen(Request(f"{os.environ['SHOP_URL']}/sales", b""), timeout=600) as reply:  # takes minutes
            text = reply.read()
        lease.check()  # raises LockLost after a loss
        urlopen(Request(REPORT, text, {"If-None-Match": "*"}, method="PUT"), timeout=30).close()  # refuses a second one
        print("done")


if __name__ == "__main__":
    main()
