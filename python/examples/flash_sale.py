"""A flash sale of one console to many customers. A customer who reserves it has some seconds to pay for it.

    python flash_sale.py [redis-url]

The environment variable TIME_TO_PAY sets these seconds; the default is 4. Nobody else can buy the console meanwhile.

The reservation is a lock. Its explicit owner is the customer, and its fixed ttl is the time to pay:

- The web server acquires it. Its process may end: a fixed lease of an explicit owner outlives the process.
- The payment service is another process. It needs no handle, only the customer: `lock(…, owner=customer).release()`.
- If the payment fails, the item is back on sale at once. If the bank never answers, it is back when the ttl is over.

The lock decides who may buy now. A row in the shop's database records the buyer, and the largest token of a reservation
that it has seen. If the bank answers after the ttl, its token belongs to an older reservation. The row refuses that
sale, even if nobody has bought the item since, and the customer gets the money back.
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
    """Return the lock that all services share."""
    return redlock.lock(f"flash-sale:{ITEM}", owner=customer, ttl=TIME_TO_PAY, wait=wait)


# ---- the shop's database: any database with conditional updates works -----------------------------------------------


def execute(database: Path, statement: str, **values: object) -> int:
    """Run one statement in a transaction of its own; return the number of rows that it changed."""
    with closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        return connection.execute(statement, values).rowcount


def buyer(database: Path) -> str | None:
    """Return the customer who bought the item, or None."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        found: str | None = connection.execute("SELECT buyer FROM item").fetchone()[0]
        return found


# ---- the web server: reserves ---------------------------------------------------------------------------------------


def reserve(
    url: str | None, database: Path, customer: str, wait: float, reply: multiprocessing.SimpleQueue[int]
) -> None:
    """Reserve the item, put the reservation's token or 0 into `reply`, and end, as a process does in a deploy."""
    redlock.configure(url)
    lease = reservation(customer, wait).acquire()
    if lease is None:
        say("web", f"sorry {customer}, somebody else is paying right now")
    # The first access of each tenure registers its token. From now on, no older reservation can buy.
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
    """Sell the item or put it back on sale. The token went to the bank and back as the payment's reference."""
    redlock.configure(url)
    if accepted:
        sale = "UPDATE item SET buyer = :customer WHERE fence = :fence AND buyer IS NULL"
        if not execute(database, sale, customer=customer, fence=token):
            # The reservation expired. This customer may have a newer one, which must not be released here.
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
    """Print at once, since several processes print."""
    print(f"{who:>8}: {what}", flush=True)


def main(url: str | None) -> None:
    """Let four customers compete for one console. Each step is a process of its own, as if on another machine."""

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
        carl = web("carl", wait=3 * TIME_TO_PAY)  # waits until bob's reservation has expired
        say("bank", "bob's card was accepted after all")
        payments("bob", bob, accepted=True)
        payments("carl", carl, accepted=True)
        web("dora")
        print(f"sold to {buyer(database)}, once")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
