package dev.redlock

import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.yield
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.ExecutionException
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds
import java.time.Duration as JavaDuration

class SemaphoreTest : OnServer() {
    @Test
    fun `no more permits are held than there are slots`(): Unit = runBlocking {
        val gpu = client.semaphore("gpu", 2)
        assertEquals(2, gpu.availablePermits())
        val one = gpu.acquire()
        assertEquals(listOf(0) to listOf(one.token), one.slots to one.tokens)
        gpu.withPermit { other ->
            assertEquals(listOf(1), other.slots)
            assertNull(gpu.tryAcquire())
            failsWith<LockTimeout> { gpu.acquire(wait = Duration.ZERO) }
            assertEquals(0, gpu.availablePermitsBlocking())
        }
        assertEquals(ReleaseOutcome.RELEASED, one.release())
        assertEquals(listOf(0, 1), gpu.withPermits(2) { it.slots })
        gpu.acquireBlocking(2).use { both ->
            assertTrue(both.tokens[0] > one.token)
            assertNull(gpu.tryAcquireBlocking())
        }
        assertEquals(2, gpu.availablePermits())
    }

    @Test
    fun `many callers never hold more than the slots`(): Unit = runBlocking {
        val gpu = client.semaphore("gpu", 3)
        val taken = mutableSetOf<Int>()
        var most = 0
        val all = List(20) {
            async {
                gpu.withPermit { permit ->
                    assertTrue(taken.add(permit.slots.single()))
                    most = maxOf(most, taken.size)
                    while (most < 3) yield()
                    taken.remove(permit.slots.single())
                }
            }
        }
        all.awaitAll()
        assertEquals(3, most)
    }

    @Test
    fun `a blocking acquire and a future wait as long as they are told`() {
        val gpu = client.semaphore("gpu", 2)
        gpu.acquireBlocking(2, JavaDuration.ofSeconds(10)).use {
            failsWith<LockTimeout> { gpu.acquireBlocking(1, JavaDuration.ofMillis(50)) }
            val failure = failsWith<ExecutionException> { gpu.acquireAsync(2, JavaDuration.ZERO).get() }
            assertTrue(failure.cause is LockTimeout, "failed with ${failure.cause}")
        }
        gpu.acquireAsync(2, JavaDuration.ofSeconds(10)).get().use { assertEquals(listOf(0, 1), it.slots) }
    }

    @Test
    fun `options are named arguments`(): Unit = runBlocking {
        val gpu = client.semaphore("gpu", 1, ttl = 10.seconds, wait = Duration.ZERO)
        gpu.withPermit { permit ->
            assertTrue(permit.remaining() <= 10.seconds) { "${permit.remaining()}" }
            failsWith<LockTimeout> { gpu.acquire() }
        }
        failsWith<InvalidArgument> { client.semaphore("gpu", 1, ttl = 10.seconds, maxHold = 10.seconds) }
    }

    @Test
    fun `invalid arguments are refused`(): Unit = runBlocking {
        for (permits in listOf(0, -1, 65_537)) {
            failsWith<InvalidArgument> { client.semaphore("gpu", permits) }
        }
        failsWith<InvalidArgument> { client.semaphore("gpu", 1, LockOptions(owner = "me")) }
        failsWith<InvalidArgument> { client.semaphore("gpu", 1, LockOptions(reentrant = false)) }
        for (n in listOf(0, -1, 3)) {
            failsWith<InvalidArgument> { client.semaphore("gpu", 2).acquire(n) }
        }
    }
}
