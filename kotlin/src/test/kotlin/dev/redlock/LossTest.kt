package dev.redlock

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.delay
import kotlinx.coroutines.isActive
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.supervisorScope
import kotlinx.coroutines.withContext
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** The loss of a lock while a body runs, and its effect on structured concurrency. */
class LossTest : OnServer() {
    @Test
    fun `a lost lock cancels the body at its deadline`(): Unit = runBlocking(Dispatchers.Default) {
        var best = Long.MAX_VALUE
        // On a busy machine one attempt may be late, but not all of them.
        for (attempt in 1..5) {
            var deadline = 0L
            var cancelled = 0L
            val failure = failsWith<LockLost> {
                hasty.lock("deadline").withLock { lease ->
                    server.freeze()
                    delay(50.milliseconds) // until pending replies have arrived
                    deadline = System.nanoTime() + lease.remaining().inWholeNanoseconds
                    try {
                        awaitCancellation()
                    } finally {
                        cancelled = System.nanoTime()
                        assertFalse(lease.held)
                    }
                }
            }
            server.thaw()
            assertEquals(LostReason.UNREACHABLE, failure.reason)
            val late = (cancelled - deadline) / 1_000_000
            assertTrue(late > -20) { "cancelled $late ms after the deadline" }
            best = minOf(best, late)
            if (best < 100) break
        }
        assertTrue(best < 100) { "cancelled $best ms after the deadline" }
    }

    @Test
    fun `each reason fails with LockLost, not with a cancellation`(): Unit = runBlocking {
        val taken = failsWith<LockLost> {
            hasty.lock("taken").withLock {
                steal("taken")
                server.command("HSET", "taken", "somebody:1", "1")
                server.command("PEXPIRE", "taken", "3000")
                awaitCancellation()
            }
        }
        assertEquals(LostReason.TAKEN, taken.reason)
        assertFalse(CancellationException::class.isInstance(taken))
        assertTrue("taken" in taken.message!!)
        assertTrue(taken.stackTrace.any { it.fileName == "LossTest.kt" }) { taken.stackTraceToString() }
        steal("taken")
        val expired = failsWith<LockLost> {
            client.lock("expired", ttl = 200.milliseconds).withLock { awaitCancellation() }
        }
        assertEquals(LostReason.EXPIRED, expired.reason)
    }

    @Test
    fun `a loss cancels the body's children, and a body that blocks its dispatcher`(): Unit = runBlocking {
        val child = CompletableDeferred<Throwable?>()
        failsWith<LockLost> {
            client.lock("children", ttl = 300.milliseconds).withLock { lease ->
                launch { awaitCancellation() }.invokeOnCompletion { child.complete(it) }
                // Blocks the only thread of this scope.
                while (isActive) Thread.onSpinWait()
                assertFalse(lease.held)
            }
        }
        assertTrue(child.await() is CancellationException)
        // A loss cancels the children of a body that has returned.
        failsWith<LockLost> {
            client.lock("children", ttl = 300.milliseconds).withLock { launch { awaitCancellation() } }
        }
    }

    @Test
    fun `a loss that only the release detects fails a body that succeeded`(): Unit = runBlocking {
        val failure = failsWith<LockLost> { client.lock("late").withLock { steal("late") } }
        assertEquals(LostReason.DELETED, failure.reason)
        assertTrue(failure.stackTrace.any { it.fileName == "LossTest.kt" }) { failure.stackTraceToString() }
    }

    @Test
    fun `the body's own error comes first`(): Unit = runBlocking {
        val own = failsWith<IllegalStateException> {
            client.lock("own").withLock {
                steal("own")
                error("own")
            }
        }
        assertEquals("own", own.message)
        assertTrue(own.suppressed.single() is LockLost)
        val plain = failsWith<IllegalArgumentException> { client.lock("own").withLock { require(false) } }
        assertEquals(0, plain.suppressed.size)
        assertFalse(server.holds("own"))
    }

    @Test
    fun `the body's own error comes first also after the loss cancelled it`(): Unit = runBlocking {
        val own = failsWith<IllegalStateException> {
            client.lock("own", ttl = 200.milliseconds).withLock {
                try {
                    awaitCancellation()
                } finally {
                    error("cleaning up failed")
                }
            }
        }
        assertEquals("cleaning up failed", own.message)
        val lost = own.suppressed.single()
        assertTrue(lost is LockLost) { own.stackTraceToString() }
        assertEquals(0, lost.suppressed.size, "neither is the cause of the other")
        // The same for a failing child of the body.
        val child = failsWith<IllegalStateException> {
            client.lock("own", ttl = 200.milliseconds).withLock {
                launch {
                    try {
                        awaitCancellation()
                    } finally {
                        error("a child failed")
                    }
                }
            }
        }
        assertTrue(child.suppressed.single() is LockLost) { child.stackTraceToString() }
    }

    @Test
    fun `a loss fails only the caller, as any failure does`(): Unit = runBlocking {
        supervisorScope {
            val sibling = async { delay(1.seconds) }
            val lost = async { client.lock("sibling", ttl = 200.milliseconds).withLock { awaitCancellation() } }
            failsWith<LockLost> { lost.await() }
            assertTrue(sibling.isActive)
            sibling.cancel()
        }
        var cancelled = false
        failsWith<LockLost> {
            withContext(Dispatchers.Default) {
                launch {
                    try {
                        awaitCancellation()
                    } finally {
                        cancelled = true
                    }
                }
                client.lock("sibling", ttl = 200.milliseconds).withLock<Unit> { awaitCancellation() }
            }
        }
        assertTrue(cancelled, "a sibling in the same scope is")
    }

    @Test
    fun `a release or detach inside the block is not a loss`(): Unit = runBlocking {
        client.lock("inside").withLock { it.release() }
        lateinit var text: String
        client.lock("inside").withLock { text = it.detach() }
        assertTrue(server.holds("inside"))
        client.attach(text).release()
    }

    @Test
    fun `lost completes once, for all waiters`(): Unit = runBlocking {
        val lease = hasty.lock("watched").acquire()
        val reasons = List(3) { async { lease.lost.await() } }
        steal("watched")
        assertEquals(List(3) { LostReason.DELETED }, reasons.map { it.await() })
        assertEquals(LostReason.DELETED, lease.lostReason)
        assertEquals(ReleaseOutcome.LOST, lease.release())
        val line = Regex("WARNING lock \"watched\" with token ${lease.token} was lost: deleted")
        eventually("it is logged: $logged") { logged.any(line::matches) }
    }

    @Test
    fun `use keeps the block's error and fails with a loss`(): Unit = runBlocking {
        val own = failsWith<IllegalStateException> {
            client.lock("used").acquire().use {
                steal("used")
                error("own")
            }
        }
        assertTrue(own.suppressed.single() is LockLost)
        failsWith<LockLost> { client.lock("used").acquire().use { steal("used") } }
        client.lock("used").acquire().use { withContext(NonCancellable) { it.release() } }
    }
}
