"""A flash sale: one console, many customers. Whoever reserves it has a while to pay, and nobody else can buy meanwhile.

    python flash_sale.py [redis-url]

The environment variable TIME_TO_PAY says how many seconds a customer has, if not 4.

The reservation is a lock with an explicit owner, the customer, and a fixed ttl, the time to pay:

- The web server takes it, and its process may end: fixed leases of explicit owners outlive their process.
- The payment service is another process. It needs no handle, only the customer: `lock(…, owner=customer).release()`.
- If the payment fails, the item is back on sale at once; if nothing ever comes from the bank, when the ttl ends.

The lock says who may buy now. Who bought is a row in the shop's database, and the row remembers the largest token of a
reservation that it has seen. A bank that answers after the ttl has the token of an older reservation: that sale is
refused, also if nobody has bought the item since, and the money goes back.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import redlock

ITEM = "console"
TIME_TO_PAY = float(os.environ.get("TIME_TO_PAY", "4"))


def reservation(customer: str, wait: float = 0) -> redlock.Lock:
    """Return the lock that all services mean."""
    return redlock.lock(f"flash-sale:{ITEM}", owner=customer, ttl=TIME_TO_PAY, wait=wait)


# ---- the shop's database: any database that updates a row if a condition holds will do ----------------------------


def execute(database: Path, statement: str, **values: object) -> int:
    """Run one statement in a transaction of its own; return how many rows it changed."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        return connection.execute(statement, values).rowcount


def buyer(database: Path) -> str | None:
    """Who bought the item."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        found: str | None = connection.execute("SELECT buyer FROM item").fetchone()[0]
        return found


# ---- the web server: reserves ---------------------------------------------------------------------------------------


def reserve(
    url: str | None, database: Path, customer: str, wait: float, reply: multiprocessing.SimpleQueue[int]
) -> None:
    """Reserve the item, answer with the reservation's token or 0, and end, as a process does in a deploy."""
    redlock.configure(url)
    lease = reservation(customer, wait).acquire()
    if lease is None:
        say("web", f"sorry {customer}, somebody else is paying right now")
    # The first access of each tenure registers its token: from now on no older reservation can buy.
    elif execute(database, "UPDATE item SET fence = :fence WHERE fence <= :fence AND buyer IS NULL", fence=lease.token):
        say("web", f"{customer} has {TIME_TO_PAY:.0f} s to pay")
        reply.put(lease.token)
        return
    else:
        say("web", f"sorry {customer}, it is sold to {buyer(database)}")
        lease.release()
    reply.put(0)


# ---- the payment service: sells, or gives back ----------------------------------------------------------------------


def settle(url: str | None, database: Path, customer: str, token: int, accepted: bool) -> None:
    """Do what the bank's answer asks for. The token went to the bank and back, as a reference of the payment."""
    redlock.configure(url)
    if accepted:
        sale = "UPDATE item SET buyer = :customer WHERE fence = :fence AND buyer IS NULL"
        if not execute(database, sale, customer=customer, fence=token):
            # The reservation ended by itself. What this customer may have reserved since is another one: not ours.
            say("payments", f"{customer} paid too late, and gets the money back")
            return
        say("payments", f"{customer} paid: sold")
    else:
        say("payments", f"{customer}'s card was declined: back on sale")
    try:
        reservation(customer).release()
    except redlock.NotHeld:
        say("payments", f"{customer}'s reservation had ended meanwhile")


# ---- what happens on this day ---------------------------------------------------------------------------------------


def say(who: str, what: str) -> None:
    """Print at once, since several processes do."""
    print(f"{who:>8}: {what}", flush=True)


def main(url: str | None) -> None:
    """Let five customers want the same console. Each step is a process of its own, as if on another machine."""

    def web(customer: str, wait: float = 0) -> int:
        reply: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=reserve, args=(url, database, customer, wait, reply))
        process.start()
        process.join()
        return reply.get()

    def payments(customer: str, token: int, *, accepted: bool) -> None:
        process = multiprocessing.Process(target=settle, args=(url, database, customer, token, accepted))
        process.start()
        process.join()

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder, "shop.db")
        execute(database, "CREATE TABLE item (buyer TEXT, fence INTEGER NOT NULL)")
        execute(database, "INSERT INTO item VALUES (NULL, 0)")

        ann = web("ann")
        web("bob")
        payments("ann", ann, accepted=False)
        bob = web("bob")
        say("bank", "no answer about bob's card")
        carl = web("carl", wait=3 * TIME_TO_PAY)  # waits until bob's time is over
        say("bank", "bob's card was accepted after all")
        payments("bob", bob, accepted=True)
        payments("carl", carl, accepted=True)
        web("dora")
        print(f"sold to {buyer(database)}, once")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
