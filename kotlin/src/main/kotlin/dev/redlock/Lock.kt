// A lock by name, for coroutines, and for threads that want a lease. What is thread-owned is in JavaLock.

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
 * other, and a coroutine that takes a lock twice waits for itself.
 *
 * Java has two twins of each suspending function: one that blocks, such as [acquireBlocking], and, of those that Java needs,
 * one that returns a future, such as [acquireAsync].
 *
 * A lock object needs no `close`. It has a native object of about 0.5 KB, which is freed when the first lease ends, so that
 * a lock object that is used once leaves nothing to the garbage collector. Used again, it keeps its native object until it
 * is collected: making that for each acquire would cost more than the acquire's own calls.
 *
 * @property name the name, without the client's prefix
 */
public class Lock internal constructor(
    public val name: String,
    private val options: LockOptions,
    internal val handle: LockHandle,
) {
    /** How long an acquire waits that names no time. */
    internal val waitMillis: Double get() = options.waitMillis

    /**
     * Takes the lock. Waits no longer than [wait], as long as the lock's own `wait` if that is null, and for ever with
     * [Duration.INFINITE]. A cancelled acquire leaves nothing behind.
     *
     * @throws LockTimeout when somebody else holds it to the end
     * @throws Unavailable when too few nodes answered for the client's `patience`
     * @throws KeyConflict when the key holds something that is no lock
     * @throws LockLost when its explicit owner held it and lost it
     * @throws WouldDeadlock when its explicit owner holds it and the lock is not re-entrant
     * @throws Closed after the client was closed
     */
    public suspend fun acquire(wait: Duration? = null): Lease {
        currentCoroutineContext().ensureActive()
        val millis = wait?.millis ?: waitMillis
        return acquired { Calls.call { handle.acquire { it.acquire(millis) } } }
    }

    /** The lease of an acquire. One that fails needs the native lock no longer. */
    private inline fun acquired(acquire: () -> Outcome): Lease = try {
        Lease(acquire().orThrow { it } as Outcome.Leased, handle)
    } catch (failure: Throwable) {
        handle.free()
        throw failure
    }

    /** Takes the lock if it is free, in one round trip: null when somebody holds it. Fails as [acquire] does. */
    public suspend fun tryAcquire(): Lease? = try {
        acquire(Duration.ZERO)
    } catch (_: LockTimeout) {
        null
    }

    /**
     * Takes the lock, runs [block] and releases, even if the caller is cancelled. The block runs in a scope of its own,
     * which is cancelled when the lock is lost; `withLock` then fails with [LockLost], as it does when the loss is
     * noticed by the release after a block that succeeded. An exception of the block is never masked: it is thrown with
     * the [LockLost] among its suppressed ones, also if the block throws it after the loss cancelled it. Only a
     * `CancellationException` of the block gives way to the loss. Fails as [acquire] does.
     *
     * The block is called once, so it may assign a `val`. It cannot return from the function around it: as in
     * `coroutineScope`, it is a coroutine of its own, which a loss can cancel.
     */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> withLock(block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return acquire().guard(block)
    }

    /**
     * Releases the newest lease of this lock object. With an explicit owner that has no lease in this process, ends
     * that owner's tenures wherever they were taken.
     *
     * @throws NotHeld when there is nothing to release
     */
    public suspend fun release(): ReleaseOutcome = Calls.call { handle.call { it.release() } }.released()

    /** Whether this lock object (with an explicit owner: that owner, in this client) holds the lock. Asks nobody. */
    public fun owned(): Boolean = handle.call { it.owned() }

    /**
     * Whether anybody holds the lock.
     *
     * @throws Unavailable when too few nodes answer
     */
    public suspend fun locked(): Boolean = Calls.call { handle.call { it.locked() } }.flag()

    /**
     * Who holds the lock; null when nobody does.
     *
     * @throws Unavailable when too few nodes answer
     */
    public suspend fun inspect(): LockInfo? = Calls.call { handle.call { it.inspect() } }.info()

    /**
     * [acquire], blocking, for try-with-resources. Waiting for a lease of the same thread fails with [WouldDeadlock].
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @Throws(InterruptedException::class)
    public fun acquireBlocking(): Lease = acquireBlocking(waitMillis)

    /** [acquire], blocking, no longer than [wait]. */
    @Throws(InterruptedException::class)
    public fun acquireBlocking(wait: JavaDuration): Lease = acquireBlocking(wait.toKotlinDuration().millis)

    /** [tryAcquire], blocking. */
    @Throws(InterruptedException::class)
    public fun tryAcquireBlocking(): Lease? = try {
        acquireBlocking(0.0)
    } catch (_: LockTimeout) {
        null
    }

    /**
     * [acquire], as a future, for Java. Cancelling it gives the acquire up, and so does any other completion from outside,
     * such as by `orTimeout`: nothing is left behind. What depends on the future runs in its default executor.
     */
    public fun acquireAsync(): CompletableFuture<Lease> = acquireAsync(waitMillis)

    /** [acquireAsync], no longer than [wait]. */
    public fun acquireAsync(wait: JavaDuration): CompletableFuture<Lease> = acquireAsync(wait.toKotlinDuration().millis)

    /** [tryAcquire], as a future: of null when somebody holds the lock. */
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

    /** How many slots of its semaphore are free. */
    internal suspend fun available(): Int = Calls.call { handle.call { it.available() } }.count()

    /** [available], blocking. */
    internal fun availableBlocking(): Int = Calls.block { handle.call { it.available() } }.count()

    /** [release], as a future. The release goes on if the future is cancelled. */
    public fun releaseAsync(): CompletableFuture<ReleaseOutcome> =
        Calls.future({ handle.call { it.release() } }) { it.orThrow { error -> error }.released() }

    /** [release], blocking. */
    public fun releaseBlocking(): ReleaseOutcome = Calls.block { handle.call { it.release() } }.released()

    /** [locked], blocking. */
    public fun lockedBlocking(): Boolean = Calls.block { handle.call { it.locked() } }.flag()

    /** [inspect], blocking. */
    public fun inspectBlocking(): LockInfo? = Calls.block { handle.call { it.inspect() } }.info()

    /** This lock as `java.util.concurrent` knows locks: held by threads. */
    public fun asJavaLock(): JavaLock = JavaLock(this)

    override fun toString(): String = "Lock($name)"
}

internal fun Outcome.flag() = (this as Outcome.Flag).value

private fun Outcome.count() = (this as Outcome.Count).value.toInt()

private fun Outcome.info() = (this as Outcome.Info).holder?.info()
