// A held lock.

package dev.redlock

import dev.redlock.internal.Outcome
import dev.redlock.internal.notHeld
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import java.util.concurrent.CompletableFuture
import kotlin.math.abs
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.toKotlinDuration
import dev.redlock.internal.Lease as NativeLease
import java.time.Duration as JavaDuration

/**
 * A held lock, or the permit of a semaphore: the result of an acquire. Any thread or coroutine may release it. A lease
 * that is never released stays held: a renewed one is renewed until it is collected, and then ends with its ttl.
 *
 * ```kotlin
 * client.lock("import").withLock { lease ->
 *     for (batch in 1..2) {
 *         lease.check() // throws LockLost once the lock is lost
 *         println("importing batch $batch under ${lease.token}")
 *     }
 * }
 * ```
 */
public class Lease internal constructor(outcome: Outcome.Leased, private val lock: LockHandle? = null) : AutoCloseable {
    /** The native lease, or the [End] once the lease is over and the native lease is freed. */
    @Volatile
    private var state: Any = outcome.lease

    /** The lock's name, without the client's prefix. */
    public val name: String = outcome.name

    /** The explicit owner, or `uuid:tenure`. */
    public val owner: String = outcome.owner

    /**
     * The fencing token, a number of µs, larger than the token of every earlier holder. A resource that refuses a
     * smaller token than the largest it has seen, on every access, is safe from a holder that was paused past its
     * deadline. Only [downgrade] and [tryUpgrade] change the token.
     */
    public val token: Long get() = ask({ it.token() }, { it.token })

    /** The slots of a [Semaphore] that this lease holds, numbered from 0; empty for a lock. */
    public val slots: List<Int> = outcome.slots

    /** The fencing tokens of [slots], in the same order; empty for a lock. */
    public val tokens: List<Long> = outcome.tokens

    /** Lazy, because most leases never need it. */
    private val loss by lazy {
        val loss = CompletableDeferred<LostReason>()
        ask({ loss.endsWith(it) }, { loss.cancel(null) })
        loss
    }

    /**
     * Completes with the reason when the lock is lost. Is cancelled when the lease is released or detached.
     *
     * ```kotlin
     * val lease = client.lock("report").acquire()
     * lease.lost.invokeOnCompletion { if (it == null) println("lost: ${lease.lostReason}") }
     * lease.release()
     * ```
     */
    public val lost: Deferred<LostReason> get() = loss

    /** Whether the lock is held now. Reads a clock and sends nothing. Once false it stays false. */
    public val held: Boolean get() = ask({ it.held() }, { false })

    /** Why the lock was lost; null while it is held and after a release. */
    public val lostReason: LostReason? get() = ask({ it.lostReason() }, { null })?.let(LostReason::of)

    /** The time until the deadline, unless the lease is renewed; zero once it is over. */
    public fun remaining(): Duration = ask({ it.remaining() }, { 0.0 }).milliseconds

    /** [remaining] in milliseconds, for Java. */
    public fun remainingMillis(): Long = remaining().inWholeMilliseconds

    /**
     * Fails unless the lock is held. Reads a clock and sends nothing.
     *
     * @throws LockLost after a loss
     * @throws NotHeld after a release or [detach]
     */
    public fun check(): Unit = native { ask({ it.check() }, { refuse(it) }) }

    /**
     * Moves the deadline to [ttl] from now, but never to an earlier time. A renewed lease stays renewed.
     *
     * ```kotlin
     * val lease = client.lock("import", ttl = 10.seconds).acquire()
     * lease.extend(60.seconds) // it ends 60 s from now
     * ```
     *
     * @param ttl from 50 ms to 10 years, on a quorum at most the client's `maxTtl`
     * @throws LockLost after a loss
     * @throws Unavailable when too few nodes answer; the deadline is unchanged
     * @throws NotHeld after a release or [detach]
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws InvalidArgument when [ttl] is out of its range
     */
    public suspend fun extend(ttl: Duration) {
        Calls.call { extend(ttl.millis) }
    }

    /** [extend], blocking. */
    public fun extendBlocking(ttl: JavaDuration) {
        Calls.block { extend(ttl.toKotlinDuration().millis) }
    }

    /** [extend], as a future. */
    public fun extendAsync(ttl: JavaDuration): CompletableFuture<Void?> =
        Calls.future({ extend(ttl.toKotlinDuration().millis) }) {
            it.orThrow { error -> error }
            null
        }

    private fun extend(millis: Double): Long = ask({ it.extend(millis) }, { refuse(it, millis) })

    /**
     * Turns the writer of a [ReadWriteLock] into a reader; no other writer gets in between. Waiting readers get the
     * lock, and this lease gets a reader's token. Does nothing for a reader.
     *
     * @throws LockLost after a loss
     * @throws NotHeld after a release or [detach]
     * @throws Unavailable when too few nodes answer. This lease is a reader then, but others may be kept out until it
     *   is called again
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws InvalidArgument when the lease is not of a [ReadWriteLock]
     */
    public suspend fun downgrade() {
        Calls.call { start { it.downgrade() } }
    }

    /** [downgrade], blocking. */
    public fun downgradeBlocking() {
        Calls.block { start { it.downgrade() } }
    }

    /**
     * Turns a reader of a [ReadWriteLock] into the writer, with a new token, if there is no other reader. Returns
     * whether it is the writer now. Never waits. Fails as [downgrade] does.
     */
    public suspend fun tryUpgrade(): Boolean = Calls.call { start { it.tryUpgrade() } }.flag()

    /** [tryUpgrade], blocking. */
    public fun tryUpgradeBlocking(): Boolean = Calls.block { start { it.tryUpgrade() } }.flag()

    /**
     * Ends this lease. The last lease of an owner frees the lock. Returns once a quorum confirmed the release, or after
     * the client's `replyTimeout` (default: 2 s). If it is not confirmed by then, or if the caller is cancelled, the
     * release continues in the background. A second call returns the same outcome. Does not fail for a lost lock.
     *
     * @throws NotHeld after [detach]
     */
    public suspend fun release(): ReleaseOutcome =
        ask({ native -> Calls.call { native.release() }.released().also { freeIfOver() } }, { releaseAgain(it) })

    /** [release], blocking. */
    public fun releaseBlocking(): ReleaseOutcome =
        ask({ native -> Calls.block { native.release() }.released().also { freeIfOver() } }, { releaseAgain(it) })

    /** [release], as a future. The release continues if the future is cancelled. */
    public fun releaseAsync(): CompletableFuture<ReleaseOutcome> = ask(
        { native ->
            Calls.future({ native.release() }) { outcome ->
                outcome.orThrow { it }.released().also { freeIfOver() }
            }
        },
        { end ->
            try {
                CompletableFuture.completedFuture(releaseAgain(end))
            } catch (error: NotHeld) {
                CompletableFuture.failedFuture(error)
            }
        },
    )

    private fun releaseAgain(end: End): ReleaseOutcome {
        if (end.isDetached) native { refuse(end) }
        return ReleaseOutcome.RELEASED
    }

    /**
     * Releases the lock at the end of a `use` or try-with-resources block, and blocks the thread meanwhile. Does
     * nothing if the lease was detached inside the block, or released while it was held. Coroutines use `withLock`.
     *
     * @throws LockLost when the lock was lost; if the block failed, this is among the suppressed exceptions of its own
     */
    override fun close() {
        ask({ native -> Calls.block { native.leave() }.also { freeIfOver() } }, { })
    }

    /**
     * Ends this lease without releasing the lock, and stops renewing it. Returns a text with which
     * `client.attach(text)` takes the lock over once, in this or another process, before the ttl ends. The text is a
     * secret: whoever has it can attach the lock.
     *
     * @throws LockLost after a loss
     * @throws NotHeld after a release or another `detach`
     * @throws InvalidArgument while the same owner has other leases of this lock
     */
    public fun detach(): String {
        val text = native { ask({ it.detach() }, { end -> refuse(end).toString() }) }
        freeIfOver()
        return text
    }

    override fun toString(): String = "Lease($name, token=$token)"

    /** Releases a lease that has no user, without waiting for the release. */
    internal fun discard() {
        val native = state as? NativeLease ?: return
        Calls.detached { native.release() }
        free(native, End(native.token(), isDetached = false))
    }

    /** Calls `native` with the native lease, or `over` if the lease is over and the native lease is freed. */
    private inline fun <T> ask(native: (NativeLease) -> T, over: (End) -> T): T {
        val asked = state as? NativeLease ?: return over(state as End)
        return try {
            native(asked)
        } catch (failure: IllegalStateException) {
            // Another thread freed the native lease before the call started.
            over((state as? End)?.takeIf { failure.isOfFreed } ?: throw failure)
        }
    }

    /** Starts a call that needs a held lease. Fails like the native lease if that is freed. */
    private inline fun start(call: (NativeLease) -> Long): Long = ask(call) { refuse(it) }

    /** Frees the native lease once its state cannot change any more: after a confirmed release or [detach]. */
    private fun freeIfOver() {
        val native = state as? NativeLease ?: return
        val over = try {
            native.over()
        } catch (failure: IllegalStateException) {
            if (state is End) return else throw failure
        }
        if (over != 0L) free(native, End(abs(over), isDetached = over < 0))
    }

    private fun free(native: NativeLease, end: End) {
        state = end
        native.destroy()
        lock?.free()
    }

    /** Fails with the error that the native lease would return. */
    private fun refuse(end: End, ttl: Double? = null) = notHeld(name, end.isDetached, ttl)

    /** Runs `block`, cancels it if the lock is lost, and releases. */
    internal suspend fun <T> guard(block: suspend CoroutineScope.(Lease) -> T): T {
        var lost: LockError? = null
        var body: Result<T>? = null
        val cancelled = runCatching {
            coroutineScope {
                // Unconfined, so that the body is cancelled even if it blocks all threads of its dispatcher.
                val watch = launch(Dispatchers.Unconfined) {
                    loss.await()
                    try {
                        check()
                    } catch (error: LockError) {
                        lost = error
                        throw error
                    }
                }
                // Stored, not thrown: if the loss came first, this scope would add the exception to the loss.
                body = runCatching { coroutineScope { block(this@Lease) } }
                watch.cancel(null)
            }
        }.exceptionOrNull()
        val end = body?.exceptionOrNull()
        val failure = end.takeUnless { it is CancellationException } ?: lost ?: cancelled ?: end
        withContext(NonCancellable) {
            try {
                leave()
            } catch (error: Throwable) {
                if (failure == null) throw error
                if (lost == null || error !is LockError) failure.addSuppressed(error)
            }
        }
        if (failure == null) return checkNotNull(body).getOrThrow()
        val loss = lost ?: throw failure
        if (failure !== loss) failure.addSuppressed(loss)
        throw if (failure === loss) loss.seenFromHere() else failure
    }

    private suspend fun leave() {
        ask({ native -> Calls.call { native.leave() }.also { freeIfOver() } }, { })
    }

    /** The state of a lease that was released or detached. */
    private class End(val token: Long, val isDetached: Boolean)
}

/** Completes this when `lease` ends. Does not keep a reference to `lease`, so that a leaked lease can be collected. */
private fun CompletableDeferred<LostReason>.endsWith(lease: NativeLease) = also { loss ->
    Calls.await(
        native { lease.lost() },
        object : Calls.Waiter {
            override fun end(outcome: Outcome) {
                when (val reason = (outcome as? Outcome.Lost)?.reason) {
                    null -> loss.cancel(null)
                    else -> loss.complete(LostReason.of(reason))
                }
            }

            override fun fail(failure: Throwable) {
                loss.completeExceptionally(failure)
            }
        },
    )
}

internal fun Outcome.released() = ReleaseOutcome.of((this as Outcome.Released).outcome)
