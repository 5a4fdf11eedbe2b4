// A contender of the benchmark: contender.jar LIBRARY, with the servers' URLs in REDIS_URLS, separated by commas.
// Prints a line when it is ready, and then answers each line of its input, a JSON object, with a line. It works and
// measures; the harness evaluates the numbers.

package dev.redlock.bench

import com.fasterxml.jackson.databind.ObjectMapper
import kotlinx.coroutines.runBlocking
import kotlin.concurrent.thread
import kotlin.system.exitProcess

private class Contender(val group: String, val artifact: String, val connect: (List<String>) -> Library)

private val contenders = mapOf(
    "redlock" to Contender("dev.redlock", "redlock-core", ::OursForCoroutines),
    "redlock-java" to Contender("dev.redlock", "redlock-core", ::OursForThreads),
    "redisson-rlock" to Contender("org.redisson", "redisson", ::RedissonRLock),
    "redisson-rfenced" to Contender("org.redisson", "redisson", ::RedissonRFenced),
    "bare" to Contender("io.lettuce", "lettuce-core", ::Bare),
)

fun main(arguments: Array<String>) {
    val answers = System.out
    // Standard output is for answers; a library may print to standard error.
    System.setOut(System.err)
    val json = ObjectMapper()
    fun say(answer: Answer) {
        answers.println(json.writeValueAsString(answer))
        answers.flush()
    }

    val name = arguments.single()
    val contender = requireNotNull(contenders[name]) { "one of ${contenders.keys}, not $name" }
    val library = runCatching { contender.connect(System.getenv("REDIS_URLS").split(",")) }
    val version = versionOf(contender.group, contender.artifact)
    say(mapOf("ready" to true, "library" to name, "version" to version, "runtime" to "java ${Runtime.version()}"))
    for (line in generateSequence(::readlnOrNull)) {
        val answer = runCatching { runBlocking { library.getOrThrow().answer(json.readTree(line)) } }
        say(
            answer.getOrElse { failure ->
                if (failure is Unsupported) {
                    mapOf("unsupported" to failure.message.orEmpty())
                } else {
                    mapOf("error" to failure.toString())
                }
            },
        )
    }
    // Ends the process even if the library leaves threads behind.
    thread(isDaemon = true) { library.getOrNull()?.close() }.join(2_000)
    exitProcess(0)
}
