// A lock by name, for coroutines and for threads that use leases. JavaLock has the lock that is owned by a thread.

package dev.redlock

import dev.redlock.internal.Outcome
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import java.util.concurrent.CompletableFuture
import kotlin.contracts.ExperimentalContracts
import kotlin.contracts.InvocationKind
import kotlin.contracts.contract
import kotlin.time.Duration
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

/**
 * A lock by name. Every acquire is an owner of its own, unless the lock's options name one: two coroutines exclude each
 * other, and a coroutine that acquires a lock twice waits for itself.
 *
 * ```kotlin
 * val report = client.lock("report", wait = 5.seconds)
 *
 * report.withLock { lease -> buildReport(lease.token) }
 *
 * report.tryAcquire()?.release() // one try
 * ```
 *
 * For Java, each suspending function has a blocking variant, such as [acquireBlocking]. Acquires and releases
 * also have a variant that returns a future, such as [acquireAsync].
 *
 * ```java
 * try (Lease lease = client.lock("report").acquireBlocking()) {
 *     buildReport(lease.getToken());
 * }
 * ```
 *
 * A lock object needs no `close`. Its first native object, of about 0.5 KB, is freed when its first lease ends, so that
 * a lock that is used once leaves no native memory to the garbage collector. If the lock is used again, it makes a second
 * native object and keeps that until it is collected: one for each acquire would cost more than the acquire's own calls.
 *
 * @property name the name, without the client's prefix
 */
public class Lock internal constructor(
    public val name: String,
    private val options: LockOptions,
    internal val handle: LockHandle,
    /** The threads' holds, if this is a half of a read/write lock. */
    internal val holds: (() -> Holds)? = null,
) {
    /** The time for which an acquire without a `wait` waits, in milliseconds. */
    internal val waitMillis: Double get() = options.waitMillis

    /**
     * Acquires the lock. A cancelled acquire leaves nothing behind. Limit it by [wait]: if the time of a `withTimeout`
     * around it is over just after the acquire, the lease is lost.
     *
     * @param wait the longest time to wait; zero: one try; null, the default: the lock's own `wait`;
     *   [Duration.INFINITE]: for ever
     * @throws LockTimeout when another owner holds the lock until the time is over
     * @throws Unavailable when too few nodes answered for the client's `patience`
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws LockLost when the explicit owner held the lock and lost it
     * @throws WouldDeadlock when the explicit owner holds the lock and the lock is not re-entrant
     * @throws InvalidArgument when [wait] is negative, or longer than 10 years
     * @throws Closed after the client was closed
     */
    public suspend fun acquire(wait: Duration? = null): Lease {
        currentCoroutineContext().ensureActive()
        val millis = wait?.millis ?: waitMillis
        return acquired { Calls.call { handle.acquire { it.acquire(millis) } } }
    }

    /** Makes the lease of an acquire. If the acquire fails, the native lock is no longer needed. */
    private inline fun acquired(acquire: () -> Outcome): Lease = try {
        Lease(acquire().orThrow { it } as Outcome.Leased, handle)
    } catch (failure: Throwable) {
        handle.free()
        throw failure
    }

    /**
     * Acquires the lock if it is free, in one round trip. Null when it has a holder. Fails as [acquire] does, but never
     * with [LockTimeout], and with [Unavailable] at once.
     */
    public suspend fun tryAcquire(): Lease? = try {
        acquire(Duration.ZERO)
    } catch (_: LockTimeout) {
        null
    }

    /**
     * Acquires the lock, runs [block] and releases, even if the caller is cancelled. Fails as [acquire] does.
     *
     * The block runs in a scope of its own. A loss of the lock cancels that scope, and `withLock` fails with
     * [LockLost]. It also fails with [LockLost] if the block succeeded and only the release detects the loss.
     *
     * An exception of the block is never masked. It is thrown with the [LockLost] among its suppressed exceptions, even
     * if the block throws it after the loss cancelled it. If the block throws a
     * `CancellationException` after a loss, the [LockLost] is thrown in its place.
     *
     * The block is called exactly once, so it may assign a `val`. It cannot return from the enclosing function: like
     * the block of `coroutineScope` it is a coroutine of its own.
     */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> withLock(block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return acquire().guard(block)
    }

    /**
     * Releases the newest lease of this lock object. If the lock has an explicit owner with no lease in this process,
     * this ends that owner's tenures in all processes.
     *
     * @throws NotHeld when there is nothing to release
     * @throws Unavailable when too few nodes answer for a release in all processes
     * @throws Closed after the client was closed
     */
    public suspend fun release(): ReleaseOutcome = Calls.call { handle.call { it.release() } }.released()

    /** Whether this lock object holds the lock; with an explicit owner, whether that owner does. Sends nothing. */
    public fun owned(): Boolean = handle.call { it.owned() }

    /**
     * Whether the lock has a holder.
     *
     * @throws Unavailable when too few nodes answer
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws Closed after the client was closed
     */
    public suspend fun locked(): Boolean = Calls.call { handle.call { it.locked() } }.flag()

    /**
     * The holder of the lock; null when it is free.
     *
     * ```kotlin
     * client.lock("report").inspect()?.let { println("${it.app} ${it.pid} ${it.host} ${it.since}") }
     * ```
     *
     * @throws Unavailable when too few nodes answer
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws Closed after the client was closed
     */
    public suspend fun inspect(): LockInfo? = Calls.call { handle.call { it.inspect() } }.info()

    /**
     * [acquire], blocking, for try-with-resources. Waiting for a lease of the same thread fails with [WouldDeadlock].
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @Throws(InterruptedException::class)
    public fun acquireBlocking(): Lease = acquireBlocking(waitMillis)

    /**
     * [acquire], blocking; waits no longer than [wait], where zero is one try.
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @Throws(InterruptedException::class)
    public fun acquireBlocking(wait: JavaDuration): Lease = acquireBlocking(wait.toKotlinDuration().millis)

    /**
     * [tryAcquire], blocking.
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @Throws(InterruptedException::class)
    public fun tryAcquireBlocking(): Lease? = try {
        acquireBlocking(0.0)
    } catch (_: LockTimeout) {
        null
    }

    /**
     * [acquire], as a future, for Java. To cancel the acquire, cancel the future or complete it in another way, such as
     * by `orTimeout`: nothing is left behind. Dependent stages run in the future's default executor.
     *
     * ```java
     * client.lock("report").acquireAsync()
     *     .thenCompose(lease -> lease.releaseAsync())
     *     .thenAccept(outcome -> System.out.println("the release: " + outcome));
     * ```
     */
    public fun acquireAsync(): CompletableFuture<Lease> = acquireAsync(waitMillis)

    /** [acquireAsync]; waits no longer than [wait], where zero is one try. */
    public fun acquireAsync(wait: JavaDuration): CompletableFuture<Lease> = acquireAsync(wait.toKotlinDuration().millis)

    /** [tryAcquire], as a future, which completes with null when the lock has a holder. */
    public fun tryAcquireAsync(): CompletableFuture<Lease?> = Calls.future({ handle.acquire { it.acquire(0.0) } }) {
        try {
            acquired { it }
        } catch (_: LockTimeout) {
            null
        }
    }

    private fun acquireAsync(millis: Double): CompletableFuture<Lease> =
        Calls.future({ handle.acquire { it.acquire(millis) } }) { acquired { it } }

    private fun acquireBlocking(millis: Double): Lease {
        if (Thread.interrupted()) throw InterruptedException()
        val thread = Thread.currentThread().id
        return acquired { Calls.block(interruptible = true) { handle.acquire { it.acquireBlocking(millis, thread) } } }
    }

    /** How many slots of this lock's semaphore are free. */
    internal suspend fun available(): Int = Calls.call { handle.call { it.available() } }.count()

    /** [available], blocking. */
    internal fun availableBlocking(): Int = Calls.block { handle.call { it.available() } }.count()

    /** [release], as a future. The release continues if the future is cancelled. */
    public fun releaseAsync(): CompletableFuture<ReleaseOutcome> =
        Calls.future({ handle.call { it.release() } }) { it.orThrow { error -> error }.released() }

    /** [release], blocking. */
    public fun releaseBlocking(): ReleaseOutcome = Calls.block { handle.call { it.release() } }.released()

    /** [locked], blocking. */
    public fun lockedBlocking(): Boolean = Calls.block { handle.call { it.locked() } }.flag()

    /** [inspect], blocking. */
    public fun inspectBlocking(): LockInfo? = Calls.block { handle.call { it.inspect() } }.info()

    /** This lock as a `java.util.concurrent.locks.Lock`, owned by threads. */
    public fun asJavaLock(): JavaLock = JavaLock(this)

    override fun toString(): String = "Lock($name)"
}

internal fun Outcome.flag() = (this as Outcome.Flag).value

private fun Outcome.count() = (this as Outcome.Count).value.toInt()

private fun Outcome.info() = (this as Outcome.Info).holder?.info()
