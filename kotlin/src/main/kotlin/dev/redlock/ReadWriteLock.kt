// A read/write lock by name, for coroutines and for threads.

package dev.redlock

import kotlinx.coroutines.CoroutineScope
import kotlin.contracts.ExperimentalContracts
import kotlin.contracts.InvocationKind
import kotlin.contracts.contract
import java.util.concurrent.locks.ReadWriteLock as ConcurrentReadWriteLock

/**
 * A read/write lock by name: many readers at the same time, or one writer.
 *
 * On one server, readers and writers take turns, so that neither starves the other. A waiting writer gets the lock when
 * the current readers have released it; later readers wait behind the writer. When the writer releases, all waiting
 * readers get the lock, then the next writer. On a quorum no order is promised.
 *
 * ```kotlin
 * val config = client.readWriteLock("config")
 *
 * config.read { serve(loadConfig()) } // beside other readers
 *
 * config.write { lease -> // alone
 *     saveConfig(new, fence = lease.token)
 *     lease.downgrade() // a reader from here on
 *     announce(new)
 * }
 * ```
 *
 * @property name the name, without the client's prefix
 */
public class ReadWriteLock internal constructor(public val name: String, part: (String) -> Lock) {
    /** The lock of the readers. */
    public val readLock: Lock = part("read")

    /** The lock of a writer. */
    public val writeLock: Lock = part("write")

    /** Runs [block] as a reader: [Lock.withLock] of [readLock]. */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> read(block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return readLock.withLock(block)
    }

    /** Runs [block] as the writer: [Lock.withLock] of [writeLock]. */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> write(block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return writeLock.withLock(block)
    }

    /** This lock as a `java.util.concurrent.locks.ReadWriteLock`, owned by threads. */
    public fun asJavaReadWriteLock(): JavaReadWriteLock = JavaReadWriteLock(this)

    override fun toString(): String = "ReadWriteLock($name)"
}

/**
 * A distributed read/write lock that is owned by threads, platform or virtual, like a `ReentrantReadWriteLock`. A
 * thread may acquire again what it holds, and the writer may also acquire the read lock. Other readers get the lock
 * once the writer has unlocked both. A thread unlocks only the half that it locked. A reader that acquires the write
 * lock fails with [WouldDeadlock], where a `ReentrantReadWriteLock` waits for ever.
 *
 * ```java
 * JavaReadWriteLock config = client.readWriteLock("config").asJavaReadWriteLock();
 * config.readLock().runLocked(() -> announce("read beside other readers"));
 * config.writeLock().runLocked(() -> saveConfig(next, config.writeLock().token()));
 * ```
 */
public class JavaReadWriteLock internal constructor(private val lock: ReadWriteLock) : ConcurrentReadWriteLock {
    private val reads = lock.readLock.asJavaLock()
    private val writes = lock.writeLock.asJavaLock()

    /** The lock of the readers. */
    override fun readLock(): JavaLock = reads

    /** The lock of a writer. */
    override fun writeLock(): JavaLock = writes

    override fun toString(): String = "JavaReadWriteLock(${lock.name})"
}

/**
 * How often each thread holds the read half, or the write half, of each read/write lock of one client. To the core, a
 * thread is one owner, whichever half it locked, and an unlock ends the newest hold of the owner. A
 * `ReentrantReadWriteLock` refuses the unlock of a half that the thread does not hold.
 */
internal class Holds {
    private val ofThread = ThreadLocal.withInitial { HashMap<String, Int>() }

    /** Whether this thread holds this half of the lock `name`. */
    fun has(name: String): Boolean = name in ofThread.get()

    fun add(name: String) {
        ofThread.get().merge(name, 1, Int::plus)
    }

    /** Removes one hold. False if there is none. */
    fun remove(name: String): Boolean {
        val count = ofThread.get().remove(name) ?: return false
        if (count > 1) ofThread.get()[name] = count - 1
        return true
    }
}
