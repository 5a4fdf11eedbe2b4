// Redisson's locks, with the defaults of its clients: a watchdog's lease, owned by threads, or by the number of one.

package dev.redlock.bench

import kotlinx.coroutines.future.await
import org.redisson.Redisson
import org.redisson.RedissonRedLock
import org.redisson.api.RFencedLock
import org.redisson.api.RLock
import org.redisson.api.RedissonClient
import org.redisson.config.Config
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong

private val WAIT_SECONDS = LONGEST_WAIT.inWholeSeconds

/** Asks for a lease that the watchdog renews. */
private const val WATCHDOG = -1L

/** `RLock`; over several servers `RedissonRedLock`. */
class RedissonRLock(urls: List<String>) : Library {
    private val clients = urls.map(::client)
    private val locks = ConcurrentHashMap<String, RLock>()

    private fun lock(name: String): RLock = locks.getOrPut(name) {
        val each = clients.map { it.getLock(name) }
        @Suppress("DEPRECATION") // there is no other for several servers
        each.singleOrNull() ?: RedissonRedLock(*each.toTypedArray())
    }

    override val alone: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): RLock {
            val lock = lock(name)
            check(lock.tryLock(WAIT_SECONDS, TimeUnit.SECONDS)) { "not granted in time" }
            return lock
        }

        override suspend fun release(lease: Any): Unit = (lease as RLock).unlock()
    }

    override val together: Locks = object : Locks {
        /** Numbers that no thread has. */
        private val owners = AtomicLong(Int.MAX_VALUE.toLong())

        override suspend fun acquire(name: String, owner: String?): Held {
            val held = Held(lock(name), owners.incrementAndGet())
            val granted = held.lock.tryLockAsync(WAIT_SECONDS, WATCHDOG, TimeUnit.SECONDS, held.owner).await()
            check(granted) { "not granted in time" }
            return held
        }

        override suspend fun release(lease: Any): Unit = unlock(lease as Held)
    }

    override fun close(): Unit = clients.forEach(RedissonClient::shutdown)
}

/** `RFencedLock`, with its token. */
class RedissonRFenced(urls: List<String>) : Library {
    private val client = client(urls.singleOrNull() ?: throw Unsupported("one server only"))
    private val locks = ConcurrentHashMap<String, RFencedLock>()

    private fun lock(name: String) = locks.getOrPut(name) { client.getFencedLock(name) }

    override val alone: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): RFencedLock {
            val lock = lock(name)
            checkNotNull(lock.tryLockAndGetToken(WAIT_SECONDS, TimeUnit.SECONDS)) { "not granted in time" }
            return lock
        }

        override suspend fun release(lease: Any): Unit = (lease as RLock).unlock()
    }

    override val together: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): Held {
            val held = Held(lock(name), Thread.currentThread().id)
            val token = (held.lock as RFencedLock).tryLockAndGetTokenAsync(WAIT_SECONDS, TimeUnit.SECONDS).await()
            checkNotNull(token) { "not granted in time" }
            return held
        }

        override suspend fun release(lease: Any): Unit = unlock(lease as Held)
    }

    override val noHerd: String get() = "its owners are threads, if they want a token"

    override fun close(): Unit = client.shutdown()
}

private class Held(val lock: RLock, val owner: Long)

private suspend fun unlock(held: Held) {
    held.lock.unlockAsync(held.owner).await()
}

private fun client(url: String): RedissonClient = Redisson.create(Config().apply { useSingleServer().setAddress(url) })
