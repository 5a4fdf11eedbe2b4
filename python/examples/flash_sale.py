"""A flash sale: one item, many customers. Whoever puts it into the cart has it reserved until the payment is decided.

    python flash_sale.py [redis-url]

The reservation is a lock with an explicit owner, the customer, and a fixed ttl, the time to pay:

- The web server takes it, and its process may end: fixed leases of explicit owners outlive their process.
- The payment service is another process. It needs no handle, only the customer: `lock(item, owner=customer).release()`.
- Nobody else can reserve the item meanwhile. If the payment fails it is back on sale at once; if nothing ever comes
  from the payment service, when the ttl ends.

The reservation is only a lock: it says who may buy now, not who bought. What is sold is a record of its own, written
once (`SET NX`) with the token of the reservation in it, and before the reservation ends. So a payment that was decided
too late, when the item was already sold to somebody else, is found out and has to be refunded.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
from urllib.parse import unquote, urlsplit

import redlock

TIME_TO_PAY = 2.0


def reservation(client: redlock.Redlock, item: str, customer: str) -> redlock.Lock:
    """The lock that both services mean."""
    return client.lock(f"item:{item}", owner=customer, ttl=TIME_TO_PAY, wait=0)


def web(url: str, item: str, customer: str, answers: multiprocessing.SimpleQueue[int]) -> None:
    """The web server's part: reserve the item, answer, and end, as a process does in a deploy."""
    with redlock.Redlock(url) as client:
        lease = reservation(client, item, customer).acquire()
    # The client is closed, the reservation is not.
    answers.put(lease.token if lease else 0)


def payments(url: str, item: str, customer: str, token: int, accepted: bool) -> None:
    """The payment service's part: the bank has decided, so the sale is noted, and the reservation ended."""
    with redlock.Redlock(url) as client:
        lock = reservation(client, item, customer)
        if accepted:
            info = lock.inspect()
            reserved = info is not None and info.owner == customer and info.token == token
            # Even if the reservation ends right now: only one sale can be written.
            if reserved and sell(url, item, customer, token):
                say("payments", f"{customer} has paid: {item} is sold")
            else:
                say("payments", f"{customer} has paid too late: refunded")
        else:
            say("payments", f"{customer}'s card was declined: {item} is back on sale")
        try:
            lock.release()
        except redlock.NotHeld:
            say("payments", f"{customer}'s reservation had ended already")


def say(who: str, what: str) -> None:
    """Print at once, since several processes do."""
    print(f"{who:>9}: {what}", flush=True)


def reserve(url: str, item: str, customer: str) -> int:
    """Ask the web server, which is a process of its own; return the token of the reservation, 0 if there is none."""
    answers: multiprocessing.SimpleQueue[int] = multiprocessing.SimpleQueue()
    server = multiprocessing.Process(target=web, args=(url, item, customer, answers))
    server.start()
    token = answers.get()
    server.join()
    if token:
        say("web", f"{item} is reserved for {customer}, who has {TIME_TO_PAY:.0f} s to pay")
    elif (sold := buyer(url, item)) is not None:
        say("web", f"sorry {customer}, {item} is sold to {sold}")
    else:
        say("web", f"sorry {customer}, {item} is reserved: try again soon")
    return token


def pay(url: str, item: str, customer: str, token: int, *, accepted: bool) -> None:
    """Let the payment service decide, in a process of its own."""
    service = multiprocessing.Process(target=payments, args=(url, item, customer, token, accepted))
    service.start()
    service.join()


def main(url: str) -> None:
    """One item, four customers."""
    item = f"console-{os.getpid()}"
