// Redisson's locks with the defaults of its clients: the watchdog's lease; owners are threads, or thread ids.

package dev.redlock.bench

import kotlinx.coroutines.future.await
import org.redisson.Redisson
import org.redisson.RedissonRedLock
import org.redisson.api.RFencedLock
import org.redisson.api.RLock
import org.redisson.api.RPermitExpirableSemaphore
import org.redisson.api.RReadWriteLock
import org.redisson.api.RedissonClient
import org.redisson.config.Config
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicLong
import kotlin.concurrent.withLock

/** `RLock`; on several servers `RedissonRedLock`. */
class RedissonRLock(urls: List<String>) : Library {
    private val clients = urls.map(::client)
    private val locks = ConcurrentHashMap<String, RLock>()

    private fun newLock(name: String): RLock {
        val each = clients.map { it.getLock(name) }
        @Suppress("DEPRECATION") // there is no other for several servers
        return each.singleOrNull() ?: RedissonRedLock(*each.toTypedArray())
    }

    private fun lock(name: String): RLock = locks.getOrPut(name) { newLock(name) }

    private val readWriteLocks = ConcurrentHashMap<String, RReadWriteLock>()
    private val semaphores = ConcurrentHashMap<String, RPermitExpirableSemaphore>()

    private fun only(): RedissonClient = clients.singleOrNull() ?: throw Unsupported("one server only")

    private fun readWriteLock(name: String) = readWriteLocks.getOrPut(name) { only().getReadWriteLock(name) }

    private fun semaphore(name: String) =
        semaphores.getOrPut(name) { only().getPermitExpirableSemaphore(name).apply { trySetPermits(PERMITS) } }

    override val alone: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): RLock = lock(name).apply { lock() }

        override suspend fun release(lease: Any): Unit = (lease as RLock).unlock()

        override suspend fun block(name: String): Unit = newLock(name).withLock {}
    }

    override val together: Locks = object : Locks {
        /** Thread ids that no thread has. */
        private val owners = AtomicLong(Int.MAX_VALUE.toLong())

        override suspend fun acquire(name: String, owner: String?): Held = take(lock(name))

        override suspend fun acquireKind(kind: String, name: String): Any = when (kind) {
            "read" -> take(readWriteLock(name).readLock())
            "write" -> take(readWriteLock(name).writeLock())
            else -> semaphore(name).let { Permit(it, it.acquireAsync(LEASE_SECONDS, TimeUnit.SECONDS).await()) }
        }

        override suspend fun release(lease: Any) {
            if (lease is Permit) lease.semaphore.releaseAsync(lease.id).await() else unlock(lease as Held)
        }

        override suspend fun block(name: String): Unit = unlock(take(newLock(name)))

        private suspend fun take(lock: RLock): Held {
            val held = Held(lock, owners.incrementAndGet())
            lock.lockAsync(held.owner).await()
            return held
        }
    }

    override fun close(): Unit = clients.forEach(RedissonClient::shutdown)
}

/** `RFencedLock`, with its token. */
class RedissonRFenced(urls: List<String>) : Library {
    private val client = client(urls.singleOrNull() ?: throw Unsupported("one server only"))
    private val locks = ConcurrentHashMap<String, RFencedLock>()

    private fun newLock(name: String): RFencedLock = client.getFencedLock(name)

    private fun lock(name: String) = locks.getOrPut(name) { newLock(name) }

    override val alone: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): RFencedLock = lock(name).apply { lockAndGetToken() }

        override suspend fun release(lease: Any): Unit = (lease as RLock).unlock()

        override suspend fun block(name: String) {
            val lock = newLock(name)
            lock.lockAndGetToken()
            lock.unlock()
        }
    }

    override val together: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): Held = take(lock(name))

        override suspend fun release(lease: Any): Unit = unlock(lease as Held)

        override suspend fun block(name: String): Unit = unlock(take(newLock(name)))

        private suspend fun take(lock: RFencedLock): Held {
            val held = Held(lock, Thread.currentThread().id)
            lock.lockAndGetTokenAsync().await()
            return held
        }
    }

    override val noHerd: String get() = "its owners are threads, if they want a token"

    override fun close(): Unit = client.shutdown()
}

private class Held(val lock: RLock, val owner: Long)

private class Permit(val semaphore: RPermitExpirableSemaphore, val id: String)

/** The lease of a permit, which Redisson does not renew: as long as that of its locks. */
private const val LEASE_SECONDS = 30L

private suspend fun unlock(held: Held) {
    held.lock.unlockAsync(held.owner).await()
}

private fun client(url: String): RedissonClient = Redisson.create(Config().apply { useSingleServer().setAddress(url) })
