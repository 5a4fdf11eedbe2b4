// Starts real redis-servers for tests on free ports, and kills, freezes and thaws them.

package dev.redlock

import java.io.BufferedReader
import java.net.DatagramSocket
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.TimeUnit
import kotlin.random.Random
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlin.time.TimeSource

/** The claims on ports, until the process ends. */
private val claims = ConcurrentLinkedQueue<DatagramSocket>()

/**
 * Returns a free port of 127.0.0.1, which no other test takes before this process ends: a server that is stopped must
 * come back on its port. The owner of a TCP port holds the UDP port with the same number, which nobody uses; the tests
 * of all languages do that. The kernel does not take these ports for outgoing connections, for which it uses a higher
 * range.
 */
fun freePort(): Int {
    val address = InetAddress.getLoopbackAddress()
    while (true) {
        val port = Random.nextInt(10_000, 32_000)
        val claim = runCatching { DatagramSocket(port, address) }.getOrNull() ?: continue
        // Other programs listen without a claim.
        if (runCatching { ServerSocket(port, 1, address).close() }.isSuccess) {
            claims += claim
            return port
        }
        claim.close()
    }
}

/** Waits until a condition is true. Fails after [PATIENCE], which is far more than a busy machine needs. */
fun eventually(what: String, condition: () -> Boolean) {
    val start = TimeSource.Monotonic.markNow()
    while (!condition()) {
        check(start.elapsedNow() < PATIENCE) { "not within $PATIENCE: $what" }
        Thread.sleep(5)
    }
}

/** A redis-server without persistence. It keeps its port when it is restarted. */
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

    /** Kills the server, as a power failure would. */
    fun kill() {
        val running = process ?: return
        process = null
        running.destroyForcibly()
        check(running.waitFor(10, TimeUnit.SECONDS)) { "redis-server does not end" }
    }

    /** Stops the server's process: it does not answer, but its connections stay open. */
    fun freeze() = signal("STOP")

    /** Ends [freeze]: the server answers the requests that it received meanwhile. */
    fun thaw() = signal("CONT")

    private fun signal(name: String) = signal(checkNotNull(process).pid(), name)

    /** Runs one command on a connection of its own. Returns a string, a long, null, or a list of these. */
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

    /** The keys of held locks, without the library's own records. */
    fun locks(): List<Any?> = (command("KEYS", "*") as List<*>).filterNot { "$it".startsWith("redlock_") }

    /** The number of connections that listen for the release of a lock. */
    fun listeners(lock: String): Long =
        (command("PUBSUB", "NUMSUB", "redisson_lock__channel:{$lock}") as List<*>).last() as Long

    override fun close() {
        kill()
        directory.toFile().deleteRecursively()
    }
}

/** The class path of these tests and of the JVMs that they start. */
fun classPath(): String = System.getProperty("surefire.test.class.path") ?: System.getProperty("java.class.path")

/** Prepares a JVM of its own for a main class of these tests. Options of the JVM may come before the class. */
fun java(vararg arguments: String): ProcessBuilder {
    val java = Path.of(System.getProperty("java.home"), "bin", "java")
    // A shell starts background processes with SIGINT ignored, and their children inherit that.
    return ProcessBuilder("env", "--default-signal=INT", "$java", "-cp", classPath(), *arguments)
}

/** Sends a signal to a process that a test started. */
fun signal(process: Long, name: String) {
    check(ProcessBuilder("kill", "-$name", "$process").start().waitFor() == 0)
}

/** The time after which a test fails because something hangs. */
val PATIENCE = 60.seconds

/** A time within which a message arrives, but which a poll may exceed. */
val AT_ONCE = 1500.milliseconds
