// This project's package, for coroutines and for threads. The watchdog renews its leases.

package dev.redlock.bench

import dev.redlock.JavaLock
import dev.redlock.Lease
import dev.redlock.Lock
import dev.redlock.ReadWriteLock
import dev.redlock.Redlock
import dev.redlock.RedlockOptions
import dev.redlock.Semaphore
import java.util.concurrent.ConcurrentHashMap
import kotlin.concurrent.withLock
import kotlin.time.Duration.Companion.seconds

/** Suspends; each acquire is an owner of its own unless it names one. */
class OursForCoroutines(urls: List<String>) :
    Library,
    Locks {
    private val client = connected(urls)
    private val locks = ConcurrentHashMap<String, Lock>()
    private val readWriteLocks = ConcurrentHashMap<String, ReadWriteLock>()
    private val semaphores = ConcurrentHashMap<String, Semaphore>()

    override val alone: Locks get() = this
    override val together: Locks get() = this

    override suspend fun acquire(name: String, owner: String?): Lease =
        locks.getOrPut("$owner $name") { client.lock(name, owner = owner) }.acquire()

    override suspend fun acquireKind(kind: String, name: String): Lease = when (kind) {
        "read" -> readWriteLock(name).readLock.acquire()
        "write" -> readWriteLock(name).writeLock.acquire()
        else -> semaphores.getOrPut(name) { client.semaphore(name, PERMITS) }.acquire()
    }

    private fun readWriteLock(name: String) = readWriteLocks.getOrPut(name) { client.readWriteLock(name) }

    override suspend fun release(lease: Any) {
        (lease as Lease).release()
    }

    override suspend fun block(name: String): Unit = client.lock(name).withLock {}

    override fun close(): Unit = client.close()
}

/** A `java.util.concurrent.locks.Lock`, owned by threads. */
class OursForThreads(urls: List<String>) :
    Library,
    Locks {
    private val client = connected(urls)
    private val locks = ConcurrentHashMap<String, JavaLock>()

    override val alone: Locks get() = this
    override val together: Locks? get() = null

    override suspend fun acquire(name: String, owner: String?): JavaLock {
        val lock = locks.getOrPut(name) { client.lock(name).asJavaLock() }
        lock.lock()
        return lock
    }

    override suspend fun release(lease: Any): Unit = (lease as JavaLock).unlock()

    override suspend fun block(name: String): Unit = client.lock(name).asJavaLock().withLock {}

    override fun close(): Unit = client.close()
}

private fun connected(urls: List<String>): Redlock {
    val options = RedlockOptions(tokenTtl = System.getenv("BENCH_TOKEN_TTL")?.toInt()?.seconds)
    return Redlock(urls, options).also { it.pingBlocking() }
}
