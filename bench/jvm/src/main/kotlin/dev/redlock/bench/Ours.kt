// This project's package: for coroutines, and for threads. Its lease is the watchdog's.

package dev.redlock.bench

import dev.redlock.JavaLock
import dev.redlock.Lease
import dev.redlock.Lock
import dev.redlock.Redlock
import java.util.concurrent.ConcurrentHashMap

/** Suspending, each acquire an owner of its own unless it names one. */
class OursForCoroutines(urls: List<String>) :
    Library,
    Locks {
    private val client = connected(urls)
    private val locks = ConcurrentHashMap<String, Lock>()

    override val alone: Locks get() = this
    override val together: Locks get() = this

    override suspend fun acquire(name: String, owner: String?): Lease =
        locks.getOrPut("$owner $name") { client.lock(name, wait = LONGEST_WAIT, owner = owner) }.acquire()

    override suspend fun release(lease: Any) {
        (lease as Lease).release()
    }

    override fun close(): Unit = client.close()
}

/** As a `java.util.concurrent.locks.Lock`, owned by threads. */
class OursForThreads(urls: List<String>) :
    Library,
    Locks {
    private val client = connected(urls)
    private val locks = ConcurrentHashMap<String, JavaLock>()

    override val alone: Locks get() = this
    override val together: Locks? get() = null

    override suspend fun acquire(name: String, owner: String?): JavaLock {
        val lock = locks.getOrPut(name) { client.lock(name, wait = LONGEST_WAIT).asJavaLock() }
        lock.lock()
        return lock
    }

    override suspend fun release(lease: Any): Unit = (lease as JavaLock).unlock()

    override fun close(): Unit = client.close()
}

private fun connected(urls: List<String>) = Redlock(urls).also { it.pingBlocking() }
