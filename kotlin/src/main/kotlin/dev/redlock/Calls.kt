// Between coroutines and threads on one side and the native library on the other. A call starts and has a number; one
// daemon thread fetches which calls ended and resumes whoever waits. So no code of the JVM runs on the library's threads.
// Who waits takes the end of its call when it runs: until then a lease is an offer, which others get if that takes long.

package dev.redlock

import dev.redlock.internal.Happening
import dev.redlock.internal.Interrupts
import dev.redlock.internal.Outcome
import dev.redlock.internal.Refusal
import dev.redlock.internal.abandon
import dev.redlock.internal.closeAll
import dev.redlock.internal.fetch
import dev.redlock.internal.heed
import dev.redlock.internal.take
import dev.redlock.internal.wantAllEvents
import dev.redlock.internal.watchEvents
import kotlinx.coroutines.suspendCancellableCoroutine
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.CountDownLatch
import kotlin.concurrent.thread
import kotlin.coroutines.intrinsics.suspendCoroutineUninterceptedOrReturn
import kotlin.coroutines.jvm.internal.CoroutineStackFrame
import kotlin.math.abs

internal object Calls {
    private val logger = System.getLogger("redlock")

    /** By call: who waits for its end; nobody, where that came first. */
    val waiting = ConcurrentHashMap<Long, Waiter>()

    private val nobody = Waiter { }
    private val fetcher: Thread

    /** Hears of the end of a call, on the fetching thread: must not block. */
    fun interface Waiter {
        fun ended()
    }

    init {
        heed(
            object : Interrupts {
                override fun interrupted() = Thread.interrupted()
            },
        )
        fetcher = thread(name = "redlock", isDaemon = true) { fetchForEver() }
        awaitEvents()
        try {
            Runtime.getRuntime().addShutdownHook(Thread(::closeAll, "redlock-exit"))
        } catch (_: IllegalStateException) {
            // The process ends already: what is taken from now on ends with its lease.
        }
    }

    /** Lets the log decide which events are fetched. */
    fun heedLogger(): Unit = wantAllEvents(logger.isLoggable(System.Logger.Level.DEBUG))

    private fun fetchForEver() {
        while (true) {
            for (call in fetch()) {
                try {
                    meet(call, nobody)
                } catch (failure: Throwable) {
                    // Whatever it was: this thread must go on for everybody else.
                    logger.log(System.Logger.Level.ERROR, "a result could not be delivered", failure)
                }
            }
        }
    }

    private fun awaitEvents(): Unit = handle(watchEvents()) { outcome ->
        for (event in (outcome as Outcome.Events).events) log(event)
        awaitEvents()
    }

    private fun log(event: Happening) {
        logger.log(if (event.warning) System.Logger.Level.WARNING else System.Logger.Level.DEBUG, event.line)
    }

    /** Two come here for each end of a call, in any order: who waits for it, and the fetching thread as [nobody]. */
    private fun meet(call: Long, waiter: Waiter) {
        val first = waiting.putIfAbsent(call, waiter) ?: return
        waiting.remove(call)
        (if (first === nobody) waiter else first).ended()
    }

    /** Handles the end of a call that is no lease, on the fetching thread: must not block. */
    fun handle(call: Long, handler: (Outcome) -> Unit): Unit = meet(call) { take(call)?.let(handler) }

    private fun giveUp(call: Long) {
        // Otherwise it was fetched, and its waiter is about to hear of it, or has.
        if (abandon(call)) waiting.remove(call)
    }

    /** The end of a call, for a coroutine. A cancelled one leaves nothing behind; what it releases is released. */
    suspend fun call(start: () -> Long): Outcome = end(native(start)) { call ->
        suspendCancellableCoroutine { continuation ->
            // It may be cancelled while it waits, and when it was resumed and does not run yet.
            meet(call) { continuation.resume(Unit) { _, _, _ -> giveUp(call) } }
            continuation.invokeOnCancellation { giveUp(call) }
        }
    }.also { if (it is Outcome.Failed) throw it.failure.exception().seenFromHere() }

    /** The end of a call, for a thread, platform or virtual. Interrupts wait unless `interruptible`. */
    fun block(interruptible: Boolean = false, start: () -> Long): Outcome {
        check(Thread.currentThread() !== fetcher) {
            "blocks the thread that would end it: an unconfined coroutine must not call what blocks"
        }
        var interrupted = false
        try {
            return end(native(start)) { call ->
                val ended = CountDownLatch(1)
                meet(call, ended::countDown)
                while (ended.count > 0) {
                    try {
                        ended.await()
                    } catch (interrupt: InterruptedException) {
                        if (interruptible) throw interrupt.also { giveUp(call) }
                        interrupted = true
                    }
                }
            }.also { if (it is Outcome.Failed) throw it.failure.exception() }
        } finally {
            if (interrupted) Thread.currentThread().interrupt()
        }
    }

    /** Takes the end of a call. What comes too late is none: then the call goes on, under the same number. */
    private inline fun end(started: Long, await: (Long) -> Unit): Outcome {
        val call = abs(started)
        // What ended at once needs no waiting.
        if (started > 0) await(call)
        while (true) {
            take(call)?.let { return it }
            await(call)
        }
    }
}

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
