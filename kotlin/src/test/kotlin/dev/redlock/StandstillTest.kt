package dev.redlock

import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Deferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.async
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.CountDownLatch
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.ThreadPoolExecutor
import java.util.concurrent.TimeUnit
import kotlin.time.Duration.Companion.seconds
import kotlin.time.measureTime
import java.time.Duration as JavaDuration

/** A dispatcher of one thread, which can be blocked. */
class OneThread : AutoCloseable {
    private val executor = ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, LinkedBlockingQueue())
    private val blocked = CountDownLatch(1)
    private val over = CountDownLatch(1)
    val dispatcher = executor.asCoroutineDispatcher()

    /** Blocks its thread, as soon as that has nothing to do, until [goOn]. */
    fun block() = executor.execute {
        blocked.countDown()
        over.await()
    }

    fun goOn() = over.countDown()

    /** Whether a coroutine could go on if the thread did. */
    val keeps: Boolean get() = blocked.count == 0L && executor.queue.isNotEmpty()

    override fun close() {
        goOn()
        dispatcher.close()
    }
}

/** Threads that are blocked while their coroutines wait for a lock: what comes free meanwhile is nobody's in vain. */
class StandstillTest : OnServer() {
    /** Offers what it gets for two seconds, a sixth of a lease. */
    private val ours = Redlock(server.url, RedlockOptions(watchdog = 12.seconds))

    @AfterAll
    fun closeOurs(): Unit = ours.close()

    private fun Redlock.take() = lock("x").acquireBlocking(LONG)

    /** Runs `test` when a coroutine was offered the lock that another client held, and its thread is blocked. */
    private fun whenOffered(by: Redlock = ours, test: suspend (OneThread, Deferred<Lease>) -> Unit) = runBlocking(
        Dispatchers.Default,
    ) {
        OneThread().use { single ->
            val held = client.take()
            val waiting = async(single.dispatcher) { by.lock("x").acquire() }
            eventually("it waits") { server.listeners("x") == 1L }
            single.block()
            held.release()
            eventually("it could go on") { single.keeps }
            test(single, waiting)
        }
    }

    private suspend fun goesOn(waiting: Deferred<Lease>) {
        val lease = withTimeout(PATIENCE) { waiting.await() }
        assertTrue(lease.held)
        assertEquals(ReleaseOutcome.RELEASED, lease.release())
    }

    @Test
    fun `a blocked thread holds up nobody, and its coroutine goes on`() = whenOffered { single, waiting ->
        // Its own client, and then another.
        ours.take().release()
        val lease = client.take()
        assertFalse(waiting.isCompleted)
        single.goOn()
        lease.release()
        goesOn(waiting)
    }

    @Test
    fun `a coroutine that missed its offer can be cancelled`() = whenOffered { single, waiting ->
        val lease = client.take()
        single.goOn()
        // Beside who waits for events.
        eventually("it waits again") { Calls.waiting.size == 2 }
        waiting.cancelAndJoin()
        lease.release()
        client.take().release()
    }

    @Test
    fun `a coroutine that is cancelled before it runs gives its lease back`() {
        // It would be offered for five seconds.
        Redlock(server.url).use { other ->
            whenOffered(other) { single, waiting ->
                waiting.cancel()
                single.goOn()
                val took = measureTime { client.take().release() }
                assertTrue(took < AT_ONCE) { "given back after $took, like what nobody takes" }
            }
        }
    }

    /** A thread waits for a lock as `block` does, and so does a coroutine of that thread, which came first. */
    private fun goesBehind(block: () -> Unit): Unit = runBlocking {
        val held = client.take()
        val waiting = async(start = CoroutineStart.UNDISPATCHED) { ours.lock("x").acquire() }
        eventually("it waits") { server.listeners("x") == 1L }
        // From here on this thread does nothing else.
        held.releaseBlocking()
        block()
        assertFalse(waiting.isCompleted)
        goesOn(waiting)
        eventually("nobody listens any more") { server.listeners("x") == 0L }
    }

    @Test
    fun `a thread gets what its own coroutine waits for, too`() {
        goesBehind { ours.take().close() }
        goesBehind {
            val lock = ours.lock("x").asJavaLock()
            assertTrue(lock.tryLock(LONG.seconds, TimeUnit.SECONDS))
            lock.unlock()
        }
    }

    @Test
    fun `a text works again if its lease is not taken`(): Unit = runBlocking(Dispatchers.Default) {
        OneThread().use { single ->
            // With a long lease: detached it is not renewed.
            val text = client.take().detach()
            val owner = server.command("HKEYS", "x")
            val attached = async(single.dispatcher) {
                // Keeps the coroutine's only thread, once it suspends.
                single.block()
                client.attach(text)
            }
            eventually("it could go on, or was so fast that nothing was suspended") {
                single.keeps || attached.isCompleted
            }
            if (!attached.isCompleted) eventually("it is detached again") { server.command("HKEYS", "x") == owner }
            single.goOn()
            goesOn(attached)
        }
    }

    private companion object {
        /** So long a thread waits, and others do before they fail: far longer than an offer stands. */
        val LONG: JavaDuration = JavaDuration.ofSeconds(20)
    }
}
