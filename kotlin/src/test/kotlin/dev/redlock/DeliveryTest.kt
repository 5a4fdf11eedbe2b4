package dev.redlock

import dev.redlock.internal.Outcome
import kotlinx.coroutines.CoroutineDispatcher
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Runnable
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.CancellationException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean
import java.util.logging.Handler
import java.util.logging.LogRecord
import java.util.logging.Logger
import java.util.logging.SimpleFormatter
import kotlin.coroutines.CoroutineContext
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.measureTime

/** A dispatcher whose next dispatch throws if `fails` is set. */
private class Failing : CoroutineDispatcher() {
    val fails = AtomicBoolean()

    override fun dispatch(context: CoroutineContext, block: Runnable) {
        check(!fails.getAndSet(false)) { "no thread is left" }
        Dispatchers.Default.dispatch(context, block)
    }
}

/** Results and events whose delivery to the waiter fails. */
class DeliveryTest : OnServer() {
    private val logger = Logger.getLogger("redlock")

    @Test
    fun `an error while a result is delivered ends its call`(): Unit = runBlocking(Dispatchers.Default) {
        val dispatcher = Failing()
        Redlock(server.url).use { other ->
            val lease = other.lock("undelivered").acquire()
            val waiting = async(dispatcher) {
                runCatching { client.lock("undelivered").withLock { error("entered") } }.exceptionOrNull()
            }
            eventually("it waits") { server.listeners("undelivered") == 1L }
            dispatcher.fails.set(true)
            lease.release()
            val failure = withTimeout(PATIENCE) { waiting.await() }
            assertEquals("no thread is left", failure?.message)
            // The granted lease has no user and is given back.
            val took = measureTime { client.lock("undelivered").withLock { } }
            assertTrue(took < AT_ONCE) { "given back after $took, like what nobody takes" }
        }
        eventually("it is logged: $logged") { logged.any { "SEVERE a result could not be delivered" == it } }
    }

    @Test
    fun `a future that is cancelled while it gets its lease gives the lease back`() {
        Redlock(server.url).use { other ->
            val held = other.lock("settled").acquireBlocking()
            val handle = client.lock("settled").handle
            val leases = ConcurrentLinkedQueue<Lease>()
            lateinit var future: CompletableFuture<Lease>
            future = Calls.future({ handle.acquire { it.acquire(Double.POSITIVE_INFINITY) } }) { outcome ->
                future.cancel(true)
                Lease(outcome as Outcome.Leased, handle).also(leases::add)
            }
            held.releaseBlocking()
            failsWith<CancellationException> { future.get(PATIENCE.inWholeSeconds, TimeUnit.SECONDS) }
            // If the lease were still renewed, this would wait for ever.
            other.lock("settled", wait = PATIENCE).acquireBlocking().releaseBlocking()
            assertFalse(leases.single().held)
        }
    }

    @Test
    fun `events are delivered after a log handler failed`(): Unit = runBlocking {
        val failed = AtomicBoolean()
        val failing = object : TestHandler() {
            override fun publish(record: LogRecord) = check(failed.getAndSet(true)) { "the log is full" }
        }
        logger.addHandler(failing)
        try {
            lose("first")
            eventually("the log failed") { failed.get() }
            lose("second")
            eventually("it is logged: $logged") { logged.any { "\"second\"" in it } }
        } finally {
            logger.removeHandler(failing)
        }
    }

    @Test
    fun `a record is printed with the name of the logger`(): Unit = runBlocking {
        val printed = ConcurrentLinkedQueue<String>()
        val printing = object : TestHandler() {
            override fun publish(record: LogRecord) {
                printed += SimpleFormatter().format(record)
            }
        }
        logger.addHandler(printing)
        try {
            lose("printed")
            eventually("it is printed: $printed") { printed.any { "\"printed\"" in it } }
        } finally {
            logger.removeHandler(printing)
        }
        val header = printed.first { "\"printed\"" in it }.lines().first()
        assertTrue(header.endsWith(" redlock")) { header }
        assertFalse("dev.redlock" in header) { header }
    }

    private suspend fun lose(name: String) {
        failsWith<LockLost> { client.lock(name, ttl = 100.milliseconds).withLock { awaitCancellation() } }
    }

    private abstract class TestHandler : Handler() {
        override fun flush() = Unit

        override fun close() = Unit
    }
}
