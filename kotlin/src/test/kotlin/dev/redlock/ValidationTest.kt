package dev.redlock

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import kotlin.time.Duration
import kotlin.time.Duration.Companion.days
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** Invalid input is refused before anything is sent. The error names the argument as Kotlin does. */
class ValidationTest {
    private inline fun refused(argument: String, block: () -> Any?) {
        val failure = failsWith<InvalidArgument>(block)
        assertEquals("invalid", failure.code)
        assertTrue(failure.message!!.startsWith("$argument: ")) { failure.message }
    }

    @Test
    fun `clients`() {
        fun client(options: RedlockOptions, nodes: Int = 1) = Redlock(List(nodes) { "memory://$it" }, options)
        refused("urls") { Redlock() }
        refused("urls") { Redlock("nonsense") }
        refused("quorum") { client(RedlockOptions(quorum = 1), nodes = 3) }
        refused("watchdog") { client(RedlockOptions(watchdog = (-1).seconds)) }
        refused("watchdog") { client(RedlockOptions(watchdog = Duration.INFINITE)) }
        refused("app") { client(RedlockOptions(app = "")) }
        refused("minReplicas") { client(RedlockOptions(minReplicas = -1)) }
        refused("tokenTtl") { client(RedlockOptions(tokenTtl = 59_999.milliseconds)) }
        refused("tokenTtl") { client(RedlockOptions(tokenTtl = 60.seconds, maxTtl = 60.seconds), nodes = 3) }
        refused("maxTtl") { client(RedlockOptions(maxTtl = 1.milliseconds)) }
        refused("connectTimeout") { client(RedlockOptions(connectTimeout = Duration.ZERO)) }
        refused("replyTimeout") { client(RedlockOptions(replyTimeout = (-1).milliseconds)) }
        refused("patience") { client(RedlockOptions(patience = 4000.days)) }
        refused("drift") { client(RedlockOptions(drift = Double.NaN)) }
        refused("cert") { client(RedlockOptions(cert = "only.pem")) }
        val longer = RedlockOptions(watchdog = 30.seconds, maxTtl = 2.seconds)
        val names = failsWith<InvalidArgument> { client(longer, nodes = 3) }
        assertTrue("maxTtl" in names.message!!) { names.message }
        client(RedlockOptions(maxTtl = 2.seconds), nodes = 3).close()
    }

    @Test
    fun `locks`() {
        Redlock("memory://validation").use { client ->
            refused("name") { client.lock("") }
            refused("ttl") { client.lock("x", ttl = 49.milliseconds) }
            refused("ttl") { client.lock("x", ttl = Duration.INFINITE) }
            refused("wait") { client.lock("x", wait = (-1).milliseconds) }
            refused("wait") { runBlocking { client.lock("x").acquire(4000.days) } }
            refused("owner") { client.lock("x", owner = "") }
            refused("maxHold") { client.lock("x", maxHold = 1.milliseconds) }
            refused("maxHold") { client.lock("x", ttl = 5.seconds, maxHold = 5.seconds) }
            refused("minHold") { client.lock("x", minHold = 1.milliseconds) }
            client.lock("x", wait = Duration.INFINITE)
            client.lock("\uD83D\uDD12")
        }
    }

    @Test
    fun `texts that are not Unicode`(): Unit = runBlocking {
        for (text in listOf("x\uD800", "\uDC00x", "\uD83D\uD83D\uDD12")) {
            refused("urls") { Redlock("memory://$text") }
            refused("urls") { configure("memory://$text") }
            refused("prefix") { Redlock("memory://", RedlockOptions(prefix = text)) }
            refused("password") { RedlockOptions().credentials("user", text) }
            refused("name") { lock(text) }
            refused("name") { readWriteLock(text) }
            refused("name") { semaphore(text, 1) }
            Redlock("memory://validation").use { client ->
                refused("name") { client.lock(text) }
                refused("name") { client.readWriteLock(text) }
                refused("name") { client.semaphore(text, 1) }
                refused("name") { client.forceReleaseBlocking(text) }
                refused("name") { client.forceRelease(text) }
                refused("owner") { client.lock("x", owner = text) }
                refused("owner") { LockOptions().owner(text) }
                refused("text") { client.attachBlocking(text) }
                refused("text") { client.attach(text) }
            }
        }
    }

    @Test
    fun `a missing file of certificates fails the first call`(): Unit = runBlocking {
        Redlock("rediss://127.0.0.1:1", RedlockOptions(ca = "/nowhere.pem")).use { client ->
            val failure = failsWith<InvalidArgument> { client.lock("x").acquire() }
            assertTrue(failure.message!!.startsWith("ca: /nowhere.pem: ")) { failure.message }
        }
    }

    @Test
    fun `secrets are not shown`() {
        val failure = failsWith<InvalidArgument> { Redlock("bogus://user:secret@127.0.0.1:1") }
        assertFalse("secret" in failure.message!!)
        Redlock("redis://user:secret@127.0.0.1:1").use { assertFalse("secret" in "$it ${it.nodes}") }
    }
}
