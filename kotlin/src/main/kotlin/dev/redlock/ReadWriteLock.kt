// A read/write lock by name, for coroutines and for threads.

package dev.redlock

import kotlinx.coroutines.CoroutineScope
import kotlin.contracts.ExperimentalContracts
import kotlin.contracts.InvocationKind
import kotlin.contracts.contract
import java.util.concurrent.locks.ReadWriteLock as ConcurrentReadWriteLock

/**
 * A read/write lock by name: many may read at once, or one may write.
 *
 * On one server a writer that waits lets the readers inside finish and keeps new ones behind it; when it ends, all readers
 * that wait come in, and then the next writer: nobody starves. On a quorum no order is promised.
 *
 * @property name the name, without the client's prefix
 */
public class ReadWriteLock internal constructor(public val name: String, part: (String) -> Lock) {
    /** What readers take. */
    public val readLock: Lock = part("read")

    /** What a writer takes. */
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

    /** This lock as `java.util.concurrent` knows it: held by threads. */
    public fun asJavaReadWriteLock(): JavaReadWriteLock = JavaReadWriteLock(this)

    override fun toString(): String = "ReadWriteLock($name)"
}

/**
 * A distributed read/write lock that is held by threads, platform or virtual, as a `ReentrantReadWriteLock` is: a thread may
 * take again what it has, and one that writes may read. Other readers come in once it has unlocked both. A thread that reads
 * and wants to write fails with [WouldDeadlock], where a `ReentrantReadWriteLock` waits for ever.
 */
public class JavaReadWriteLock internal constructor(private val lock: ReadWriteLock) : ConcurrentReadWriteLock {
    private val reads = lock.readLock.asJavaLock()
    private val writes = lock.writeLock.asJavaLock()

    /** What readers take. */
    override fun readLock(): JavaLock = reads

    /** What a writer takes. */
    override fun writeLock(): JavaLock = writes

    override fun toString(): String = "JavaReadWriteLock(${lock.name})"
}
