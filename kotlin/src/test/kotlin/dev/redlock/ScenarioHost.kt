// Kotlin's host of the shared scenarios: does with locks and leases what actors do. It speaks the protocol of
// `tests/scenarios/README.md`. Each acquire is an owner of its own, so it asks the runner to name owners.

package dev.redlock

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.DelicateCoroutinesApi
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.Job
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.contentOrNull
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long
import java.util.concurrent.ConcurrentHashMap
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds

/** What the types of Kotlin cannot hold. */
private class Unspeakable(message: String) : Exception(message)

private fun JsonObject.value(name: String): JsonPrimitive? = this[name]?.jsonPrimitive?.takeUnless { it is JsonNull }

private fun JsonObject.text(name: String): String? = value(name)?.content

private fun JsonObject.number(name: String): Double? = value(name)?.let {
    if (it.contentOrNull == "nan") throw Unspeakable("${name.removeSuffix("_ms")}: no such number") else it.double
}

private fun JsonObject.time(name: String): Duration? = number(name)?.milliseconds

private fun <T : Enum<T>> JsonObject.word(name: String, words: List<T>): T? = text(name)?.let { word ->
    words.find { it.name.lowercase() == word } ?: throw Unspeakable("$name: no such word")
}

private fun JsonObject.clientOptions() = RedlockOptions(
    quorum = value("quorum")?.int,
    watchdog = time("watchdog_ms"),
    prefix = text("prefix"),
    wire = word("wire", Wire.entries),
    drift = number("drift"),
    maxTtl = time("max_ttl_ms"),
    patience = time("patience_ms"),
)

private fun JsonObject.lockOptions(): LockOptions {
    val isAdaptive = text("ttl_ms") == "adaptive"
    val ttl = if (isAdaptive) null else time("ttl_ms")
    val options = LockOptions(ttl, time("wait_ms"), text("owner"), time("max_hold_ms"), value("reentrant")?.boolean)
    return if (isAdaptive) options.adaptiveTtl() else options
}

private fun of(vararg fields: Pair<String, Any?>) = JsonObject(
    fields.associate { (name, value) ->
        name to when (value) {
            is JsonElement -> value
            is Number -> JsonPrimitive(value)
            is Boolean -> JsonPrimitive(value)
            else -> JsonPrimitive(value as String?)
        }
    },
)

/** The clients, leases and texts of one scenario. */
private class World {
    private val clients = ConcurrentHashMap<String, Redlock>()
    private val leases = ConcurrentHashMap<String, Lease>()
    private val texts = ConcurrentHashMap<String, String>()

    private fun connect(given: JsonObject) =
        Redlock(given["urls"]!!.jsonArray.map { it.jsonPrimitive.content }, given["options"]!!.jsonObject.clientOptions())

    private fun client(given: JsonObject) = clients.computeIfAbsent(given.text("name")!!) { connect(given) }

    private fun keep(step: JsonObject, lease: Lease): JsonObject {
        // One without a name is held to the end all the same.
        leases[step.text("as") ?: "unnamed ${lease.token}"] = lease
        return of("token" to lease.token, "name" to lease.name, "owner" to lease.owner)
    }

    /** Does what an order says and returns it in plain values. */
    suspend fun perform(order: JsonObject): JsonElement {
        val step = order["step"]!!.jsonObject
        val verb = step.text("do")!!
        return step.text("lease")?.let { of(leases.getValue(it), verb, step) } ?: of(order["client"]!!.jsonObject, verb, step)
    }

    private suspend fun of(lease: Lease, verb: String, step: JsonObject): JsonElement = when (verb) {
        "release" -> JsonPrimitive(lease.release().code)
        "held" -> JsonPrimitive(lease.held)
        "remaining" -> JsonPrimitive(lease.remaining().inWholeMicroseconds / 1000.0)
        "check" -> JsonNull.also { lease.check() }
        "extend" -> JsonNull.also { lease.extend(step.time("ttl_ms")!!) }
        "detach" -> JsonNull.also { texts[step.text("as").orEmpty()] = lease.detach() }
        "wait_lost" -> JsonPrimitive(lease.apply { lost.join() }.lostReason?.code)
        else -> error("no verb $verb")
    }

    private suspend fun of(given: JsonObject, verb: String, step: JsonObject): JsonElement = when (verb) {
        "client" -> JsonNull.also { connect(given).close() }
        "close" -> JsonNull.also { client(given).close() }
        "attach" -> step.text("text")!!.let { keep(step, client(given).attach(texts[it] ?: it)) }
        "force_release" -> JsonPrimitive(client(given).forceRelease(step.text("lock")!!))
        else -> of(client(given).lock(step.text("lock")!!, step.lockOptions()), verb, step)
    }

    private suspend fun of(lock: Lock, verb: String, step: JsonObject): JsonElement = when (verb) {
        "acquire" -> keep(step, lock.acquire())
        "try_acquire" -> keep(step, lock.tryAcquire() ?: lock.acquire(Duration.ZERO))
        "unlock" -> JsonPrimitive(lock.release().code)
        "owned" -> JsonPrimitive(lock.owned())
        "locked" -> JsonPrimitive(lock.locked())
        "inspect" -> lock.inspect()?.let { of("owner" to it.owner, "token" to it.token, "ttl_ms" to it.ttlMillis) } ?: JsonNull
        else -> error("no verb $verb")
    }

    fun end() = clients.values.forEach(Redlock::close)
}

private fun answer(vararg fields: Pair<String, Any?>) = synchronized(System.out) { println(of(*fields)) }

private suspend fun follow(id: Long, order: JsonObject, world: World) {
    fun fail(code: String, message: String?, reason: String? = null) =
        answer("id" to id, "error" to of("code" to code, "message" to message, "reason" to reason))
    try {
        answer("id" to id, "value" to world.perform(order))
    } catch (_: CancellationException) {
        answer("id" to id, "cancelled" to true)
    } catch (error: LockError) {
        fail(error.code, error.message, (error as? LockLost)?.reason?.code)
    } catch (error: Unspeakable) {
        fail("invalid", error.message)
    } catch (bug: Throwable) {
        fail("bug", bug.stackTraceToString())
    }
}

@OptIn(DelicateCoroutinesApi::class)
fun main(): Unit = runBlocking(Dispatchers.Default) {
    answer("hello" to "kotlin", "actors" to false, "cancel" to true)
    val worlds = ConcurrentHashMap<Long, World>()
    val running = ConcurrentHashMap<Long, Job>()
    for (line in generateSequence(::readlnOrNull)) {
        val order = Json.parseToJsonElement(line).jsonObject
        val (id, scenario) = order.value("id")?.long to (order.value("scenario") ?: order.value("end"))?.long
        if (id == null) {
            order.value("cancel")?.let { running[it.long]?.cancel() }
            launch(Dispatchers.IO) {
                worlds.remove(scenario ?: return@launch)?.end()
                answer("ended" to scenario)
            }
        } else {
            val world = worlds.computeIfAbsent(scenario!!) { World() }
            // Also one that is cancelled before it begins answers.
            running[id] = launch(start = CoroutineStart.ATOMIC) { follow(id, order, world) }
        }
    }
}
