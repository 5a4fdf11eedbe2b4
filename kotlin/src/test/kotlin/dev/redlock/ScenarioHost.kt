// Kotlin's host of the shared scenarios: runs the steps of actors. It speaks the protocol of
// `tests/scenarios/README.md`. Each acquire is an owner of its own, so the host asks the runner for explicit owners
// (`actors` is false).

package dev.redlock

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.ObjectMapper
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.ExperimentalCoroutinesApi
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.time.Instant
import java.util.concurrent.ConcurrentHashMap
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import java.time.Duration as JavaDuration

/** A value in a step that the Kotlin API has no type for. */
private class Unspeakable(message: String) : Exception(message)

private fun JsonNode.text(name: String): String? = get(name)?.asText()

private fun JsonNode.number(name: String): Double? = get(name)?.let {
    if (it.asText() == "nan") throw Unspeakable("${name.removeSuffix("_ms")}: no such number") else it.asDouble()
}

private fun JsonNode.whole(name: String): Int? = number(name)?.let {
    if (it % 1 != 0.0) throw Unspeakable("$name: no whole number") else it.toInt()
}

private fun JsonNode.time(name: String): Duration? = number(name)?.milliseconds

private fun JsonNode.clientOptions() = RedlockOptions(
    quorum = get("quorum")?.asInt(),
    watchdog = time("watchdog_ms"),
    prefix = text("prefix"),
    wire = text("wire")?.let { word ->
        Wire.entries.find { it.name.lowercase() == word } ?: throw Unspeakable("wire: no such word")
    },
    drift = number("drift"),
    maxTtl = time("max_ttl_ms"),
    patience = time("patience_ms"),
    identify = get("identify")?.asBoolean(),
    app = text("app"),
)

private fun JsonNode.lockOptions(): LockOptions {
    val isAdaptive = text("ttl_ms") == "adaptive"
    val ttl = if (isAdaptive) null else time("ttl_ms")
    fun flag(name: String) = get(name)?.asBoolean()
    val options =
        LockOptions(
            ttl,
            time("wait_ms"),
            text("owner"),
            time("max_hold_ms"),
            flag("reentrant"),
            flag("fair"),
            time("min_hold_ms"),
        )
    return if (isAdaptive) options.adaptiveTtl() else options
}

/** The clients, leases and texts of one scenario. */
private class World {
    private val clients = ConcurrentHashMap<String, Redlock>()
    private val leases = ConcurrentHashMap<String, Lease>()
    private val texts = ConcurrentHashMap<String, String>()

    private fun connect(given: JsonNode) =
        Redlock(given["urls"].map(JsonNode::asText), given["options"].clientOptions())

    private fun client(given: JsonNode) = clients.computeIfAbsent(given["name"].asText()) { connect(given) }

    private fun keep(step: JsonNode, lease: Lease): Any {
        // A lease without a name is also kept until the end, so that it is not collected.
        leases[step.text("as") ?: "unnamed ${lease.token}"] = lease
        return mapOf("token" to lease.token, "name" to lease.name, "owner" to lease.owner, "slots" to lease.slots)
    }

    /** Runs the step of an order and returns its result as plain values. */
    suspend fun perform(order: JsonNode): Any? {
        val step = order["step"]
        val lease = step.text("lease")?.let(leases::getValue)
        val value = if (lease == null) order["client"].perform(step) else lease.perform(step)
        return value.takeUnless { it is Unit }
    }

    private suspend fun Lease.perform(step: JsonNode): Any? = when (val verb = step["do"].asText()) {
        "release" -> release().code
        "held" -> held
        "remaining" -> remaining().inWholeMicroseconds / 1000.0
        "check" -> check()
        "extend" -> extend(step.time("ttl_ms")!!)
        "downgrade" -> downgrade()
        "try_upgrade" -> tryUpgrade()
        "token" -> token
        "detach" -> texts.set(step.text("as").orEmpty(), detach())
        "wait_lost" -> apply { lost.join() }.lostReason?.code
        else -> error("no verb $verb")
    }

    private suspend fun JsonNode.perform(step: JsonNode): Any? = when (step["do"].asText()) {
        "client" -> connect(this).close()
        "close" -> client(this).close()
        "attach" -> step["text"].asText().let { keep(step, client(this).attach(texts[it] ?: it)) }
        "force_release" -> client(this).forceRelease(step["lock"].asText())
        else -> client(this).perform(step)
    }

    private suspend fun Redlock.perform(step: JsonNode): Any? =
        if (step.has("permits")) semaphore(step).perform(step) else lock(step).perform(step)

    private fun Redlock.semaphore(step: JsonNode) =
        semaphore(step["lock"].asText(), step.whole("permits")!!, step.lockOptions())

    private suspend fun Semaphore.perform(step: JsonNode): Any? = when (val verb = step["do"].asText()) {
        "acquire" -> keep(step, acquire(step.whole("n") ?: 1))
        "try_acquire" -> keep(step, acquire(step.whole("n") ?: 1, Duration.ZERO))
        "available" -> availablePermits()
        else -> error("no verb $verb")
    }

    private fun Redlock.lock(step: JsonNode): Lock {
        val (name, options) = step["lock"].asText() to step.lockOptions()
        return when (step.text("part")) {
            null -> lock(name, options)
            "read" -> readWriteLock(name, options).readLock
            else -> readWriteLock(name, options).writeLock
        }
    }

    private suspend fun Lock.perform(step: JsonNode): Any? = when (val verb = step["do"].asText()) {
        "acquire" -> keep(step, acquire())
        "try_acquire" -> keep(step, acquire(Duration.ZERO))
        "unlock" -> release().code
        "owned" -> owned()
        "locked" -> locked()
        "inspect" -> inspect()?.told()
        else -> error("no verb $verb")
    }

    private fun LockInfo.told() = mapOf(
        "owner" to owner,
        "token" to token,
        "ttl_ms" to ttlMillis,
        "kind" to kind.name.lowercase(),
        "owners" to owners.size,
        "app" to app,
        "process" to (!host.isNullOrEmpty() && pid != null),
        "recent" to (since?.let { JavaDuration.between(it, Instant.now()).abs() < JavaDuration.ofMinutes(1) } ?: false),
    )

    fun end() = clients.values.forEach(Redlock::close)
}

private val json = ObjectMapper()

private fun answer(vararg fields: Pair<String, Any?>) =
    synchronized(System.out) { println(json.writeValueAsString(mapOf(*fields))) }

private suspend fun follow(order: JsonNode, world: World) {
    val id = "id" to order["id"]
    fun fail(code: String, message: String?, reason: String? = null) =
        answer(id, "error" to mapOf("code" to code, "message" to message, "reason" to reason))
    try {
        answer(id, "value" to world.perform(order))
    } catch (_: CancellationException) {
        answer(id, "cancelled" to true)
    } catch (error: LockError) {
        fail(error.code, error.message, (error as? LockLost)?.reason?.code)
    } catch (error: Unspeakable) {
        fail("invalid", error.message)
    } catch (bug: Throwable) {
        fail("bug", bug.stackTraceToString())
    }
}

@OptIn(ExperimentalCoroutinesApi::class)
fun main(): Unit = runBlocking(Dispatchers.Default) {
    answer("hello" to "kotlin", "actors" to false, "cancel" to true)
    val worlds = ConcurrentHashMap<Long, World>()
    val running = ConcurrentHashMap<Long, Job>()
    for (order in generateSequence { readlnOrNull()?.let(json::readTree) }) {
        order["cancel"]?.let { running[it.asLong()]?.cancel() }
        order["end"]?.let { scenario ->
            launch(Dispatchers.IO) {
                worlds.remove(scenario.asLong())?.end()
                answer("ended" to scenario)
            }
        }
        order["id"]?.let { id ->
            val world = worlds.computeIfAbsent(order["scenario"].asLong()) { World() }
            // ATOMIC, so that an order that is cancelled before it starts is answered, too.
            running[id.asLong()] = launch(start = CoroutineStart.ATOMIC) { follow(order, world) }
        }
    }
}
