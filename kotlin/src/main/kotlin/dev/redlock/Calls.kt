// Between coroutines and threads on one side and the native library on the other. A call starts and has a number; one
// daemon thread fetches the results of calls and resumes the waiters. So no code of the JVM runs on the library's threads.
// A lease is offered: its waiter takes it when it runs, and if that takes long, others get the lock.
//
// Of kotlinx.coroutines this uses only what is stable in every version: see docs/adr/0040.

package dev.redlock

import dev.redlock.internal.Happening
import dev.redlock.internal.Interrupts
import dev.redlock.internal.Outcome
import dev.redlock.internal.Refusal
import dev.redlock.internal.abandon
import dev.redlock.internal.closeAll
import dev.redlock.internal.endOf
import dev.redlock.internal.fetch
import dev.redlock.internal.heed
import dev.redlock.internal.take
import dev.redlock.internal.wantAllEvents
import dev.redlock.internal.watchEvents
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.suspendCancellableCoroutine
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.ExecutionException
import java.util.concurrent.atomic.AtomicBoolean
import kotlin.concurrent.thread
import kotlin.coroutines.Continuation
import kotlin.coroutines.CoroutineContext
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.intrinsics.startCoroutineUninterceptedOrReturn
import kotlin.coroutines.intrinsics.suspendCoroutineUninterceptedOrReturn
import kotlin.coroutines.jvm.internal.CoroutineStackFrame
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.math.abs

internal object Calls {
    /** By call: its [Waiter], or its [Outcome] if that was fetched first. */
    val waiting = ConcurrentHashMap<Long, Any>()

    private val fetcher: Thread

    /** Waits for the end of a call. Both methods run on the fetching thread or on the caller's, and must not block. */
    interface Waiter {
        fun end(outcome: Outcome)

        /** [end] threw this: the call ends with it. */
        fun fail(failure: Throwable)
    }

    init {
        heed(
            object : Interrupts {
                override fun interrupted() = Thread.interrupted()
            },
        )
        fetcher = thread(name = "redlock", isDaemon = true) { fetchForEver() }
        Events.listen()
        try {
            Runtime.getRuntime().addShutdownHook(Thread(::closeAll, "redlock-exit"))
        } catch (_: IllegalStateException) {
            // The process ends already: what is taken from now on ends with its lease.
        }
    }

    /** Lets the log decide which events are fetched. */
    fun heedLogger(): Unit = wantAllEvents(Log.isVerbose)

    private fun fetchForEver() {
        while (true) {
            try {
                for (ended in fetch()) pass(ended.call, ended.outcome)
            } catch (failure: Throwable) {
                // Results were fetched and then lost; nobody knows whose.
                for ((call, waiter) in waiting) if (waiter is Waiter) fail(call, waiter, failure)
            }
        }
    }

    private fun pass(call: Long, outcome: Outcome) {
        val waiter = waiting.putIfAbsent(call, outcome) ?: return
        waiting.remove(call)
        deliver(call, waiter as Waiter, outcome)
    }

    private fun deliver(call: Long, waiter: Waiter, outcome: Outcome) {
        try {
            waiter.end(outcome)
        } catch (failure: Throwable) {
            fail(call, waiter, failure)
        }
    }

    /** Ends a call whose result could not be delivered. Must not throw: the fetching thread serves everybody. */
    private fun fail(call: Long, waiter: Waiter, failure: Throwable) {
        waiting.remove(call, waiter)
        runCatching { Log.error("a result could not be delivered", failure) }
        // A lease that nobody takes is released.
        runCatching { giveUp(call) }
        runCatching { waiter.fail(failure) }
    }

    private object Events : Waiter {
        fun listen(): Unit = await(watchEvents(), this)

        override fun end(outcome: Outcome) {
            for (event in (outcome as Outcome.Events).events) log(event)
            listen()
        }

        override fun fail(failure: Throwable) = listen()

        private fun log(event: Happening) = if (event.warning) Log.warning(event.line) else Log.debug(event.line)
    }

    /** Has `waiter` wait for the end of a call. */
    fun await(call: Long, waiter: Waiter) {
        val early = waiting.putIfAbsent(call, waiter) ?: return
        waiting.remove(call)
        deliver(call, waiter, early as Outcome)
    }

    /** Gives a call up. Does nothing if its result was taken; a release that began goes on. */
    private fun giveUp(call: Long) {
        // Otherwise its result was fetched, and is on its way to the waiter.
        if (abandon(call)) waiting.remove(call)
    }

    /**
     * Starts a call. It has ended if it needed no waiting; otherwise it has a number. A lease that is taken too late is none:
     * then the call goes on.
     */
    private inline fun <T> begin(start: () -> Long, ended: (Outcome) -> T, pending: (Long) -> T): T {
        val started = native(start)
        val outcome = if (started < 0) endOf(started) else null
        return if (outcome != null) ended(outcome) else pending(abs(started))
    }

    /** Runs a call without waiting for its end, such as a release, which goes on. */
    fun detached(start: () -> Long): Unit = begin(start, { it.free() }, { await(it, Nobody) })

    /** Drops the result. Without a waiter, a result would stay in [waiting] for ever. */
    private object Nobody : Waiter {
        override fun end(outcome: Outcome) = outcome.free()

        override fun fail(failure: Throwable) = Unit
    }

    /** The end of a call, for a coroutine. A cancelled one leaves nothing behind; what it releases is released. */
    suspend fun call(start: () -> Long): Outcome = end(start) { suspended(it) }.orThrow { it.seenFromHere() }

    private suspend fun suspended(call: Long): Outcome = suspendCoroutineUninterceptedOrReturn { caller ->
        val once = Once(caller)
        val wait: suspend () -> Outcome = {
            suspendCancellableCoroutine { continuation ->
                var fetched: Outcome? = null
                await(
                    call,
                    object : Waiter {
                        override fun end(outcome: Outcome) {
                            fetched = outcome
                            continuation.resume(outcome)
                            if (continuation.isCancelled) outcome.free()
                        }

                        // Its dispatcher does not run it.
                        override fun fail(failure: Throwable) = Dispatchers.Default.dispatch(
                            EmptyCoroutineContext,
                            Runnable { once.resumeWithException(failure) },
                        )
                    },
                )
                // Also called for a coroutine that is cancelled after it was resumed, and before it ran.
                continuation.invokeOnCancellation {
                    giveUp(call)
                    fetched?.free()
                }
            }
        }
        wait.startCoroutineUninterceptedOrReturn(once)
    }

    /** Resumes `caller` with the first result, and ignores others. */
    private class Once<T>(private val caller: Continuation<T>) : Continuation<T> {
        private val resumed = AtomicBoolean()

        override val context: CoroutineContext get() = caller.context

        override fun resumeWith(result: Result<T>) {
            if (resumed.compareAndSet(false, true)) caller.resumeWith(result)
        }
    }

    /** The end of a call, for a thread, platform or virtual. Interrupts wait unless `interruptible`. */
    fun block(interruptible: Boolean = false, start: () -> Long): Outcome {
        check(Thread.currentThread() !== fetcher) {
            "blocks the thread that would end it: an unconfined coroutine must not call what blocks"
        }
        var interrupted = false
        try {
            return end(start) { call ->
                val end = CompletableFuture<Outcome>()
                await(
                    call,
                    object : Waiter {
                        override fun end(outcome: Outcome) {
                            end.complete(outcome)
                        }

                        override fun fail(failure: Throwable) {
                            end.completeExceptionally(failure)
                        }
                    },
                )
                var outcome: Outcome? = null
                while (outcome == null) {
                    try {
                        outcome = end.get()
                    } catch (interrupt: InterruptedException) {
                        if (interruptible) {
                            giveUp(call)
                            throw interrupt
                        }
                        interrupted = true
                    } catch (failed: ExecutionException) {
                        throw failed.cause ?: failed
                    }
                }
                outcome
            }.orThrow { it }
        } finally {
            if (interrupted) Thread.currentThread().interrupt()
        }
    }

    /**
     * The end of a call, as a future of `value`. Whoever completes the future first, by a cancellation or a time-out, gives
     * the call up.
     */
    fun <T> future(start: () -> Long, value: (Outcome) -> T): CompletableFuture<T> = try {
        begin(
            start,
            { outcome -> CompletableFuture.completedFuture(value(outcome)) },
            { call ->
                CallFuture(call, value).also { future ->
                    await(call, future)
                    future.whenComplete { _, _ -> if (!future.isSettled) giveUp(call) }
                }
            },
        )
    } catch (error: LockError) {
        CompletableFuture.failedFuture(error)
    }

    private class CallFuture<T>(private val call: Long, private val value: (Outcome) -> T) :
        CompletableFuture<T>(),
        Waiter {
        /** Whether the call ended before anybody else completed the future. */
        @Volatile
        var isSettled = false
            private set

        /** What depends on the future may block: it runs in the executor of all futures, not on the fetching thread. */
        override fun end(outcome: Outcome) = defaultExecutor().execute {
            if (isDone) return@execute
            if (isTaken(call, outcome)) settle(outcome) else await(call, this)
        }

        override fun fail(failure: Throwable) {
            completeExceptionally(failure)
        }

        private fun settle(outcome: Outcome) {
            isSettled = true
            try {
                val result = value(outcome)
                // Given up in this moment.
                if (!complete(result) && result is Lease) result.discard()
            } catch (failure: Throwable) {
                completeExceptionally(failure)
            }
        }
    }

    /** The end of a call. */
    private inline fun end(start: () -> Long, await: (Long) -> Outcome): Outcome = begin(start, { it }) { call ->
        var outcome = await(call)
        while (!isTaken(call, outcome)) outcome = await(call)
        outcome
    }

    /** Takes what a call resulted in. False for a lease that its waiter takes too late: the call goes on. */
    private fun isTaken(call: Long, outcome: Outcome): Boolean {
        val isTaken = outcome !is Outcome.Leased || take(call)
        if (!isTaken) outcome.free()
        return isTaken
    }
}

/** This outcome, unless the call failed. */
internal inline fun Outcome.orThrow(seen: (LockError) -> LockError): Outcome =
    if (this is Outcome.Failed) throw seen(failure.exception()) else this

/** A call of the native library, with its errors as ours. */
internal inline fun <T> native(call: () -> T): T = try {
    call()
} catch (refusal: Refusal) {
    throw when (refusal) {
        is Refusal.Failed -> refusal.failure.exception()
        is Refusal.Interrupted -> InterruptedException()
    }
}

/**
 * This error with the stack of the coroutine that gets it. Its own begins at the resumption and names none of the
 * callers, who wait further up as continuations.
 */
internal suspend fun <T : Throwable> T.seenFromHere(): T = suspendCoroutineUninterceptedOrReturn { here ->
    val frames = generateSequence(here as? CoroutineStackFrame) { it.callerFrame }
    val callers = frames.mapNotNull { it.getStackTraceElement() }.toList()
    if (callers.isNotEmpty()) stackTrace = callers.toTypedArray()
    this
}
