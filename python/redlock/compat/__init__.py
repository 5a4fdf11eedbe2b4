"""Drop-in replacements for the locks of other libraries.

Each submodule has the names, signatures, results and exceptions of one library, on this library's core and
connections. Use it to migrate without changing call sites. It writes the other library's format, so that processes that
have migrated and processes that have not exclude each other. New code should use `redlock` itself, which renews leases,
reports losses and has fencing tokens.

* `redlock.compat.redis_py`: `redis.lock.Lock`; needs the package `redis`, as the extra `redlock-core[redis-py]`
* `redlock.compat.redis_py.asyncio`: `redis.asyncio.lock.Lock`
"""
