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

/** A dispatcher with one thread, which a test can block. */
class OneThread : AutoCloseable {
    private val executor = ThreadPoolExecutor(1, 1, 0, TimeUnit.SECONDS, LinkedBlockingQueue())
    private val blocked = CountDownLatch(1)
    private val over = CountDownLatch(1)
    val dispatcher = executor.asCoroutineDispatcher()

    /** Blocks the thread after its queued work, until [goOn]. */
    fun block() = executor.execute {
        blocked.countDown()
        over.await()
    }

    fun goOn() = over.countDown()

    /** Whether the thread has run what it was given: its coroutine is suspended. */
    val rests: Boolean get() = executor.completedTaskCount > 0 && executor.queue.isEmpty() && executor.activeCount == 0

    /** Whether the thread is blocked and a coroutine is queued for it. */
    val keeps: Boolean get() = blocked.count == 0L && executor.queue.isNotEmpty()

    override fun close() {
        goOn()
        dispatcher.close()
    }
}

/** Threads that are blocked while their coroutines wait for a lock: a grant they do not collect is given back. */
class StandstillTest : OnServer() {
    /** Gives back an uncollected grant after two seconds, a sixth of its lease. */
    private val ours = Redlock(server.url, RedlockOptions(watchdog = 12.seconds))

    @AfterAll
    fun closeOurs(): Unit = ours.close()

    private fun Redlock.take() = lock("x").acquireBlocking(LONG)

    /** Runs `test` while a coroutine has an uncollected grant and the coroutine's only thread is blocked. */
    private fun whenOffered(by: Redlock = ours, test: suspend (OneThread, Deferred<Lease>) -> Unit) = runBlocking(
        Dispatchers.Default,
    ) {
        OneThread().use { single ->
            val held = client.take()
            val waiting = async(single.dispatcher) { by.lock("x").acquire() }
            // A coroutine that is not yet suspended when its grant arrives would go on at once.
            eventually("it waits") { server.listeners("x") == 1L && single.rests }
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
    fun `a blocked thread delays no other, and its coroutine gets the lock later`() = whenOffered { single, waiting ->
        // The coroutine's own client gets the lock, then another client.
        ours.take().release()
        val lease = client.take()
        assertFalse(waiting.isCompleted)
        single.goOn()
        lease.release()
        goesOn(waiting)
    }

    @Test
    fun `a coroutine whose grant was given back can be cancelled`() = whenOffered { single, waiting ->
        val lease = client.take()
        single.goOn()
        // The other pending call waits for events.
        eventually("it waits again") { Calls.waiting.size == 2 }
        waiting.cancelAndJoin()
        lease.release()
        client.take().release()
    }

    @Test
    fun `a coroutine that is cancelled before it runs gives its lease back`() {
        // Without the cancellation, the grant would be pending for five seconds.
        Redlock(server.url).use { other ->
            whenOffered(other) { single, waiting ->
                waiting.cancel()
                single.goOn()
                val took = measureTime { client.take().release() }
                assertTrue(took < AT_ONCE) { "given back after $took, like what nobody takes" }
            }
        }
    }

    /** A coroutine waits for a lock first; then `block` acquires it on the same thread, which is blocked meanwhile. */
    private fun goesBehind(block: () -> Unit): Unit = runBlocking {
        val held = client.take()
        val waiting = async(start = CoroutineStart.UNDISPATCHED) { ours.lock("x").acquire() }
        eventually("it waits") { server.listeners("x") == 1L }
        // From here on this thread runs no coroutine until `block` returns.
        held.releaseBlocking()
        block()
        assertFalse(waiting.isCompleted)
        goesOn(waiting)
        eventually("nobody listens any more") { server.listeners("x") == 0L }
    }

    @Test
    fun `a thread gets the lock that its own coroutine waits for`() {
        goesBehind { ours.take().close() }
        goesBehind {
            val lock = ours.lock("x").asJavaLock()
            assertTrue(lock.tryLock(LONG.seconds, TimeUnit.SECONDS))
            lock.unlock()
        }
    }

    @Test
    fun `a text works again if the attached lease is not collected`(): Unit = runBlocking(Dispatchers.Default) {
        OneThread().use { single ->
            // This client has a long lease: a detached lease is not renewed.
            val text = client.take().detach()
            val owner = server.command("HKEYS", "x")
            val attached = async(single.dispatcher) {
                // Blocks the coroutine's only thread once the coroutine suspends.
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
        /** The wait of the acquires in these tests, far longer than a grant is pending. */
        val LONG: JavaDuration = JavaDuration.ofSeconds(20)
    }
}
