"""Fencing in an object store: conditional writes, and the token in the object. Copy it; see docs/fencing.md.

It uses plain HTTP with `ETag`, `If-Match` and `If-None-Match`, as the SDKs of S3 and similar stores do.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class Outdated(Exception):
    """A later holder of the lock has accessed the resource: stop."""


def access(url: str, token: int, write: Any = None) -> Any:
    """Write a value, unless it is None, and return what is in the object then: any JSON, None if there is no object."""
    while True:
        content, etag = get(url)
        fence = int(content["fence"])
        if fence > token:
            raise Outdated(f"{url}: token {token}")
        value = content["value"] if write is None else write
        # The first access of a tenure writes even if it only reads: that is what stops the holders before.
        if (write is None and fence == token) or put(url, {"fence": str(token), "value": value}, etag):
            return value
        # Somebody was faster. Look who it was.


def get(url: str) -> tuple[dict[str, Any], str | None]:
    """Return the object's content and etag."""
    try:
        with urlopen(url) as response:
            return json.load(response), response.headers["ETag"]
    except HTTPError as error:
        if error.code == 404:
            return {"fence": "0", "value": None}, None
        raise


def put(url: str, content: dict[str, Any], etag: str | None) -> bool:
    """Replace the object if its etag is still this one, or create it if `etag` is None. Return False if that failed."""
    condition = {"If-Match": etag} if etag else {"If-None-Match": "*"}
    try:
        with urlopen(Request(url, json.dumps(content).encode(), condition, method="PUT")):
            return True
    except HTTPError as error:
        if error.code in (404, 409, 412):  # deleted; another write at the same time; another write before
            return False
        raise


def deposit(url: str, amount: int, token: int) -> None:
    """Read, compute and write; the caller holds the lock."""
    balance = access(url, token) or 0
    access(url, token, balance + amount)
