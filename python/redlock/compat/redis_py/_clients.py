"""Makes clients of the core with the connection settings of redis-py clients.

Only settings are read from the redis-py client: nothing is sent through it, and it is not changed. A setting that the
core cannot apply in the same way, such as a password from a callback, raises `InvalidArgument`. So no connection is
less safe than redis-py's, or leads elsewhere.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary, WeakValueDictionary

from redis.credentials import UsernamePasswordCredentialProvider

from redlock._client import after_fork
from redlock._sync import Redlock
from redlock.errors import InvalidArgument

_lock = threading.Lock()
after_fork(lambda: _lock._at_fork_reinit())  # type: ignore[attr-defined]

# A client lives as long as a redis-py client that needs it. All redis-py clients with the same settings share one.
_by_source: WeakKeyDictionary[Any, Redlock] = WeakKeyDictionary()
_by_settings: WeakValueDictionary[tuple[str, frozenset[tuple[str, object]]], Redlock] = WeakValueDictionary()


def client_of(redis: Any) -> Redlock:
    """Return the client with the settings of a redis-py client, for threads or for asyncio.

    Raises `InvalidArgument` if they cannot be taken over.
    """
    source = redis if hasattr(redis, "nodes_manager") else getattr(redis, "connection_pool", None)
    if source is None:
        raise InvalidArgument(f"redis: must be a client of redis-py, not {redis!r}")
    with _lock:
        client = _by_source.get(source)
        if client is None:
            url, options = _cluster(redis) if source is redis else _server(source)
            settings = (url, frozenset(options.items()))
            client = _by_settings.get(settings)
            if client is None:
                client = Redlock(url, wire="token", **options)
                _by_settings[settings] = client
            _by_source[source] = client
        return client


_MODULES = ("redis.connection", "redis.asyncio.connection", "redis.sentinel", "redis.asyncio.sentinel")
# The connection classes whose settings can be taken over, and whether each uses TLS.
_CLASSES = {
    "Connection": False,
    "SSLConnection": True,
    "UnixDomainSocketConnection": False,
    "SentinelManagedConnection": False,
    "SentinelManagedSSLConnection": True,
}


def _refuse(setting: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"redis: cannot take over {setting}: {why}; use redlock.Redlock with settings of its own")


def _is_tls(kind: type) -> bool:
    if kind.__module__ not in _MODULES or kind.__name__ not in _CLASSES:
        raise _refuse("connection_class", f"{kind.__module__}.{kind.__qualname__} may connect in a way of its own")
    return _CLASSES[kind.__name__]


def _server(pool: Any) -> tuple[str, dict[str, Any]]:
    settings: dict[str, Any] = pool.connection_kwargs
    tls = _is_tls(pool.connection_class)
    if settings.get("redis_connect_func") is not None:
        raise _refuse("redis_connect_func", "it is run for each new connection of redis-py")
    options = _options(settings, tls)
    query, db = _query(settings), int(settings.get("db") or 0)
    if hasattr(pool, "sentinel_manager"):
        return _sentinel(pool, tls, db, query), options
    if settings.get("path"):
        return _url("unix", quote(settings["path"]), {"db": str(db), **query}), options
    address = _address(settings.get("host", "localhost"), settings.get("port", 6379))
    return _url("rediss" if tls else "redis", f"{address}/{db}", query), options


def _sentinel(pool: Any, tls: bool, db: int, query: dict[str, str]) -> str:
    if not pool.is_master:
        raise _refuse("a pool of replicas", "a lock is written, and replicas refuse that")
    addresses, users = [], set()
    for sentinel in pool.sentinel_manager.sentinels:
        settings = sentinel.connection_pool.connection_kwargs
        if _is_tls(sentinel.connection_pool.connection_class) != tls:
            raise _refuse("ssl", "it is used for the sentinels or for the server, not for both")
        addresses.append(_address(settings["host"], settings["port"]))
        users.add(_user(settings))
    if len(users) != 1:
        raise _refuse("the sentinels", "each has a user of its own, or there is none")
    user, password = users.pop()
    login = {"sentinel_username": user or "", "sentinel_password": password or ""}
    query = {**query, **{name: value for name, value in login.items() if value}}
    place = f"{','.join(addresses)}/{quote(pool.service_name, safe='')}/{db}"
    return _url("rediss+sentinel" if tls else "redis+sentinel", place, query)


def _cluster(redis: Any) -> tuple[str, dict[str, Any]]:
    manager = redis.nodes_manager
    # An asyncio cluster has them in the client.
    settings: dict[str, Any] = getattr(redis, "connection_kwargs", None) or manager.connection_kwargs
    for setting in ("address_remap", "user_on_connect_func"):
        if getattr(redis, setting, None) is not None or getattr(manager, setting, None) is not None:
            raise _refuse(setting, "a function of redis-py's")
    kind = settings.get("connection_class")
    tls = bool(settings.get("ssl")) or (kind is not None and _is_tls(kind))
    nodes = ",".join(sorted(_address(node.host, node.port) for node in manager.startup_nodes.values()))
    return _url("rediss+cluster" if tls else "redis+cluster", nodes, _query(settings)), _options(settings, tls)


def _url(scheme: str, place: str, query: dict[str, str]) -> str:
    return f"{scheme}://{place}" + (f"?{urlencode(query)}" if query else "")


def _query(settings: dict[str, Any]) -> dict[str, str]:
    # By default the core uses RESP3 if the server supports it.
    return {"protocol": "2"} if str(settings.get("protocol")) == "2" else {}


def _address(host: str, port: int | str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{quote(host)}:{port}"


def _user(settings: dict[str, Any]) -> tuple[str | None, str | None]:
    provider = settings.get("credential_provider")
    if provider is None:
        return settings.get("username"), settings.get("password")
    if type(provider) is not UsernamePasswordCredentialProvider:
        raise _refuse("credential_provider", "it may give another password each time")
    return provider.username, provider.password


# Settings that change which servers a connection trusts, with the values that match the core. Others are refused.
_TRUST: dict[str, tuple[object, ...]] = {
    "ssl_ca_path": (None,),
    "ssl_check_hostname": (True,),
    "ssl_cert_reqs": ("required", 2),  # ssl.CERT_REQUIRED
    "ssl_ciphers": (None,),
    "ssl_exclude_verify_flags": (None,),
    "ssl_include_verify_flags": (None,),
    # None, "minimum supported", SSL 3.0 to TLS 1.1, and TLS 1.2, the oldest that the core supports.
    "ssl_min_version": (None, -2, 768, 769, 770, 771),
    "ssl_ocsp_context": (None,),
    "ssl_ocsp_expected_cert": (None,),
    "ssl_password": (None,),
    "ssl_validate_ocsp": (False, None),
    "ssl_validate_ocsp_stapled": (False, None),
}
_SAME = {
    "socket_connect_timeout": "connect_timeout",
    "socket_timeout": "reply_timeout",
    "ssl_ca_certs": "ca",
    "ssl_certfile": "cert",
    "ssl_keyfile": "key",
}


def _options(settings: dict[str, Any], tls: bool) -> dict[str, Any]:
    if tls:
        for setting, same in _TRUST.items():
            if setting in settings and settings[setting] not in same:
                # The value is not shown, as it may be a secret.
                raise _refuse(setting, "the core has nothing of the kind, or does otherwise")
    names = {theirs: ours for theirs, ours in _SAME.items() if tls or not theirs.startswith("ssl_")}
    given = {ours: settings[theirs] for theirs, ours in names.items() if settings.get(theirs) is not None}
    certificates = settings.get("ssl_ca_data") if tls else None
    if certificates is not None:
        if "ca" in given or not isinstance(certificates, str):
            raise _refuse("ssl_ca_data", "the core takes it as PEM text, and instead of ssl_ca_certs")
        given["ca"] = certificates
    user, password = _user(settings)
    if user:
        given["username"] = user
    if user or password:
        given["password"] = password or ""
    return {option: os.fspath(value) if isinstance(value, os.PathLike) else value for option, value in given.items()}
