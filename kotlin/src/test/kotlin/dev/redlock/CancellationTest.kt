package dev.redlock

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancel
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.supervisorScope
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import kotlinx.coroutines.withTimeoutOrNull
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.atomic.AtomicBoolean
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.measureTime

/** A cancellation at any point leaves no key, no call and no lease. `OnServer` checks that after each test. */
class CancellationTest : OnServer() {
    /** Starts `begin` and cancels it, at 200 moments between its start and twice its usual duration. */
    private suspend fun atManyMoments(begin: suspend () -> Unit): Unit = coroutineScope {
        val usual = measureTime { begin() }
        repeat(MOMENTS) { moment ->
            val job = launch { begin() }
            val until = System.nanoTime() + usual.inWholeNanoseconds * 2 * moment / MOMENTS
            while (System.nanoTime() < until) Thread.onSpinWait()
            job.cancelAndJoin()
        }
    }

    /** Checks that the lock can be acquired and released: nothing was left behind. */
    private suspend fun isFree(name: String) {
        val lease = withTimeout(PATIENCE) { client.lock(name).acquire() }
        assertEquals(ReleaseOutcome.RELEASED, lease.release())
    }

    @Test
    fun `acquires of a free lock`(): Unit = runBlocking(Dispatchers.Default) {
        atManyMoments { client.lock("free").acquire().run { withContext(NonCancellable) { release() } } }
        isFree("free")
    }

    @Test
    fun `acquires of a lock that has other waiters`(): Unit = runBlocking(Dispatchers.Default) {
        val others = List(3) {
            launch { while (true) client.lock("wanted").withLock { } }
        }
        atManyMoments { client.lock("wanted").acquire().run { withContext(NonCancellable) { release() } } }
        others.forEach { it.cancel() }
        others.joinAll()
        isFree("wanted")
    }

    @Test
    fun `waiting acquires, one after the other and all at once`(): Unit = runBlocking(Dispatchers.Default) {
        val lease = client.lock("held").acquire()
        Redlock(server.url).use { other ->
            repeat(20) { moment ->
                assertNull(withTimeoutOrNull(moment.milliseconds) { other.lock("held").acquire() })
            }
            val waiting = List(MOMENTS) {
                launch(start = CoroutineStart.UNDISPATCHED) { other.lock("held").withLock { error("entered") } }
            }
            eventually("it waits") { server.listeners("held") == 1L }
            waiting.forEach { it.cancel() }
            waiting.joinAll()
            eventually("it waits no more") { server.listeners("held") == 0L }
        }
        assertTrue(lease.held)
        lease.release()
        isFree("held")
    }

    @Test
    fun `whole blocks`(): Unit = runBlocking(Dispatchers.Default) {
        atManyMoments { client.lock("block").withLock { } }
        isFree("block")
    }

    @Test
    fun `releases go on`(): Unit = runBlocking(Dispatchers.Default) {
        val lock = client.lock("release")
        repeat(MOMENTS) { moment ->
            val lease = lock.acquire(wait = PATIENCE)
            val job = launch { lease.release() }
            val until = System.nanoTime() + moment * 10_000
            while (System.nanoTime() < until) Thread.onSpinWait()
            job.cancelAndJoin()
            // A coroutine that was cancelled before it started released nothing.
            if (lease.held) lease.release()
        }
        isFree("release")
        // A common mistake: a release in the `finally` of a cancelled coroutine.
        val inside = CompletableDeferred<Unit>()
        val job = launch {
            val lease = lock.acquire()
            try {
                inside.complete(Unit)
                awaitCancellation()
            } finally {
                lease.release()
            }
        }
        inside.await()
        job.cancelAndJoin()
        eventually("it is released") { !server.holds("release") }
    }

    @Test
    fun `a lease that was granted but not yet handed over is given back`(): Unit = runBlocking(Dispatchers.Default) {
        repeat(5) {
            OneThread().use { single ->
                val delivered = AtomicBoolean()
                val job = launch(single.dispatcher) {
                    // Blocks the coroutine's only thread, once the coroutine suspends, until after the cancellation.
                    single.block()
                    val lease = client.lock("undelivered").acquire()
                    delivered.set(true) // the acquire was so fast that it did not suspend
                    withContext(NonCancellable) { lease.release() }
                }
                eventually("it is granted, and waits for the thread") { delivered.get() || single.keeps }
                job.cancel()
                single.goOn()
                val took = measureTime { eventually("it is given back") { !server.holds("undelivered") } }
                assertTrue(took < AT_ONCE) { "given back after $took, like what nobody takes" }
                job.join()
            }
        }
    }

    @Test
    fun `blocking acquires of threads that are interrupted`(): Unit = runBlocking(Dispatchers.Default) {
        val lock = client.lock("interrupted")
        val usual = measureTime { lock.acquireBlocking().releaseBlocking() }
        repeat(MOMENTS) { moment ->
            val thread = thread {
                try {
                    lock.acquireBlocking().releaseBlocking()
                } catch (_: InterruptedException) {
                    // Interrupted before it had the lock: a blocking release is not interruptible.
                }
            }
            val until = System.nanoTime() + usual.inWholeNanoseconds * 2 * moment / MOMENTS
            while (System.nanoTime() < until) Thread.onSpinWait()
            thread.interrupt()
            thread.join()
        }
        isFree("interrupted")
    }

    @Test
    fun `a cancelled coroutine begins nothing`(): Unit = runBlocking(Dispatchers.Default) {
        client.lock("unsent").withLock { }
        val before = scripts()
        val job = launch {
            cancel()
            client.lock("unsent").acquire()
        }
        job.join()
        assertTrue(job.isCancelled)
        assertEquals(before, scripts())
    }

    private fun scripts(): Long = Regex("cmdstat_evalsha:calls=(\\d+)")
        .find(server.command("INFO", "commandstats").toString())?.groupValues?.get(1)?.toLong() ?: 0

    @Test
    fun `a body that is cancelled releases, and its caller is cancelled`(): Unit = runBlocking(Dispatchers.Default) {
        failsWith<TimeoutCancellationException> {
            withTimeout<Unit>(100.milliseconds) { client.lock("body").withLock { awaitCancellation() } }
        }
        eventually("it is released") { !server.holds("body") }
        val inside = CompletableDeferred<Unit>()
        val job = launch {
            client.lock("body").withLock {
                inside.complete(Unit)
                awaitCancellation()
            }
        }
        inside.await()
        assertTrue(server.holds("body"))
        job.cancelAndJoin()
        // Released by the time the coroutine has ended, not later.
        assertFalse(server.holds("body"))
    }

    @Test
    fun `an acquire given up on a frozen server is gone after the thaw`(): Unit = runBlocking(Dispatchers.Default) {
        client.lock("frozen").withLock { }
        server.freeze()
        val took = measureTime { assertNull(withTimeoutOrNull(50.milliseconds) { client.lock("frozen").acquire() }) }
        server.thaw()
        assertTrue(took < AT_ONCE) { "a cancelled call returned after $took" }
        isFree("frozen")
    }

    @Test
    fun `closing a client ends its calls, cancelled ones as well`(): Unit = runBlocking(Dispatchers.Default) {
        val closing = Redlock(server.url)
        supervisorScope {
            val jobs = List(50) { async { closing.lock("closing-$it").withLock { awaitCancellation() } } }
            eventually("some are held") { server.locks().size > 10 }
            jobs.take(25).forEach { it.cancel() }
            withContext(Dispatchers.IO) { closing.close() }
            withTimeout(PATIENCE) { jobs.joinAll() }
            jobs.drop(25).forEach { failsWith<LockError> { it.await() } }
        }
    }

    private companion object {
        const val MOMENTS = 200
    }
}
