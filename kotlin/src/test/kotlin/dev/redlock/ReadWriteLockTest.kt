package dev.redlock

import kotlinx.coroutines.async
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit
import kotlin.time.Duration

class ReadWriteLockTest : OnServer() {
    /** Runs `work` in another thread and returns its result. */
    private fun <T> elsewhere(work: () -> T): T = CompletableFuture.supplyAsync(work).get(60, TimeUnit.SECONDS)

    @Test
    fun `many read or one writes`(): Unit = runBlocking {
        val config = client.readWriteLock("config")
        val readers = List(2) { config.readLock.acquire() }
        val info = checkNotNull(config.readLock.inspect())
        assertEquals(LockKind.READ to 2, info.kind to info.owners.size)
        assertEquals(setOf(info.token), readers.map { it.token }.toSet())
        assertNull(config.writeLock.tryAcquire())
        assertNull(client.lock("config").tryAcquire())
        val writing = async { config.write { it.token } }
        readers.forEach { assertEquals(ReleaseOutcome.RELEASED, it.release()) }
        assertTrue(writing.await() > info.token)
        config.write {
            assertEquals(LockKind.WRITE, config.writeLock.inspect()?.kind)
            assertNull(config.readLock.tryAcquire())
        }
        assertEquals("done", config.read { "done" })
        assertFalse(config.readLock.locked())
    }

    @Test
    fun `a writer becomes a reader and a reader a writer`(): Unit = runBlocking {
        val config = client.readWriteLock("config", LockOptions(wait = Duration.ZERO))
        val lease = config.writeLock.acquire()
        val token = lease.token
        lease.downgrade()
        assertEquals(token + 1, lease.token)
        val reader = config.readLock.acquire()
        assertFalse(lease.tryUpgrade())
        assertTrue(lease.held)
        reader.releaseBlocking()
        assertTrue(lease.tryUpgradeBlocking())
        assertTrue(lease.token > token + 1)
        failsWith<LockTimeout> { config.readLock.acquire() }
        lease.downgradeBlocking()
        lease.release()
        client.lock("plain").withLock { plain -> failsWith<InvalidArgument> { plain.downgrade() } }
    }

    @Test
    fun `the Java lock behaves like a ReentrantReadWriteLock`() {
        val java = client.readWriteLock("java").asJavaReadWriteLock()
        java.writeLock().lock()
        java.writeLock().lock()
        java.readLock().lock()
        assertFalse(elsewhere { java.readLock().tryLock() })
        java.writeLock().unlock()
        java.writeLock().unlock()
        // The writer's read lock still keeps out other readers.
        assertFalse(elsewhere { java.readLock().tryLock() })
        java.readLock().unlock()
        elsewhere {
            java.readLock().lock()
            assertFalse(elsewhere { java.writeLock().tryLock() })
            assertTrue(
                elsewhere {
                    java.readLock().tryLock().also { if (it) java.readLock().unlock() }
                },
            )
            val refused = failsWith<WouldDeadlock> { java.writeLock().lock() }
            assertTrue("tryUpgrade()" in refused.message!!) { refused.message }
            java.readLock().unlock()
        }
        assertTrue(java.writeLock().tryLock())
        java.writeLock().unlock()
    }

    @Test
    fun `a half of the Java lock is unlocked only by a thread that locked that half`() {
        val java = client.readWriteLock("halves").asJavaReadWriteLock()
        val (reads, writes) = java.readLock() to java.writeLock()
        writes.lock()
        val unheld = failsWith<IllegalMonitorStateException> { reads.unlock() }
        assertTrue(unheld.cause is NotHeld) { "${unheld.cause}" }
        assertEquals(false to true, reads.isHeldByCurrentThread to writes.isHeldByCurrentThread)
        assertNull(reads.token())
        // A downgrade, through another object for the same lock.
        client.readWriteLock("halves").readLock.asJavaLock().lock()
        writes.unlock()
        failsWith<IllegalMonitorStateException> { writes.unlock() }
        assertEquals(true to false, reads.isHeldByCurrentThread to writes.isHeldByCurrentThread)
        assertNotNull(reads.token())
        elsewhere { failsWith<IllegalMonitorStateException> { reads.unlock() } }
        reads.unlock()
        reads.lock()
        failsWith<IllegalMonitorStateException> { writes.unlock() }
        assertTrue(reads.isHeldByCurrentThread)
        assertTrue(client.forceReleaseBlocking("halves"))
        failsWith<LockLost> { reads.unlock() }
        failsWith<IllegalMonitorStateException> { reads.unlock() }
        assertFalse(reads.isHeldByCurrentThread)
    }

    @Test
    fun `options that a read-write lock does not have are refused`() {
        for (make in listOf<(String, LockOptions) -> ReadWriteLock>(client::readWriteLock, ::readWriteLock)) {
            val fair = failsWith<InvalidArgument> { make("x", LockOptions(fair = true)) }
            assertTrue(fair.message!!.startsWith("fair: ")) { "$fair" }
            val owned = failsWith<InvalidArgument> { make("x", LockOptions(owner = "me")) }
            assertTrue(owned.message!!.startsWith("owner: ")) { "$owned" }
            assertNotNull(make("x", LockOptions()))
        }
    }
}
