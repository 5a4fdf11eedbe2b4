// The base class of tests that need a server: a server, clients, the log, and a check that nothing is left behind.

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

/** Part of the warning about a lease that was collected without a release. */
const val FORGOTTEN = "nothing refers to it"

@TestInstance(PER_CLASS)
abstract class OnServer(options: RedlockOptions = RedlockOptions()) {
    protected val server = RedisServer()
    protected val client = Redlock(server.url, options)

    /** A client with a short lease, whose locks are lost soon if the server does not answer. */
    protected val hasty = Redlock(server.url, RedlockOptions(watchdog = 900.milliseconds))

    /** The log lines of the library during a test. */
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

    /** Checks that a test leaves no lock, no pending call, and no lease to the garbage collector. */
    @AfterEach
    fun leavesNothing() {
        logger.removeHandler(handler)
        eventually("no lock is left: ${server.locks()}") { server.locks().isEmpty() }
        // One call is always pending: it waits for events.
        eventually("no call is left: ${Calls.waiting}") { Calls.waiting.size == 1 }
        assertEquals(emptyList<String>(), logged.filter { FORGOTTEN in it })
    }

    @AfterAll
    fun stop() {
        client.close()
        hasty.close()
        server.close()
    }

    /** Deletes the key of a lock, as a failover or an operator might. */
    protected fun steal(name: String) {
        server.command("DEL", name)
    }
}
