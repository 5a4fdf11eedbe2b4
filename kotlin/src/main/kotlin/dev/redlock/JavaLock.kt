// A lock as `java.util.concurrent` knows locks: held by threads, re-entrant, blocking.

package dev.redlock

import dev.redlock.internal.Identity
import java.util.concurrent.Callable
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.Condition
import kotlin.contracts.ExperimentalContracts
import kotlin.contracts.InvocationKind
import kotlin.contracts.contract
import java.util.concurrent.locks.Lock as ConcurrentLock

/**
 * A distributed lock that is held by a thread, platform or virtual, as a `ReentrantLock` is. A thread may take it again
 * without a round trip, also by another `JavaLock` of the same name and client. It is renewed until it is unlocked, or
 * until the thread is gone. With an explicit owner all threads of that owner hold it together.
 *
 * Each method that takes the lock fails as [Lock.acquire] does.
 */
public class JavaLock internal constructor(private val lock: Lock) : ConcurrentLock {
    private val handle get() = lock.handle

    /** Takes the lock. Waits for ever, or as long as the lock's own `wait`; an interrupt does not end that. */
    override fun lock(): Unit = take(lock.waitMillis, interruptible = false)

    /** [lock], but an interrupt ends it. */
    @Throws(InterruptedException::class)
    override fun lockInterruptibly(): Unit = take(lock.waitMillis, interruptible = true)

    /** Takes the lock if it is free, in one round trip. */
    override fun tryLock(): Boolean = attempt(0.0, interruptible = false)

    /** Takes the lock if it becomes free in time. */
    @Throws(InterruptedException::class)
    override fun tryLock(time: Long, unit: TimeUnit): Boolean =
        attempt(unit.toNanos(time).coerceAtLeast(0) / NANOS_PER_MILLI, interruptible = true)

    private fun attempt(millis: Double, interruptible: Boolean): Boolean = try {
        take(millis, interruptible)
        true
    } catch (_: LockTimeout) {
        false
    }

    private fun take(millis: Double, interruptible: Boolean) {
        if (interruptible && Thread.interrupted()) throw InterruptedException()
        val (thread, owner) = Thread.currentThread() to identity.get()
        // Blocked in native code a virtual thread would keep its carrier from others, such as the one that is to unlock.
        try {
            if (isVirtual(thread)) {
                Calls.block(interruptible) { handle.acquire { it.acquireAs(owner, millis, thread.id) } }.free()
            } else {
                native { handle.acquire { it.lock(owner, millis, thread.id, interruptible) } }
            }
        } catch (failure: Throwable) {
            handle.free()
            throw failure
        }
    }

    /**
     * Releases what this thread took last. In a `finally` block its exception replaces that of the `try` block:
     * [runLocked] keeps both.
     *
     * @throws IllegalMonitorStateException when this thread does not hold the lock; its cause is [NotHeld]
     * @throws LockLost when it was lost
     */
    override fun unlock() {
        val owner = identity.get()
        try {
            if (isVirtual(Thread.currentThread())) {
                Calls.block { handle.call { it.unlockAs(owner) } }
            } else {
                native { handle.call { it.unlock(owner) } }
            }
            handle.free()
        } catch (error: NotHeld) {
            throw IllegalMonitorStateException(error.message).initCause(error)
        }
    }

    /**
     * Takes the lock as [lock] does, runs [body], and unlocks. Throws the exception of `body` with the [LockLost], if the
     * lock was lost, among its suppressed ones; with `lock()`, `try` and `finally { unlock(); }` the [LockLost] would
     * replace it.
     *
     * @throws LockLost when the lock was lost and `body` succeeded
     */
    public fun runLocked(body: Runnable): Unit = withLock(body::run)

    /** [runLocked], for what returns a value or throws checked exceptions. */
    @Throws(Exception::class)
    public fun <T> callLocked(body: Callable<T>): T = withLock(body::call)

    /** [runLocked], for Kotlin: takes the place of `kotlin.concurrent.withLock`, which masks the exception of [action]. */
    @JvmSynthetic
    @OptIn(ExperimentalContracts::class)
    public inline fun <T> withLock(action: () -> T): T {
        contract { callsInPlace(action, InvocationKind.EXACTLY_ONCE) }
        lock()
        var failure: Throwable? = null
        try {
            return action()
        } catch (own: Throwable) {
            failure = own
            throw own
        } finally {
            unlockAfter(failure)
        }
    }

    /** [unlock], after a block that threw `failure`, which then comes first. */
    @PublishedApi
    internal fun unlockAfter(failure: Throwable?) {
        try {
            unlock()
        } catch (error: RuntimeException) {
            if (failure == null) throw error
            failure.addSuppressed(error)
        }
    }

    /** Whether this thread holds the lock, right now. Asks nobody. */
    public val isHeldByCurrentThread: Boolean get() = handle.call { it.ownedBy(identity.get()) }

    /** The fencing token of this thread; null when it does not hold the lock. Asks nobody. */
    public fun token(): Long? = handle.call { it.tokenOf(identity.get()) }

    /** There are no conditions across processes. */
    override fun newCondition(): Condition = throw UnsupportedOperationException("a distributed lock has no conditions")

    override fun toString(): String = "JavaLock(${lock.name})"

    private companion object {
        const val NANOS_PER_MILLI = 1e6

        /** Goes with its thread, and what the thread holds with it. */
        val identity: ThreadLocal<Identity> = ThreadLocal.withInitial(::Identity)

        /** `Thread.isVirtual`, where there is one: since Java 21. */
        val isVirtual: (Thread) -> Boolean = try {
            val method = Thread::class.java.getMethod("isVirtual");
            { thread -> method.invoke(thread) as Boolean }
        } catch (_: NoSuchMethodException) {
            { false }
        }
    }
}
