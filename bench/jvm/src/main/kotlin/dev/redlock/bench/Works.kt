// The works that a contender can do, and how it measures them.

package dev.redlock.bench

import com.fasterxml.jackson.databind.JsonNode
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.withContext
import java.io.File
import java.util.concurrent.atomic.AtomicInteger
import kotlin.math.ceil
import kotlin.time.Duration.Companion.seconds

/** The answer to a work, a JSON object. */
typealias Answer = Map<String, Any>

/** Performs a work. */
suspend fun Library.answer(work: JsonNode): Answer = when (val name = work["work"].asText()) {
    "pair" -> pair(work, null)
    "block" -> block(work)
    "nested" -> nested(work)
    "parallel" -> withContext(Dispatchers.Default) { parallel(work) }
    "independent" -> withContext(Dispatchers.Default) { callers(work) { release(acquire(it)) } }
    "blocks" -> withContext(Dispatchers.Default) { callers(work) { block(it) } }
    "shared" -> withContext(Dispatchers.Default) { shared(work) }
    "names" -> withContext(Dispatchers.Default) { names(work) }
    "contend" -> contend(work)
    "herd" -> withContext(Dispatchers.Default) { herd(work) }
    else -> error("unknown work $name")
}

/** One acquire and release after the other. */
private suspend fun Library.pair(work: JsonNode, owner: String?): Answer {
    val name = work["prefix"].asText()
    return repeated(work) { alone.release(alone.acquire(name, owner)) }
}

private suspend fun Library.block(work: JsonNode): Answer {
    val name = work["prefix"].asText()
    return repeated(work) { alone.block(name) }
}

private inline fun repeated(work: JsonNode, once: () -> Unit): Answer {
    val latencies = ArrayList<Long>()
    val start = System.nanoTime()
    val end = start + work.nanos("seconds")
    var now = start
    while (now < end) {
        once()
        val then = now
        now = System.nanoTime()
        latencies += now - then
    }
    return measured(latencies, now - start)
}

private suspend fun Library.nested(work: JsonNode): Answer {
    if (!reentrant) throw Unsupported("not re-entrant")
    val owner = "nested"
    val outer = alone.acquire(work["prefix"].asText(), owner)
    try {
        return pair(work, owner)
    } finally {
        alone.release(outer)
    }
}

private suspend fun Library.parallel(work: JsonNode): Answer {
    val locks = together ?: throw Unsupported("blocks threads")
    val names = List(work["at_once"].asInt()) { "${work["prefix"].asText()}-$it" }
    val latencies = ArrayList<Long>()
    val start = System.nanoTime()
    val end = start + work.nanos("seconds")
    var now = start
    while (now < end) {
        val asked = now
        latencies += coroutineScope {
            names.map { name ->
                async {
                    locks.release(locks.acquire(name))
                    System.nanoTime() - asked
                }
            }.awaitAll()
        }
        now = System.nanoTime()
    }
    return measured(latencies, now - start)
}

/** Runs `at_once` callers, each on a name of its own and independent of the others. */
private suspend fun Library.callers(work: JsonNode, once: suspend Locks.(String) -> Unit): Answer {
    val locks = together ?: throw Unsupported("blocks threads")
    val start = System.nanoTime()
    val end = start + work.nanos("seconds")
    val latencies = coroutineScope {
        List(work["at_once"].asInt()) { index ->
            async {
                val own = ArrayList<Long>()
                var now = System.nanoTime()
                while (now < end) {
                    locks.once("${work["prefix"].asText()}-$index")
                    val then = now
                    now = System.nanoTime()
                    own += now - then
                }
                own
            }
        }.awaitAll()
    }
    return measured(latencies.flatten(), System.nanoTime() - start)
}

/** Runs `at_once` callers on one read/write lock or semaphore, each independent of the others. */
private suspend fun Library.shared(work: JsonNode): Answer {
    val (name, kind) = work["prefix"].asText() to work["kind"].asText()
    val hold = work["hold"].asDouble().seconds
    return callers(work) {
        val lease = acquireKind(kind, name)
        if (hold.isPositive()) delay(hold)
        release(lease)
    }
}

/** Acquires and releases many locks once each. */
private suspend fun Library.names(work: JsonNode): Answer {
    val locks = together ?: throw Unsupported("blocks threads")
    val (prefix, count) = work["prefix"].asText() to work["count"].asInt()
    val next = AtomicInteger()
    val start = System.nanoTime()
    coroutineScope {
        repeat(work["at_once"].asInt()) {
            launch {
                for (number in generateSequence(next::getAndIncrement).takeWhile { it < count }) {
                    locks.block("$prefix-$number")
                }
            }
        }
    }
    return mapOf("seconds" to (System.nanoTime() - start) / NANOS, "rss" to residentSet())
}

private suspend fun Library.contend(work: JsonNode): Answer {
    if (!waits) throw Unsupported("does not wait")
    val name = work["name"].asText()
    val (hold, rest) = listOf("hold", "rest").map { work[it].asDouble().seconds }
    val until = work["until"].asLong()
    val turns = ArrayList<List<Long>>()
    val failures = ArrayList<String>()
    // On Linux `nanoTime` is CLOCK_MONOTONIC, the same in every process.
    while (System.nanoTime() < until) {
        val asked = System.nanoTime()
        try {
            val lease = alone.acquire(name)
            val granted = System.nanoTime()
            delay(hold)
            val releasing = System.nanoTime()
            alone.release(lease)
            turns += listOf(asked, granted, releasing, System.nanoTime())
        } catch (failure: Exception) {
            failures += failure.toString()
        }
        delay(rest)
    }
    return if (failures.isEmpty()) mapOf("turns" to turns) else mapOf("turns" to turns, "failures" to failures)
}

private suspend fun Library.herd(work: JsonNode): Answer {
    if (!waits) throw Unsupported("does not wait")
    val locks = together ?: throw Unsupported("blocks threads")
    noHerd?.let { throw Unsupported(it) }
    val name = work["name"].asText()
    val order = ArrayList<Int>()
    val held = locks.acquire(name)
    val before = residentSet()
    return coroutineScope {
        val waiters = List(work["waiters"].asInt()) { index ->
            // Undispatched, so that they send their requests in order.
            async(start = CoroutineStart.UNDISPATCHED) {
                runCatching {
                    val lease = locks.acquire(name)
                    order += index // one at a time: this one has the lock
                    locks.release(lease)
                }.exceptionOrNull()
            }
        }
        // All requests are sent. A second later all of them have been denied.
        delay(1.seconds)
        val after = residentSet()
        val start = System.nanoTime()
        locks.release(held)
        val failures = waiters.awaitAll().filterNotNull()
        val seconds = (System.nanoTime() - start) / NANOS
        check(failures.isEmpty()) { "${failures.size} of ${waiters.size} waiters failed: ${failures.first()}" }
        mapOf(
            "seconds" to seconds,
            "in_order" to (order == order.sorted()),
            "rss_before" to before,
            "rss_after" to after,
        )
    }
}

/** The answer to an uncontended work. */
private fun measured(latencies: List<Long>, nanos: Long): Answer {
    val sorted = latencies.sorted()
    fun percentile(share: Double) = sorted[ceil(share * sorted.size).toInt() - 1] / NANOS
    return mapOf(
        "count" to sorted.size,
        "seconds" to nanos / NANOS,
        "p50" to percentile(0.5),
        "p99" to percentile(0.99),
    )
}

/** Memory in bytes, after garbage collection. */
private fun residentSet(): Long {
    repeat(3) { System.gc() } // one collection frees objects, a later one returns their memory
    val line = File("/proc/self/status").readLines().single { it.startsWith("VmRSS:") }
    return line.split(Regex("\\s+"))[1].toLong() * 1024
}

private fun JsonNode.nanos(field: String) = (this[field].asDouble() * NANOS).toLong()

private const val NANOS = 1e9
