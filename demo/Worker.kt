// The demo's worker in Kotlin: does the same as `worker.py`, with the same file and log.
//
// Usage: Worker URLS FILE LOG. Stops on SIGTERM.

package dev.redlock.demo

import dev.redlock.Lease
import dev.redlock.LockError
import dev.redlock.Redlock
import dev.redlock.RedlockOptions
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import sun.misc.Signal
import java.io.File
import java.io.FileOutputStream
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.util.logging.Level
import java.util.logging.Logger
import kotlin.random.Random
import kotlin.time.Duration.Companion.microseconds
import kotlin.time.Duration.Companion.seconds

/** Seconds on a clock that all processes of this machine share, in every language. */
private fun now() = System.nanoTime() / 1e9

private class Worker(file: String, log: String) {
    private val ledger = RandomAccessFile(file, "rw").channel
    private val notes = FileOutputStream(log, true)

    fun note(vararg words: Any?) = notes.write((words.joinToString(" ") + "\n").toByteArray())

    /** Reads the file: count, token and process of the last change that was started, and of the last one finished. */
    private fun read(): List<String> {
        val bytes = ByteBuffer.allocate(256)
        ledger.read(bytes, 0)
        return String(bytes.array()).lines().take(2).map { it.substringAfter(' ') }
    }

    private fun write(begin: String, end: String) {
        ledger.write(ByteBuffer.wrap("begin $begin\nend $end\n".padEnd(256).toByteArray()), 0)
    }

    /** Makes one change, in two halves: a second writer would notice the first half, or damage it. */
    suspend fun change(lease: Lease) {
        val (begin, before) = read()
        val (count, token) = before.split(" ").map(String::toLong)
        if (begin != before) {
            // Either the last holder died inside, or two holders are inside right now.
            val alive = File("/proc/${begin.split(" ")[2]}").exists()
            note(if (alive) "corrupt" else "interrupted", lease.token, now())
        }
        if (lease.token <= token) note("stale", lease.token, now())
        val after = "${count + 1} ${lease.token} ${ProcessHandle.current().pid()}"
        write(after, before)
        delay(Random.nextInt(500, 3000).microseconds) // the work
        lease.check()
        if (read() != listOf(after, before)) note("corrupt", lease.token, now())
        write(after, after)
        note("done", lease.token, now())
    }
}

/** The library's logger, referred to so that it keeps its level. The demo's view shows the state of nodes already. */
private val log = Logger.getLogger("redlock")

/** The same logger; without a reference its level would be forgotten. */
private val logger = Logger.getLogger("redlock")

@Volatile
private var stopped = false

fun main(arguments: Array<String>): Unit = runBlocking {
    val (urls, ledger, notes) = arguments
    log.level = Level.OFF
    // Replaces the JVM's own shutdown, which closes all clients, so that the current change is finished.
    Signal.handle(Signal("TERM")) { stopped = true }
    val worker = Worker(ledger, notes)
    Redlock(urls.split(","), RedlockOptions(watchdog = 2.seconds, maxTtl = 8.seconds)).use { client ->
        val lock = client.lock("demo:ledger")
        while (!stopped) {
            val wanted = now()
            try {
                lock.withLock { lease ->
                    worker.note("grant", lease.token, now(), now() - wanted)
                    worker.change(lease)
                    worker.note("release", lease.token, now())
                }
            } catch (error: LockError) {
                worker.note("error", error.code, now(), error.message)
            }
        }
    }
}
