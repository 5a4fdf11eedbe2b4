// Real redis-servers for tests: started on free ports, killed, frozen and thawed at will.

package dev.redlock

import java.io.BufferedReader
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlin.time.TimeSource

private val offsets = AtomicInteger((ProcessHandle.current().pid() * 97 % 1_000).toInt())

/**
 * A port of 127.0.0.1 that nobody listens on, below those that the kernel gives to outgoing connections, where tests of
 * no other language look for one: nobody takes it while its server is down.
 */
fun freePort(): Int {
    while (true) {
        val port = 9_000 + offsets.getAndIncrement() % 1_000
        runCatching { ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close() }.onSuccess { return port }
    }
}

/** Waits until a condition is true; fails when it is not within a time far beyond what a busy machine needs. */
fun eventually(what: String, condition: () -> Boolean) {
    val start = TimeSource.Monotonic.markNow()
    while (!condition()) {
        check(start.elapsedNow() < PATIENCE) { "not within $PATIENCE: $what" }
        Thread.sleep(5)
    }
}

/** A redis-server without persistence. It keeps its port when it is started again. */
class RedisServer(private vararg val arguments: String) : AutoCloseable {
    val port = freePort()
    val url = "redis://127.0.0.1:$port"
    private val directory: Path = Files.createTempDirectory("redlock-")
    private var process: Process? = null

    init {
        start()
    }

    fun start() {
        val command = listOf("redis-server", "--port", "$port", "--bind", "127.0.0.1", "--save", "") + arguments
        val started = ProcessBuilder(command).directory(directory.toFile())
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).start()
        process = started
        eventually("redis-server answers") {
            check(started.isAlive) { "redis-server ended" }
            runCatching { command("PING") }.isSuccess
        }
    }

    /** Ends it at once, as a power failure would. */
    fun kill() {
        val running = process ?: return
        process = null
        running.destroyForcibly()
        check(running.waitFor(10, TimeUnit.SECONDS)) { "redis-server does not end" }
    }

    /** Lets it answer nothing while its connections stay open. */
    fun freeze() = signal("STOP")

    /** Ends [freeze]: it goes on with what it was sent meanwhile. */
    fun thaw() = signal("CONT")

    private fun signal(name: String) = signal(checkNotNull(process).pid(), name)

    /** Runs one command on a connection of its own: strings, longs, null, or lists of these. */
    fun command(vararg words: String): Any? = Socket(InetAddress.getLoopbackAddress(), port).use { socket ->
        socket.soTimeout = 10_000
        val request = words.joinToString("", "*${words.size}\r\n") { "$${it.length}\r\n$it\r\n" }
        socket.getOutputStream().write(request.toByteArray())
        reply(socket.getInputStream().bufferedReader())
    }

    private fun reply(reader: BufferedReader): Any? {
        val line = checkNotNull(reader.readLine()) { "redis-server hung up" }
        val rest = line.drop(1)
        return when (line.first()) {
            '+' -> rest
            ':' -> rest.toLong()
            '$' -> if (rest == "-1") null else reader.readLine()
            '*' -> List(rest.toInt()) { reply(reader) }
            else -> error("redis-server answered $line")
        }
    }

    /** Whether the key of a lock exists. */
    fun holds(lock: String) = command("EXISTS", lock) == 1L

    /** The locks that are held, without redlock's own records. */
    fun locks(): List<Any?> = (command("KEYS", "*") as List<*>).filterNot { "$it".startsWith("redlock_") }

    /** How many connections wait for the release of a lock. */
    fun listeners(lock: String): Long =
        (command("PUBSUB", "NUMSUB", "redisson_lock__channel:{$lock}") as List<*>).last() as Long

    override fun close() {
        kill()
        directory.toFile().deleteRecursively()
    }
}

/** What these tests and their JVMs run with. */
fun classPath(): String = System.getProperty("surefire.test.class.path") ?: System.getProperty("java.class.path")

/** A main class of these tests in a JVM of its own. Options of the JVM may come before it. */
fun java(vararg arguments: String): ProcessBuilder {
    val java = Path.of(System.getProperty("java.home"), "bin", "java")
    // A shell starts what it runs in the background with Ctrl-C ignored, and so would every process below it.
    return ProcessBuilder("env", "--default-signal=INT", "$java", "-cp", classPath(), *arguments)
}

/** Sends a signal to a process that a test started. */
fun signal(process: Long, name: String) {
    check(ProcessBuilder("kill", "-$name", "$process").start().waitFor() == 0)
}

/** A time that no test reaches unless something hangs. */
val PATIENCE = 60.seconds

/** So short that a poll, but no message, could be that late. */
val AT_ONCE = 1500.milliseconds
