package dev.redlock

import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.TimeUnit
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlin.time.TimeSource

/** The end of a process, and the end of a lease without references. */
class ProcessTest : OnServer() {
    /** A JVM that runs `Child.kt`. */
    private inner class Child(what: String, name: String) : AutoCloseable {
        val process: Process = java("dev.redlock.ChildKt", what, server.url, name).redirectErrorStream(true).start()
        private val output = process.inputStream.bufferedReader()

        fun isReady() = says("ready")

        fun says(what: String) = apply {
            val line = output.lineSequence().firstOrNull { it == what }
            checkNotNull(line) { "it ended before it said: $what" }
        }

        /** Waits for the end of the process. Returns its exit code and its remaining output. */
        fun ends(): Pair<Int, String> {
            // The output is short: all of it fits into the pipe.
            check(process.waitFor(PATIENCE.inWholeSeconds, TimeUnit.SECONDS)) { "it does not end" }
            return process.exitValue() to output.readText()
        }

        override fun close() {
            process.destroyForcibly().waitFor()
        }
    }

    /** Checks that a child ends by itself, without an error. */
    private fun endsByItself(what: String, name: String = what) = Child(what, name).use { child ->
        val (code, said) = child.ends()
        assertEquals(0, code) { said }
        assertTrue("ready" in said) { said }
        assertFalse("Exception" in said) { said }
    }

    @Test
    fun `a process ends by itself, whatever it holds or waits for`(): Unit = runBlocking {
        endsByItself("idles")
        endsByItself("holds")
        assertFalse(server.holds("holds"), "released on the way out, not left to its ttl")
        endsByItself("holds as a thread")
        assertFalse(server.holds("holds as a thread"))
        val lease = client.lock("busy").acquire()
        endsByItself("waits", "busy")
        endsByItself("waits as a thread", "busy")
        assertTrue(lease.held)
        lease.release()
    }

    @Test
    fun `at the exit no thread stays in native code, and other hooks can call`() =
        Child("exits", "exits").use { child ->
            val (code, said) = child.ends()
            assertEquals(0, code) { said }
            assertTrue("fetched" in said) { said }
        }

    @Test
    fun `the threads of the library keep nothing of the request that made the first call`() = endsByItself("serves")

    @Test
    fun `a process that fails releases`() = Child("throws", "failing").use { child ->
        val (code, said) = child.ends()
        assertEquals(1, code)
        assertTrue("on purpose" in said) { said }
        assertFalse(server.holds("failing"))
    }

    @Test
    fun `a signal that ends a process releases`() {
        for (name in listOf("TERM", "INT")) {
            Child("stays", "signalled").use { child ->
                child.isReady()
                assertTrue(server.holds("signalled"))
                signal(child.process.pid(), name)
                assertTrue(child.ends().first > 128)
                assertFalse(server.holds("signalled"))
            }
        }
    }

    @Test
    fun `a signal ends a process in time while its server is frozen`() = Child("stays", "cold").use { child ->
        child.isReady()
        server.freeze()
        val start = TimeSource.Monotonic.markNow()
        signal(child.process.pid(), "TERM")
        child.ends()
        val took = start.elapsedNow()
        server.thaw()
        assertTrue(took < 10.seconds) { "it took $took" }
    }

    @Test
    fun `a process that was frozen for longer than its lease detects the loss when it continues`(): Unit = runBlocking {
        Child("loses", "asleep").use { child ->
            child.isReady()
            signal(child.process.pid(), "STOP")
            client.lock("asleep", wait = PATIENCE).withLock {
                // Frozen, so that no reply can report the loss.
                server.freeze()
                try {
                    signal(child.process.pid(), "CONT")
                    child.says("lost")
                } finally {
                    server.thaw()
                }
            }
            assertEquals(0, child.ends().first)
        }
    }

    @Test
    fun `a forgotten lease is no longer renewed, and somebody is told`() {
        runBlocking { hasty.lock("forgotten").acquire() }
        endsForgotten("forgotten")
    }

    @Test
    fun `the lock of a thread that ended is no longer renewed`() {
        thread { hasty.lock("thread").asJavaLock().lock() }.join()
        endsForgotten("thread")
    }

    private fun endsForgotten(name: String) {
        eventually("it is collected") {
            System.gc()
            logged.any { it.startsWith("WARNING lock \"$name\"") && FORGOTTEN in it }
        }
        logged.removeIf { FORGOTTEN in it }
        eventually("it ends with its ttl") { !server.holds(name) }
    }

    @Test
    fun `a lease with a reference is renewed, even without its lock object`(): Unit = runBlocking {
        val lease = hasty.lock("kept").acquire()
        repeat(15) {
            System.gc()
            delay(100.milliseconds) // 1.5 s in all, longer than the lease of 900 ms
        }
        assertTrue(lease.held)
        lease.release()
    }
}
