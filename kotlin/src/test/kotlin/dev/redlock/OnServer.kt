// What tests of locks share: a server of their own, a client, what was logged, and the look at what they leave behind.

package dev.redlock

import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.BeforeEach
import org.junit.jupiter.api.TestInstance
import org.junit.jupiter.api.TestInstance.Lifecycle.PER_CLASS
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.logging.Handler
import java.util.logging.LogRecord
import java.util.logging.Logger
import kotlin.time.Duration.Companion.milliseconds

/** Part of the warning about a lease that was collected unreleased. */
const val FORGOTTEN = "nothing refers to it"

@TestInstance(PER_CLASS)
abstract class OnServer(options: RedlockOptions = RedlockOptions()) {
    protected val server = RedisServer()
    protected val client = Redlock(server.url, options)

    /** A client whose locks are lost soon when the server does not answer. */
    protected val hasty = Redlock(server.url, RedlockOptions(watchdog = 900.milliseconds))

    /** What the library logged during a test. */
    protected val logged = ConcurrentLinkedQueue<String>()

    private val logger = Logger.getLogger("redlock")
    private val handler = object : Handler() {
        override fun publish(record: LogRecord) {
            logged += "${record.level} ${record.message}"
        }

        override fun flush() = Unit

        override fun close() = Unit
    }

    @BeforeEach
    fun listen() {
        logged.clear()
        logger.useParentHandlers = false
        logger.addHandler(handler)
    }

    /** Whatever a test did, it leaves no lock, no call under way, and no lease to the garbage collector. */
    @AfterEach
    fun leavesNothing() {
        logger.removeHandler(handler)
        eventually("no lock is left: ${server.locks()}") { server.locks().isEmpty() }
        // One waits for events, as long as the process lives.
        eventually("no call is left: ${Calls.waiting}") { Calls.waiting.size == 1 }
        assertEquals(emptyList<String>(), logged.filter { FORGOTTEN in it })
    }

    @AfterAll
    fun stop() {
        client.close()
        hasty.close()
        server.close()
    }

    /** Makes a lock somebody else's, as a failover or an operator might. */
    protected fun steal(name: String) {
        server.command("DEL", name)
    }
}
