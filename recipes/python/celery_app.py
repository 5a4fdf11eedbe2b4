"""The recipe for Celery: tasks that run once at a time. `celery -A celery_app worker` runs them."""

# --8<-- [start:tasks]
import json
import os
from urllib.request import Request, urlopen

import redlock
from celery import Celery

app = Celery("shop", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_acks_late=True,  # a task whose worker died is delivered again,
    task_reject_on_worker_lost=True,  # also if only the process of the pool died
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 3600},  # Redis: a task that takes longer is delivered again
)
# Made before the worker forks its pool: each process of the pool connects afresh.
locks = redlock.Redlock(os.environ["REDLOCK_URL"].split(","))
SHOP = os.environ["SHOP_URL"]
AGAIN = (redlock.LockTimeout, redlock.LockLost, redlock.Unavailable)


# For work that must be done: a task that finds the lock held comes back later. It keeps no process of the pool waiting.
@app.task(autoretry_for=AGAIN, retry_backoff=1, retry_backoff_max=60, max_retries=None, soft_time_limit=600)
def pay(order_id):
    with locks.lock(f"order:{order_id}", wait=0) as lease:
        with urlopen(f"{SHOP}/orders/{order_id}", timeout=30) as reply:  # read after the acquire
            if json.load(reply)["paid"]:
                return "paid before"  # a task that is delivered again finds the work done
        lease.check()
        headers = {"Idempotency-Key": f"order-{order_id}", "Fencing-Token": str(lease.token)}
        urlopen(Request(f"{SHOP}/orders/{order_id}/charge", b"", headers), timeout=60).close()
        return "paid"


# For work that the next run does as well: a task that finds the lock held ends.
@app.task(soft_time_limit=600)
def refresh_prices():
    try:
        with locks.lock("refresh-prices", wait=0):
            urlopen(Request(f"{SHOP}/prices", b""), timeout=60).close()
            return "refreshed"
    except redlock.LockTimeout:
        return "another run is under way"
