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
 * A held lock: what an acquire returns. Any thread or coroutine may release it. Not closing it does not release it: a
 * renewed lease is then renewed until it is collected, and dies with its ttl.
 */
public class Lease internal constructor(outcome: Outcome.Leased, private val lock: LockHandle? = null) : AutoCloseable {
    /** The native lease; once the lease is over, its [End]. */
    @Volatile
    private var state: Any = outcome.lease

    /** The lock's name, without the client's prefix. */
    public val name: String = outcome.name

    /** The explicit owner, or `uuid:tenure`. */
    public val owner: String = outcome.owner

    /**
     * The fencing token, in µs: larger than that of every earlier holder. A resource that remembers the largest it has
     * seen, and refuses smaller ones on every access, is safe from holders that were stopped and came back. Changes when
     * [downgrade] or [tryUpgrade] does, and only then.
     */
    public val token: Long get() = ask({ it.token() }, { it.token })

    /** The slots that it has of a [Semaphore], from 0; empty for a lock. */
    public val slots: List<Int> = outcome.slots

    /** The fencing tokens of its [slots], in their order; empty for a lock. */
    public val tokens: List<Long> = outcome.tokens

    /** Made when it is asked for: most never are. */
    private val loss by lazy {
        val loss = CompletableDeferred<LostReason>()
        ask({ loss.endsWith(it) }, { loss.cancel(null) })
        loss
    }

    /** Completes with the reason when the lock is lost; is cancelled when the lease is released or detached instead. */
    public val lost: Deferred<LostReason> get() = loss

    /** Whether the lock is held, right now; reads a clock and asks nobody. Once false it stays false. */
    public val held: Boolean get() = ask({ it.held() }, { false })

    /** Why it was lost; null while it is held and after a release. */
    public val lostReason: LostReason? get() = ask({ it.lostReason() }, { null })?.let(LostReason::of)

    /** How long it is held unless it is renewed; zero once it is not. */
    public fun remaining(): Duration = ask({ it.remaining() }, { 0.0 }).milliseconds

    /** [remaining] in milliseconds, for Java. */
    public fun remainingMillis(): Long = remaining().inWholeMilliseconds

    /**
     * Fails unless the lock is held.
     *
     * @throws LockLost after a loss
     * @throws NotHeld after a release or [detach]
     */
    public fun check(): Unit = native { ask({ it.check() }, { refuse(it) }) }

    /**
     * Lets the lock end [ttl] from now, at least 50 ms, and never earlier than it would have. A renewed lease is renewed
     * on.
     *
     * @throws LockLost after a loss
     * @throws Unavailable while too few nodes answer; nothing changed
     * @throws NotHeld after a release or [detach]
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
     * Makes a reader of a writer of a [ReadWriteLock], without anybody else writing in between: readers that wait come in,
     * and the token becomes a reader's. Does nothing for one that reads.
     *
     * @throws LockLost after a loss
     * @throws Unavailable while too few nodes answer: it reads then, and others may be kept out until this is called again
     * @throws InvalidArgument for a lease of another lock
     */
    public suspend fun downgrade() {
        Calls.call { ask({ it.downgrade() }, { refuse(it) }) }
    }

    /** [downgrade], blocking. */
    public fun downgradeBlocking() {
        Calls.block { ask({ it.downgrade() }, { refuse(it) }) }
    }

    /**
     * Makes a writer of a reader of a [ReadWriteLock] if nobody else reads; says whether it is one now, with a new token.
     * Never waits. Fails as [downgrade] does.
     */
    public suspend fun tryUpgrade(): Boolean = Calls.call { ask({ it.tryUpgrade() }, { refuse(it) }) }.flag()

    /** [tryUpgrade], blocking. */
    public fun tryUpgradeBlocking(): Boolean = Calls.block { ask({ it.tryUpgrade() }, { refuse(it) }) }.flag()

    /**
     * Ends this lease; the last lease of its owner frees the lock. Returns once a quorum confirmed, after the reply
     * time-out at the latest, and goes on in the background then, as it does when the caller is cancelled. Says how it
     * ended, and the same when it is called again; does not fail for a lost lock.
     *
     * @throws NotHeld after [detach]
     */
    public suspend fun release(): ReleaseOutcome =
        ask({ native -> Calls.call { native.release() }.released().also { freeIfOver() } }, { releaseAgain(it) })

    /** [release], blocking. */
    public fun releaseBlocking(): ReleaseOutcome =
        ask({ native -> Calls.block { native.release() }.released().also { freeIfOver() } }, { releaseAgain(it) })

    /** [release], as a future. The release goes on if the future is cancelled. */
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
     * Releases the lock at the end of a `use` or try-with-resources block, blocking the thread; does nothing when it was
     * released or detached inside. Coroutines use `withLock`.
     *
     * @throws LockLost when the lock was lost; suppressed by the block's own exception, if there is one
     */
    override fun close() {
        ask({ native -> Calls.block { native.leave() }.also { freeIfOver() } }, { })
    }

    /**
     * Stops renewing and lets go of the lock without a release. Returns a bearer secret: `client.attach(text)` takes the
     * lock over, in this or another process, once.
     *
     * @throws LockLost after a loss
     * @throws InvalidArgument while other leases of the same owner are nested in it
     */
    public fun detach(): String {
        val text = native { ask({ it.detach() }, { end -> refuse(end).toString() }) }
        freeIfOver()
        return text
    }

    override fun toString(): String = "Lease($name, token=$token)"

    /** Releases what nobody wants any more, without waiting for it. */
    internal fun discard() {
        val native = state as? NativeLease ?: return
        Calls.detached { native.release() }
        free(native, End(native.token(), isDetached = false))
    }

    /** Asks the native lease, or answers for it if the lease is over. */
    private inline fun <T> ask(native: (NativeLease) -> T, over: (End) -> T): T {
        val asked = state as? NativeLease ?: return over(state as End)
        return try {
            native(asked)
        } catch (failure: IllegalStateException) {
            // Another thread freed it before the call began.
            over((state as? End)?.takeIf { failure.isOfFreed } ?: throw failure)
        }
    }

    /** Frees the native lease once nothing about this lease can change: after a confirmed release, and after [detach]. */
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

    /** Fails as the native lease would. */
    private fun refuse(end: End, ttl: Double? = null) = notHeld(name, end.isDetached, ttl)

    /** Runs `block` as long as the lock is held, and releases. */
    internal suspend fun <T> guard(block: suspend CoroutineScope.(Lease) -> T): T {
        var lost: LockError? = null
        var body: Result<T>? = null
        val cancelled = runCatching {
            coroutineScope {
                // Unconfined: a body that keeps its dispatcher's threads busy is cancelled all the same.
                val watch = launch(Dispatchers.Unconfined) {
                    loss.await()
                    try {
                        check()
                    } catch (error: LockError) {
                        lost = error
                        throw error
                    }
                }
                // Kept, not thrown: this scope would add it to the loss, which came first.
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

    /** What is left of a lease that is over, and was not lost. */
    private class End(val token: Long, val isDetached: Boolean)
}

/** Refers to the native lease no longer than it takes to begin: a lease that is forgotten can be collected. */
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
