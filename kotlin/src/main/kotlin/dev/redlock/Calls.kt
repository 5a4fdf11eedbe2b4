// Between coroutines and threads on one side and the native library on the other. A call starts and has a number; one
// daemon thread fetches what came of calls and resumes whoever waits. So no code of the JVM runs on the library's threads.
// A lease that comes so is offered: who waits for it takes it when it runs, and others get it if that takes long.

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
import kotlinx.coroutines.suspendCancellableCoroutine
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentHashMap
import kotlin.concurrent.thread
import kotlin.coroutines.intrinsics.suspendCoroutineUninterceptedOrReturn
import kotlin.coroutines.jvm.internal.CoroutineStackFrame
import kotlin.math.abs

internal object Calls {
    private val logger = System.getLogger("redlock")

    /** By call: who waits for it, or, where its end came first, its [Outcome]. */
    val waiting = ConcurrentHashMap<Long, Any>()

    private val fetcher: Thread

    /** Hears of the end of a call, on the fetching thread: must not block. */
    fun interface Waiter {
        fun end(outcome: Outcome)
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
            for (ended in fetch()) {
                try {
                    val waiter = waiting.putIfAbsent(ended.call, ended.outcome) ?: continue
                    waiting.remove(ended.call)
                    (waiter as Waiter).end(ended.outcome)
                } catch (failure: Throwable) {
                    // Whatever it was: this thread must go on for everybody else.
                    logger.log(System.Logger.Level.ERROR, "a result could not be delivered", failure)
                }
            }
        }
    }

    private fun awaitEvents(): Unit = await(watchEvents()) { outcome ->
        for (event in (outcome as Outcome.Events).events) log(event)
        awaitEvents()
    }

    private fun log(event: Happening) {
        logger.log(if (event.warning) System.Logger.Level.WARNING else System.Logger.Level.DEBUG, event.line)
    }

    /** Has `waiter` hear of the end of a call. */
    fun await(call: Long, waiter: Waiter) {
        val early = waiting.putIfAbsent(call, waiter) ?: return
        waiting.remove(call)
        waiter.end(early as Outcome)
    }

    private fun giveUp(call: Long) {
        // Otherwise its end was fetched, and its waiter is about to hear of it, or has.
        if (abandon(call)) waiting.remove(call)
    }

    /** The end of a call, for a coroutine. A cancelled one leaves nothing behind; what it releases is released. */
    suspend fun call(start: () -> Long): Outcome = end(native(start)) { call ->
        suspendCancellableCoroutine { continuation ->
            // It may be cancelled while it waits, and when it was resumed and does not run yet.
            await(call) { outcome ->
                continuation.resume(outcome) { _, _, _ -> giveUp(call) }
            }
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
                val end = CompletableFuture<Outcome>()
                await(call) { end.complete(it) }
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
                    }
                }
                outcome
            }.also { if (it is Outcome.Failed) throw it.failure.exception() }
        } finally {
            if (interrupted) Thread.currentThread().interrupt()
        }
    }

    /** The end of a call that began. A lease that is taken too late is none: then the call goes on, under its number. */
    private inline fun end(started: Long, await: (Long) -> Outcome): Outcome {
        // What ended at once needs no waiting.
        if (started < 0) endOf(started)?.let { return it }
        val call = abs(started)
        while (true) {
            val outcome = await(call)
            if (outcome !is Outcome.Leased || take(call)) return outcome
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
