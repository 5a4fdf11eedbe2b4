// Runs calls of the native library for coroutines, threads and futures. A call returns a number when it starts. One
// daemon thread fetches the results of all calls and resumes their waiters, so no code of the JVM runs on the library's
// threads. A lease is an uncollected grant until its waiter runs and takes it. If that takes too long, the grant is
// given back and the call continues.
//
// This uses only those parts of kotlinx.coroutines that are stable in every version: see docs/adr/0040.

package dev.redlock

import dev.redlock.internal.Happening
import dev.redlock.internal.Outcome
import dev.redlock.internal.Refusal
import dev.redlock.internal.abandon
import dev.redlock.internal.closeAll
import dev.redlock.internal.endOf
import dev.redlock.internal.fetch
import dev.redlock.internal.take
import dev.redlock.internal.wantAllEvents
import dev.redlock.internal.watchEvents
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.suspendCancellableCoroutine
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.ExecutionException
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.locks.LockSupport
import kotlin.coroutines.Continuation
import kotlin.coroutines.ContinuationInterceptor
import kotlin.coroutines.CoroutineContext
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.intrinsics.startCoroutineUninterceptedOrReturn
import kotlin.coroutines.intrinsics.suspendCoroutineUninterceptedOrReturn
import kotlin.coroutines.jvm.internal.CoroutineStackFrame
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.math.abs

internal object Calls {
    /** For each pending call its [Waiter], or its `Outcome` if that was fetched before the waiter was added. */
    val waiting = ConcurrentHashMap<Long, Any>()

    private val fetcher: Thread

    /** Whether all clients are closed because the process is ending. */
    @Volatile
    private var isExiting = false

    /** Receives the result of a call. Both methods run on the fetching thread or the caller's, and must not block. */
    interface Waiter {
        fun end(outcome: Outcome)

        /** Ends the call with `failure`, which [end] threw. */
        fun fail(failure: Throwable)
    }

    init {
        fetcher = ownThread("redlock", ::fetchForEver)
        fetcher.isDaemon = true
        fetcher.start()
        Events.listen()
        try {
            Runtime.getRuntime().addShutdownHook(ownThread("redlock-exit", ::closeAll))
        } catch (_: IllegalStateException) {
            // The process is ending already: locks acquired from now on end with their ttl.
        }
    }

    /** A thread that keeps nothing of the caller's, whose request or web application may end before the JVM does. */
    private fun ownThread(name: String, body: () -> Unit): Thread {
        val (defaultStackSize, inheritThreadLocals) = 0L to false
        val thread = Thread(null, body, name, defaultStackSize, inheritThreadLocals)
        thread.contextClassLoader = Calls::class.java.classLoader
        return thread
    }

    /** Fetches events below the level of a warning only if the logger logs them. */
    fun heedLogger(): Unit = wantAllEvents(Log.isVerbose)

    private fun fetchForEver() {
        while (true) {
            try {
                if (isExiting) awaitCall()
                val results = fetch()
                if (results.isEmpty()) isExiting = true
                for (ended in results) pass(ended.call, ended.outcome)
            } catch (failure: Throwable) {
                // Some results were fetched and lost. It is unknown which calls they belong to, so all calls fail.
                for ((call, waiter) in waiting) if (waiter is Waiter) fail(call, waiter, failure)
            }
        }
    }

    /**
     * Blocks until a call is pending, besides the one for events. The JVM ends at once while a thread waits here, but waits
     * 0.3 s for a daemon thread in native code. Other shutdown hooks may still make calls.
     */
    private fun awaitCall() {
        while (waiting.values.all { it === Events }) LockSupport.park(this)
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

    /** Ends a call whose result could not be delivered. Must not throw: it would end the only fetching thread. */
    private fun fail(call: Long, waiter: Waiter, failure: Throwable) {
        waiting.remove(call, waiter)
        runCatching { Log.error("a result could not be delivered", failure) }
        // Releases the lease in the result, if there is one.
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

    /** Registers the waiter of a call. If the result was fetched already, `waiter` gets it at once. */
    fun await(call: Long, waiter: Waiter) {
        val early = waiting.putIfAbsent(call, waiter)
        if (early == null) {
            if (isExiting) LockSupport.unpark(fetcher)
            return
        }
        waiting.remove(call)
        deliver(call, waiter, early as Outcome)
    }

    /** Cancels a call. Does nothing if its result was taken. A release that has started continues. */
    private fun giveUp(call: Long) {
        // False means that the result was fetched: the waiter gets it, and removes itself then.
        if (abandon(call)) waiting.remove(call)
    }

    /**
     * Starts a call. Passes its result to `ended` if it ended at once, or its number to `pending`. If the grant of a
     * lease was given back before it could be taken, the call is pending, too.
     */
    private inline fun <T> begin(start: () -> Long, ended: (Outcome) -> T, pending: (Long) -> T): T {
        val started = native(start)
        val outcome = if (started < 0) endOf(started) else null
        return if (outcome != null) ended(outcome) else pending(abs(started))
    }

    /** Starts a call, such as a release, and does not wait for its result. */
    fun detached(start: () -> Long): Unit = begin(start, { it.free() }, { await(it, Nobody) })

    /** Drops the result. Without a waiter, the result would stay in [waiting] for ever. */
    private object Nobody : Waiter {
        override fun end(outcome: Outcome) = outcome.free()

        override fun fail(failure: Throwable) = Unit
    }

    /** Runs a call and suspends until its result. Cancelling the coroutine cancels the call; a release continues. */
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

                        // The coroutine's own dispatcher failed to run it, so another one does.
                        override fun fail(failure: Throwable) = Dispatchers.Default.dispatch(
                            EmptyCoroutineContext,
                            Runnable { once.resumeWithException(failure) },
                        )
                    },
                )
                // Also called if the coroutine is cancelled after it was resumed but before it runs.
                continuation.invokeOnCancellation {
                    giveUp(call)
                    fetched?.free()
                }
            }
        }
        wait.startCoroutineUninterceptedOrReturn(once)
    }

    /** Resumes `caller` with the first result and ignores later ones. */
    private class Once<T>(private val caller: Continuation<T>) : Continuation<T> {
        private val resumed = AtomicBoolean()

        // A caller without a dispatcher, such as `suspend fun main`, would run on in the thread `redlock`, and fail
        // when it blocks, as `Redlock.close` does.
        override val context: CoroutineContext =
            caller.context.let { if (it[ContinuationInterceptor] == null) it + Dispatchers.Default else it }

        override fun resumeWith(result: Result<T>) {
            if (resumed.compareAndSet(false, true)) caller.resumeWith(result)
        }
    }

    /** Fails in the thread that fetches all results: it must not wait for one. */
    fun checkMayBlock(): Unit = check(Thread.currentThread() !== fetcher) {
        "blocks the thread that would end it: an unconfined coroutine must not call what blocks"
    }

    /**
     * Runs a call and blocks the thread, platform or virtual, until its result. An interrupt cancels the call if
     * `interruptible`; otherwise the interrupt flag is set again at the end.
     */
    fun block(interruptible: Boolean = false, start: () -> Long): Outcome {
        checkMayBlock()
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
     * Runs a call as a future of `value`. If the future is completed before the call ends, such as by a cancellation or
     * a time-out, the call is cancelled.
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
        /** Whether the call ended before the future was completed in another way. */
        @Volatile
        var isSettled = false
            private set

        /** Completes the future in its default executor, because dependent stages may block the thread. */
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
                // The future was cancelled in this moment.
                if (!complete(result) && result is Lease) result.discard()
            } catch (failure: Throwable) {
                completeExceptionally(failure)
            }
        }
    }

    /** Runs a call and returns its result. Awaits it again if a grant was given back. */
    private inline fun end(start: () -> Long, await: (Long) -> Outcome): Outcome = begin(start, { it }) { call ->
        var outcome = await(call)
        while (!isTaken(call, outcome)) outcome = await(call)
        outcome
    }

    /** Takes the result of a call. False if the grant of a lease was given back meanwhile: the call continues. */
    private fun isTaken(call: Long, outcome: Outcome): Boolean {
        val isTaken = outcome !is Outcome.Leased || take(call)
        if (!isTaken) outcome.free()
        return isTaken
    }
}

/** Returns this outcome, or throws the error of a failed call after passing it through `seen`. */
internal inline fun Outcome.orThrow(seen: (LockError) -> LockError): Outcome =
    if (this is Outcome.Failed) throw seen(failure.exception()) else this

/** Runs a call of the native library and converts its errors to the exceptions of this package. */
internal inline fun <T> native(call: () -> T): T = try {
    call()
} catch (refusal: Refusal) {
    throw when (refusal) {
        is Refusal.Failed -> refusal.failure.exception()
        is Refusal.Interrupted -> InterruptedException()
    }
}

/**
 * Sets this error's stack trace to the callers of the current coroutine and returns it. The original trace starts at
 * the resumption and names none of the callers, which are suspended continuations.
 */
internal suspend fun <T : Throwable> T.seenFromHere(): T = suspendCoroutineUninterceptedOrReturn { here ->
    val frames = generateSequence(here as? CoroutineStackFrame) { it.callerFrame }
    val callers = frames.mapNotNull { it.getStackTraceElement() }.toList()
    if (callers.isNotEmpty()) stackTrace = callers.toTypedArray()
    this
}
