package dev.redlock

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.CyclicBarrier
import java.util.concurrent.ExecutionException
import kotlin.concurrent.thread
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import dev.redlock.internal.Lease as NativeLease
import java.time.Duration as JavaDuration

/** Native objects are freed as soon as they are no longer needed, without a visible effect. */
class HandlesTest : OnServer() {
    private fun Any.field(name: String): Any? = javaClass.getDeclaredField(name).apply { isAccessible = true }.get(this)

    private val Lease.isFreed get() = field("state") !is NativeLease

    private val Lock.native get() = handle.field("kept") ?: handle.field("first") ?: handle.field("unused")

    /** The messages with which the calls of a lease fail that is not held. */
    private suspend fun Lease.refusals(): List<String?> = listOf(
        failsWith<NotHeld> { check() },
        failsWith<NotHeld> { extend(10.seconds) },
        failsWith<NotHeld> { extendBlocking(JavaDuration.ofSeconds(10)) },
        failsWith<ExecutionException> { extendAsync(JavaDuration.ofSeconds(10)).get() }.cause as NotHeld,
        failsWith<NotHeld> { detach() },
    ).map { it.message }

    private suspend fun answersAsEnded(lease: Lease) {
        assertFalse(lease.held)
        assertEquals(Duration.ZERO, lease.remaining())
        assertNull(lease.lostReason)
        failsWith<InvalidArgument> { lease.extend((-1).seconds) }
        lease.lost.join()
        assertTrue(lease.lost.isCancelled)
        lease.close()
    }

    @Test
    fun `a released lease answers as before`(): Unit = runBlocking {
        val lock = client.lock("released")
        // A lease that is released through its lock object keeps its native lease.
        val kept = lock.acquire()
        lock.release()
        val expected = kept.refusals()
        assertFalse(kept.isFreed)
        val freed = lock.acquire()
        val (name, owner, token) = Triple(freed.name, freed.owner, freed.token)
        assertEquals(ReleaseOutcome.RELEASED, freed.release())
        assertTrue(freed.isFreed)
        assertEquals(Triple(name, owner, token), Triple(freed.name, freed.owner, freed.token))
        assertEquals(expected, freed.refusals())
        answersAsEnded(freed)
        assertEquals(ReleaseOutcome.RELEASED, freed.release())
        assertEquals(ReleaseOutcome.RELEASED, freed.releaseBlocking())
        assertEquals(ReleaseOutcome.RELEASED, freed.releaseAsync().get())
    }

    @Test
    fun `each way to release frees`(): Unit = runBlocking {
        val lock = client.lock("ways")
        val leases = mutableListOf<Lease>()
        lock.withLock { leases += it }
        lock.acquireBlocking().use { leases += it }
        leases += lock.acquire().also { it.release() }
        leases += lock.acquireBlocking().also { it.releaseBlocking() }
        leases += lock.acquireAsync().get().also { it.releaseAsync().get() }
        assertTrue(leases.all { it.isFreed })
        // A nested lease is freed while the lock is still held.
        val owned = client.lock("ways", owner = "worker")
        owned.withLock { outer ->
            val inner = owned.acquire().also { it.release() }
            assertTrue(inner.isFreed)
            assertFalse(outer.isFreed)
        }
        client.semaphore("ways-too", 3).acquire(2).also {
            it.release()
            assertTrue(it.isFreed)
            assertEquals(2 to 2, it.slots.size to it.tokens.size)
        }
    }

    @Test
    fun `a detached lease answers as before`(): Unit = runBlocking {
        val lease = client.lock("detached").acquire()
        val token = lease.token
        val text = lease.detach()
        assertTrue(lease.isFreed)
        assertEquals(token, lease.token)
        val refusals = lease.refusals()
        assertTrue(refusals.all { "the lease was detached" in checkNotNull(it) }) { "$refusals" }
        answersAsEnded(lease)
        failsWith<NotHeld> { lease.release() }
        failsWith<NotHeld> { lease.releaseBlocking() }
        assertTrue(failsWith<ExecutionException> { lease.releaseAsync().get() }.cause is NotHeld)
        client.attach(text).release()
    }

    @Test
    fun `a lost lease keeps its reason`(): Unit = runBlocking {
        val lease = client.lock("lost", ttl = 100.milliseconds).acquire()
        val reason = lease.lost.await()
        assertEquals(ReleaseOutcome.LOST, lease.release())
        assertEquals(reason, lease.lostReason)
        assertEquals(reason, failsWith<LockLost> { lease.check() }.reason)
        assertEquals(ReleaseOutcome.LOST, lease.release())
        failsWith<LockLost> { lease.close() }
    }

    @Test
    fun `a lock keeps its native object from the second use on`(): Unit = runBlocking {
        val lock = client.lock("lock")
        assertNotNull(lock.native)
        lock.withLock { assertTrue(lock.owned()) }
        assertNull(lock.native)
        failsWith<NotHeld> { lock.release() }
        assertFalse(lock.owned())
        lock.withLock { assertTrue(lock.owned()) }
        val kept = checkNotNull(lock.native)
        lock.withLock { }
        assertTrue(kept === lock.native)
        val java = client.lock("lock")
        java.asJavaLock().withLock { assertTrue(java.asJavaLock().isHeldByCurrentThread) }
        assertNull(java.native)
        client.lock("lock").withLock {
            assertNull(java.tryAcquire())
            val failing = client.lock("lock")
            assertNull(failing.tryAcquire())
            assertNull(failing.native)
        }
    }

    /** Runs all `calls` at the same time, [ROUNDS] times, and fails if one of them throws. */
    private fun <T> contend(start: () -> T, vararg calls: (T) -> Unit) {
        val failures = ConcurrentLinkedQueue<Throwable>()
        repeat(ROUNDS) {
            val with = start()
            val together = CyclicBarrier(calls.size)
            calls.map { call ->
                thread {
                    together.await()
                    runCatching { call(with) }.onFailure(failures::add)
                }
            }.forEach(Thread::join)
        }
        assertEquals(emptyList<Throwable>(), failures.toList())
    }

    private fun endsNotHeld(call: () -> Unit) {
        try {
            while (true) call()
        } catch (_: NotHeld) {
            // The expected end.
        }
    }

    @Test
    fun `calls that meet the end of a lease find it held or not held`() {
        Redlock("memory://handles").use { memory ->
            contend(
                { memory.lock("x").acquireBlocking() },
                { lease -> assertEquals(ReleaseOutcome.RELEASED, lease.releaseBlocking()) },
                { lease -> assertEquals(ReleaseOutcome.RELEASED, lease.releaseBlocking()) },
                { lease -> while (lease.held) check(lease.token > 0 && lease.lostReason == null) },
                { lease -> while (lease.remaining() > Duration.ZERO) Thread.onSpinWait() },
                { lease -> endsNotHeld { lease.check() } },
                { lease -> endsNotHeld { lease.extendBlocking(JavaDuration.ofSeconds(30)) } },
                { lease -> lease.close() },
            )
        }
    }

    @Test
    fun `calls that meet the end of a lock's first lease`() {
        Redlock("memory://handles-too").use { memory ->
            contend(
                { memory.lock("x").let { it to it.acquireBlocking() } },
                { (_, lease) -> lease.releaseBlocking() },
                { (lock, _) -> while (lock.owned()) Thread.onSpinWait() },
                { (lock, _) -> while (lock.lockedBlocking()) Thread.onSpinWait() },
                { (lock, _) -> lock.tryAcquireBlocking()?.releaseBlocking() },
                { (lock, _) -> check(lock.asJavaLock().token() == null) },
            )
        }
    }

    private companion object {
        const val ROUNDS = 300
    }
}
