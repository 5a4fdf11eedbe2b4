"""Tests of argument checks: a bad argument raises at once, before anything is sent, and the error names it."""

from __future__ import annotations

import asyncio
import math
import re
from datetime import timedelta

import pytest

import redlock
import redlock.asyncio

# Nothing listens there: a request that is sent would fail with another error.
NOWHERE = "redis://127.0.0.1:1"

MODULES = pytest.mark.parametrize("module", [redlock, redlock.asyncio], ids=["threads", "asyncio"])


@MODULES
@pytest.mark.parametrize(
    ("name", "options", "argument"),
    [
        ("", {}, "name"),
        ("\ud800", {}, "name"),
        (1, {}, "name"),
        (None, {}, "name"),
        ("x", {"ttl": 0.049}, "ttl"),
        ("x", {"ttl": math.inf}, "ttl"),
        ("x", {"ttl": 10**400}, "ttl"),
        ("x", {"ttl": timedelta(milliseconds=49)}, "ttl"),
        ("x", {"ttl": timedelta(days=-1)}, "ttl"),
        ("x", {"ttl": "fast"}, "ttl"),
        ("x", {"ttl": "10"}, "ttl"),
        ("x", {"ttl": True}, "ttl"),
        ("x", {"ttl": []}, "ttl"),
        ("x", {"wait": -0.1}, "wait"),
        ("x", {"wait": "1"}, "wait"),
        ("x", {"wait": 11 * 365 * 86400}, "wait"),
        ("x", {"owner": ""}, "owner"),
        ("x", {"owner": 42}, "owner"),
        ("x", {"max_hold": 0}, "max_hold"),
        ("x", {"max_hold": -1}, "max_hold"),
        ("x", {"max_hold": 10, "ttl": 5}, "max_hold"),
        ("x", {"min_hold": 0}, "min_hold"),
        ("x", {"min_hold": -1}, "min_hold"),
        ("x", {"reentrant": "yes"}, "reentrant"),
        ("x", {"fair": 1}, "fair"),
    ],
)
def test_locks(module, name, options, argument) -> None:
    for lock in (module.Redlock(NOWHERE).lock, module.lock):
        with pytest.raises(redlock.InvalidArgument, match=f"^{argument}: ") as caught:
            lock(name, **options)
        assert isinstance(caught.value, ValueError)
        assert caught.value.code == "invalid"


@MODULES
@pytest.mark.parametrize(
    ("urls", "options", "argument"),
    [
        ([], {}, "urls"),
        ("", {}, "urls"),
        ("redis://a/x", {}, "urls"),
        (["redis://a", 1], {}, "urls"),
        (7, {}, "urls"),
        (None, {}, "urls"),
        ("redis://a", {"quorum": 2}, "quorum"),
        ("redis://a", {"quorum": 1.5}, "quorum"),
        ("redis://a", {"quorum": True}, "quorum"),
        ("redis://a", {"watchdog": 0.299}, "watchdog"),
        ("redis://a", {"watchdog": timedelta(0)}, "watchdog"),
        (["redis://a", "redis://b"], {"watchdog": 61}, "watchdog"),
        ("redis://a", {"drift": 0.0}, "drift"),
        ("redis://a", {"drift": "x"}, "drift"),
        ("redis://a", {"wire": "json"}, "wire"),
        ("redis://a", {"wire": 1}, "wire"),
        ("redis://a", {"token_key": "other"}, "token_key"),
        ("redis://a", {"token_ttl": 59.9}, "token_ttl"),
        ("redis://a", {"token_ttl": 3600, "token_key": "redisson"}, "token_ttl"),
        ("redis://a", {"prefix": 1}, "prefix"),
        ("redis://a", {"max_ttl": -1}, "max_ttl"),
        ("redis://a", {"app": ""}, "app"),
        ("redis://a", {"identify": 1}, "identify"),
        ("redis://a", {"min_replicas": -1}, "min_replicas"),
        ("redis://a", {"min_replicas": 1.5}, "min_replicas"),
        ("redis://a", {"min_replicas": 2**32}, "min_replicas"),
        ("memory://", {"min_replicas": 1}, "min_replicas"),
        ("redis+cluster://a/1", {}, "urls"),
        ("redis+cluster://", {}, "urls"),
        ("redis+cluster://a,b:x", {}, "urls"),
        ("redis+sentinel://a", {}, "urls"),
        ("redis://a?protocol=4", {}, "urls"),
        ("redis://a", {"patience": 0}, "patience"),
        ("redis://a", {"connect_timeout": -1}, "connect_timeout"),
        ("redis://a", {"reply_timeout": 0}, "reply_timeout"),
        ("redis://a", {"strict": 1}, "strict"),
        ("redis://a", {"quarantine": "no"}, "quarantine"),
        ("redis://a", {"username": 1}, "username"),
        ("redis://a", {"password": b"secret"}, "password"),
        ("rediss://a", {"cert": "cert.pem"}, "cert"),
    ],
)
def test_clients(module, urls, options, argument) -> None:
    with pytest.raises(redlock.InvalidArgument, match=f"^{argument}: ") as caught:
        module.Redlock(urls, **options)
    assert "secret" not in str(caught.value)
    if urls is not None:
        with pytest.raises(redlock.InvalidArgument, match=f"^{argument}: "):
            module.configure(urls, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2,), "blocking: must be True or False, not 2"),
        (("no",), "blocking: must be True or False, not 'no'"),
        ((True, -2), "timeout: must be at least 0, or -1 for no limit, not -2"),
        ((True, timedelta(seconds=-1)), "timeout: must be a number of seconds of at least 0, not -1"),
        ((True, math.inf), "timeout: must be at most 10 years, not without end; -1 is no limit"),
        ((0, 1), "timeout: cannot be given when blocking is False"),
    ],
)
def test_arguments_of_acquire(arguments, message) -> None:
    for lock in (redlock.Redlock("memory://").lock("x"), redlock.Redlock("memory://").semaphore("x", 2)):
        with pytest.raises(redlock.InvalidArgument, match=f"^{re.escape(message)}$"):
            lock.acquire(*arguments)
        assert not lock.locked()


@pytest.mark.parametrize("text", [None, 5, b"redlock1:", "\ud800", ""])
def test_the_text_of_a_lease(text) -> None:
    async def attach() -> None:
        async with redlock.asyncio.Redlock("memory://") as client:
            await client.attach(text)

    with pytest.raises(redlock.InvalidArgument, match="^text: "):
        redlock.Redlock("memory://").attach(text)
    with pytest.raises(redlock.InvalidArgument, match="^text: "):
        asyncio.run(attach())


@MODULES
@pytest.mark.parametrize(
    ("urls", "message"),
    [
        ("localhost", "urls: not a URL: redis:// or another scheme is missing"),
        ("redis://a,redis://b", "urls: one text with several URLs: give a list"),
        (["redis://a", "redis://b:x"], r"urls: number 2 of 2: not a URL \(invalid port number\)"),
    ],
)
def test_messages_about_urls(module, urls, message) -> None:
    with pytest.raises(redlock.InvalidArgument, match=f"^{message}$"):
        module.Redlock(urls)


def test_numbers_that_no_integer_of_the_core_holds() -> None:
    with pytest.raises(redlock.InvalidArgument, match=r"^permits: is out of range: 1e30$"):
        redlock.semaphore("x", 10**30)


@MODULES
def test_unknown_options_are_type_errors(module) -> None:
    with pytest.raises(TypeError):
        module.Redlock(NOWHERE, timeout=1)
    with pytest.raises(TypeError):
        module.lock("x", timeout=1)
    with pytest.raises(TypeError):
        module.Redlock(NOWHERE, 3)
    for make in (module.Redlock, module.lock, module.read_write_lock):
        with pytest.raises(TypeError, match="timeout"):
            make(NOWHERE, timeout=None)


@MODULES
def test_an_unknown_option_is_answered_with_the_known_ones(module) -> None:
    with pytest.raises(TypeError, match=r'"limit", only ttl, wait, max_hold, min_hold, reentrant$'):
        module.read_write_lock("x", limit=1)
    with pytest.raises(TypeError, match=r'"limit", only permits, ttl, wait, max_hold$'):
        module.semaphore("x", 2, limit=1)


@MODULES
@pytest.mark.parametrize("option", [{"owner": "me"}, {"fair": True}, {"min_hold": 1}, {"reentrant": False}])
def test_a_semaphore_refuses_what_only_locks_have(module, option) -> None:
    with pytest.raises(redlock.InvalidArgument, match=f"^{next(iter(option))}: (is not for semaphores|has no meaning)"):
        module.Redlock(NOWHERE).semaphore("x", 2, **option)


@MODULES
def test_a_short_max_ttl_shortens_the_default_of_watchdog(module) -> None:
    nodes = ["redis://a", "redis://b", "redis://c"]
    for options in ({}, {"watchdog": None}, {"watchdog": 20}):
        module.Redlock(nodes, max_ttl=20, **options)
    with pytest.raises(redlock.InvalidArgument, match="^watchdog: 30s is more than the client's max_ttl of 20s"):
        module.Redlock(nodes, max_ttl=20, watchdog=30)


@MODULES
def test_none_means_the_default(module) -> None:
    client = module.Redlock(NOWHERE, quorum=None, watchdog=None, prefix=None, password=None, strict=None)
    client.lock("x", ttl=None, wait=None, owner=None, max_hold=None, min_hold=None, reentrant=None, fair=None)


@MODULES
@pytest.mark.parametrize(
    "arguments",
    [
        {"blocking": False, "timeout": 1},
        {"blocking": False, "timeout": 0},
        {"timeout": -2},
        {"timeout": -0.5},
        {"timeout": math.nan},
        {"timeout": 11 * 365 * 86400},
        {"timeout": "1"},
        {"timeout": timedelta(seconds=-1, microseconds=1)},
    ],
)
def test_acquire(module, arguments) -> None:
    # In asyncio too, the call itself raises, before its result is awaited.
    with pytest.raises(redlock.InvalidArgument, match="^timeout: "):
        module.Redlock(NOWHERE).lock("x").acquire(**arguments)


@pytest.mark.parametrize("bad", [0.01, "x", None])
def test_extend(client: redlock.Redlock, server, bad) -> None:
    with client.lock("x") as lease, pytest.raises(redlock.InvalidArgument, match="^ttl: "):
        lease.extend(bad)

    async def main() -> None:
        async with redlock.asyncio.Redlock(server.url).lock("y") as lease:
            with pytest.raises(redlock.InvalidArgument, match="^ttl: "):
                await lease.extend(bad)

    asyncio.run(main())
