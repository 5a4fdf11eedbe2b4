// A lock with the interface of `java.util.concurrent`: owned by threads, re-entrant, blocking.

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
 * A distributed lock that is owned by a thread, platform or virtual, like a `ReentrantLock`. Its owner may acquire it
 * again without a round trip, also through another `JavaLock` of the same name and client. With an explicit owner, all
 * threads of that owner share the hold.
 *
 * It is renewed until it is unlocked. If its thread ends without that, it is renewed until a garbage collection has
 * found the thread gone, and then ends with its ttl. That may take long in a JVM that allocates little; `maxHold` bounds
 * it.
 *
 * Each method that acquires the lock fails as [Lock.acquire] does.
 *
 * ```java
 * JavaLock report = client.lock("report").asJavaLock();
 *
 * report.runLocked(() -> buildReport(report.token()));
 *
 * if (report.tryLock(5, TimeUnit.SECONDS)) {
 *     try {
 *         buildReport(report.token());
 *     } finally {
 *         report.unlock();
 *     }
 * }
 * ```
 */
public class JavaLock internal constructor(private val lock: Lock) : ConcurrentLock {
    private val handle get() = lock.handle
    private val holds get() = lock.holds?.invoke()

    /** False if this is a half of a read/write lock and this thread did not lock this half. */
    private val mayHold get() = holds?.has(lock.name) ?: true

    /** Acquires the lock. Waits for the lock's own `wait`, by default for ever. An interrupt does not end the wait. */
    override fun lock(): Unit = take(lock.waitMillis, interruptible = false)

    /**
     * [lock], but an interrupt ends the wait.
     *
     * @throws InterruptedException when the thread is interrupted; nothing is left behind
     */
    @Throws(InterruptedException::class)
    override fun lockInterruptibly(): Unit = take(lock.waitMillis, interruptible = true)

    /** Acquires the lock if it is free, in one round trip. Returns whether it did. */
    override fun tryLock(): Boolean = attempt(0.0, interruptible = false)

    /**
     * Acquires the lock if it becomes free within [time]. Zero or less is one try. Waits for 10 years at most. Returns
     * whether it did.
     *
     * @throws InterruptedException when the thread is interrupted; nothing is left behind
     */
    @Throws(InterruptedException::class)
    override fun tryLock(time: Long, unit: TimeUnit): Boolean =
        attempt(unit.toNanos(time).coerceIn(0, TEN_YEARS_NANOS) / NANOS_PER_MILLI, interruptible = true)

    private fun attempt(millis: Double, interruptible: Boolean): Boolean = try {
        take(millis, interruptible)
        true
    } catch (_: LockTimeout) {
        false
    }

    private fun take(millis: Double, interruptible: Boolean) {
        Calls.checkMayBlock()
        if (interruptible && Thread.interrupted()) throw InterruptedException()
        val (thread, owner) = Thread.currentThread() to identity.get()
        // A virtual thread that blocks in native code pins its carrier, which the thread that unlocks may need.
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
        holds?.add(lock.name)
    }

    /**
     * Releases the newest acquire of this thread. In a `finally` block, its exception replaces the exception of the
     * `try` block: [runLocked] keeps both.
     *
     * @throws IllegalMonitorStateException when this thread does not hold the lock; its cause is [NotHeld]
     * @throws LockLost when the lock was lost, or the client was closed
     */
    override fun unlock() {
        Calls.checkMayBlock()
        // A new identity holds nothing, so the core fails with the error of an owner that does not hold the lock.
        val owner = if (holds?.remove(lock.name) == false) Identity() else identity.get()
        try {
            if (isVirtual(Thread.currentThread())) {
                Calls.block { handle.call { it.unlockAs(owner) } }
            } else {
                native { handle.call { it.unlock(owner) } }
            }
            handle.free()
        } catch (error: NotHeld) {
            throw IllegalMonitorStateException(error.message).initCause(error)
        } catch (error: Closed) {
            // A closed client no longer knows its locks. Its close was the loss of all that it held.
            throw LockLost("lock \"${lock.name}\" was lost: closed", LostReason.CLOSED).initCause(error)
        }
    }

    /**
     * Acquires the lock as [lock] does, runs [body], and unlocks. If `body` fails, its exception is thrown. If the lock
     * was lost as well, the [LockLost] is among its suppressed exceptions. With `lock()`, `try` and `finally {
     * unlock(); }` the [LockLost] would replace it.
     *
     * @throws LockLost when the lock was lost and `body` succeeded
     */
    public fun runLocked(body: Runnable): Unit = withLock(body::run)

    /** [runLocked], for a body that returns a value or throws checked exceptions. */
    @Throws(Exception::class)
    public fun <T> callLocked(body: Callable<T>): T = withLock(body::call)

    /** [runLocked] for Kotlin. It shadows `kotlin.concurrent.withLock`, which masks the exception of [action]. */
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

    /** [unlock] after a block. If the block threw `failure`, adds the exception of the unlock to it as suppressed. */
    @PublishedApi
    internal fun unlockAfter(failure: Throwable?) {
        try {
            unlock()
        } catch (error: RuntimeException) {
            if (failure == null) throw error
            failure.addSuppressed(error)
        }
    }

    /** Whether this thread holds the lock now. Sends nothing. */
    public val isHeldByCurrentThread: Boolean get() = mayHold && handle.call { it.ownedBy(identity.get()) }

    /** The fencing token of this thread; null when it does not hold the lock. Sends nothing. */
    public fun token(): Long? = if (mayHold) handle.call { it.tokenOf(identity.get()) } else null

    /** Always throws: a distributed lock has no conditions. */
    override fun newCondition(): Condition = throw UnsupportedOperationException("a distributed lock has no conditions")

    override fun toString(): String = "JavaLock(${lock.name})"

    private companion object {
        const val NANOS_PER_MILLI = 1e6
        const val TEN_YEARS_NANOS = 10 * 365 * 86_400_000_000_000

        /** Collected after its thread has ended; the locks of that thread are then no longer renewed. */
        val identity: ThreadLocal<Identity> = ThreadLocal.withInitial(::Identity)

        /** `Thread.isVirtual`, which exists since Java 21. */
        val isVirtual: (Thread) -> Boolean = try {
            val method = Thread::class.java.getMethod("isVirtual");
            { thread -> method.invoke(thread) as Boolean }
        } catch (_: NoSuchMethodException) {
            { false }
        }
    }
}
