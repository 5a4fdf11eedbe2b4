package dev.redlock

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class LockTest {
    @Test
    fun `a lock is taken and released`() = runBlocking {
        RedisServer().use { server ->
            Redlock(server.url).use { client ->
                val lease = client.lock("x").acquire()
                assertTrue(lease.held)
                assertTrue(server.holds("x"))
                assertEquals(ReleaseOutcome.RELEASED, lease.release())
                assertFalse(server.holds("x"))
            }
        }
    }
}
