"""Drop-in replacements for the locks of other libraries.

Each submodule has the names, signatures, results and exceptions of one library, on this library's core and its own
connections. It is for moving without touching call sites, and speaks the other library's format: processes that have
moved and processes that have not exclude each other. New code is better off with `redlock` itself, which renews what it
holds, tells of a loss and has fencing tokens.

* `redlock.compat.redis_py`: `redis.lock.Lock`; needs the package `redis`, as the extra `redlock-core[redis-py]`
* `redlock.compat.redis_py.asyncio`: `redis.asyncio.lock.Lock`
"""
