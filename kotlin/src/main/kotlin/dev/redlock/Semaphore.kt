// A semaphore by name, for coroutines and for threads.

package dev.redlock

import kotlinx.coroutines.CoroutineScope
import java.util.concurrent.CompletableFuture
import kotlin.contracts.ExperimentalContracts
import kotlin.contracts.InvocationKind
import kotlin.contracts.contract
import kotlin.time.Duration
import java.time.Duration as JavaDuration

/**
 * A semaphore by name: at most [permits] slots of it are held at once, everywhere. A permit is a [Lease], with
 * [Lease.slots] and [Lease.tokens].
 *
 * Slots are numbered from 0. No other permit has the slots of a held permit. Waiters get slots in the order in which
 * they called. A waiter for several slots gets them all at once and is not overtaken. On a quorum that holds for
 * the waiters of one client only.
 *
 * ```kotlin
 * val gpu = client.semaphore("gpu", permits = 4)
 *
 * gpu.withPermit { permit -> run(permit.slots[0], permit.tokens[0]) } // one slot
 *
 * gpu.withPermits(2) { permit -> println("slots ${permit.slots}") } // two slots at once
 * ```
 *
 * In Java:
 *
 * ```java
 * try (Lease permit = client.semaphore("gpu", 4).acquireBlocking()) {
 *     run(permit.getSlots().get(0), permit.getTokens().get(0));
 * }
 * ```
 *
 * @property name the name, without the client's prefix
 * @property permits the number of slots
 */
public class Semaphore internal constructor(
    public val name: String,
    public val permits: Int,
    private val make: (Int) -> Lock,
) {
    private val one = make(1)

    internal fun taking(n: Int): Lock = if (n == 1) one else make(n)

    /**
     * Acquires [n] slots at once. A cancelled acquire leaves nothing behind.
     *
     * @param n from 1 to [permits]; default: 1
     * @param wait the longest time to wait; zero: one try; null, the default: the semaphore's own `wait`;
     *   [Duration.INFINITE]: for ever
     * @throws LockTimeout when too few slots become free in that time
     * @throws Unavailable when the server did not answer for the client's `patience`
     * @throws KeyConflict when the key holds something that is not a semaphore
     * @throws InvalidArgument unless [n] is from 1 to [permits], and when [wait] is negative or longer than 10 years
     * @throws Closed after the client was closed
     */
    public suspend fun acquire(n: Int = 1, wait: Duration? = null): Lease = taking(n).acquire(wait)

    /**
     * Acquires [n] slots, one by default, if so many are free and there are no waiters; else null. Fails as [acquire]
     * does, but never with [LockTimeout], and with [Unavailable] at once.
     */
    public suspend fun tryAcquire(n: Int = 1): Lease? = taking(n).tryAcquire()

    /** Acquires one slot, runs [block] and releases, as [Lock.withLock] does. Fails as [acquire] and `withLock` do. */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> withPermit(block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return one.withLock(block)
    }

    /**
     * Acquires [n] slots, from 1 to [permits], runs [block] and releases, as [Lock.withLock] does. Fails as [acquire]
     * and `withLock` do.
     */
    @OptIn(ExperimentalContracts::class)
    public suspend fun <T> withPermits(n: Int, block: suspend CoroutineScope.(Lease) -> T): T {
        contract { callsInPlace(block, InvocationKind.EXACTLY_ONCE) }
        return taking(n).withLock(block)
    }

    /**
     * The number of free slots. There may be waiters for them.
     *
     * @throws Unavailable when the server does not answer
     * @throws KeyConflict when the key holds something that is not a semaphore
     * @throws Closed after the client was closed
     */
    public suspend fun availablePermits(): Int = one.available()

    /**
     * [acquire], blocking, for try-with-resources.
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun acquireBlocking(n: Int = 1): Lease = taking(n).acquireBlocking()

    /**
     * [acquireBlocking]; waits no longer than [wait], where zero is one try.
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @Throws(InterruptedException::class)
    public fun acquireBlocking(n: Int, wait: JavaDuration): Lease = taking(n).acquireBlocking(wait)

    /**
     * [tryAcquire], blocking.
     *
     * @throws InterruptedException when the thread is interrupted while it waits; nothing is left behind
     */
    @JvmOverloads
    @Throws(InterruptedException::class)
    public fun tryAcquireBlocking(n: Int = 1): Lease? = taking(n).tryAcquireBlocking()

    /** [acquire], as a future: see [Lock.acquireAsync]. */
    @JvmOverloads
    public fun acquireAsync(n: Int = 1): CompletableFuture<Lease> = taking(n).acquireAsync()

    /** [acquireAsync]; waits no longer than [wait], where zero is one try. */
    public fun acquireAsync(n: Int, wait: JavaDuration): CompletableFuture<Lease> = taking(n).acquireAsync(wait)

    /** [tryAcquire], as a future, which completes with null when too few slots are free. */
    @JvmOverloads
    public fun tryAcquireAsync(n: Int = 1): CompletableFuture<Lease?> = taking(n).tryAcquireAsync()

    /** [availablePermits], blocking. */
    public fun availablePermitsBlocking(): Int = one.availableBlocking()

    override fun toString(): String = "Semaphore($name, $permits)"
}
