// Uses an installed redlock-core from Kotlin, as a user's program does, on memory://. Prints one line about what it
// did, or fails. It is written for Kotlin 1.9.

package dev.redlock.consumer

import dev.redlock.LockLost
import dev.redlock.LostReason
import dev.redlock.Redlock
import dev.redlock.ReleaseOutcome
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineStart
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.joinAll
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import kotlinx.coroutines.yield
import kotlin.time.Duration.Companion.seconds

fun main(): Unit = runBlocking(Dispatchers.Default) {
    Redlock("memory://").use { client ->
        // A call that hangs fails.
        val did = withTimeout(60.seconds) {
            listOf(block(client), contention(client), cancellation(client), loss(client), threads(client))
        }
        println("Kotlin ${KotlinVersion.CURRENT}, Java ${System.getProperty("java.version")}: ${did.joinToString()}")
    }
}

private suspend fun block(client: Redlock): String {
    val token: Long
    client.lock("block").withLock { lease ->
        token = lease.token
        lease.check()
    }
    demand(token > 0, "a token")
    demand(client.lock("block").withLock { "result" } == "result", "the result of a block")
    return "withLock"
}

private suspend fun contention(client: Redlock): String {
    var inside = 0
    var entered = 0
    coroutineScope {
        List(COROUTINES) {
            launch {
                client.lock("contention").withLock {
                    demand(inside++ == 0, "one coroutine at a time")
                    yield()
                    entered++
                    inside--
                }
            }
        }.joinAll()
    }
    demand(entered == COROUTINES, "$COROUTINES coroutines, not $entered")
    return "contention"
}

private suspend fun cancellation(client: Redlock): String = coroutineScope {
    val lock = client.lock("cancelled")
    val lease = lock.acquire()
    val waiting = launch(start = CoroutineStart.UNDISPATCHED) { lock.withLock { demand(false, "no entry") } }
    waiting.cancelAndJoin()
    demand(lease.release() == ReleaseOutcome.RELEASED, "a release")
    val next = lock.tryAcquire()
    demand(next != null, "a lock that the cancelled waiter does not have")
    next?.release()
    // Cancelled while it holds the lock: an acquire that is cancelled is taken back in the background.
    val held = CompletableDeferred<Unit>()
    val holding = launch {
        lock.withLock {
            held.complete(Unit)
            awaitCancellation()
        }
    }
    held.await()
    holding.cancelAndJoin()
    demand(!lock.locked(), "a lock that the cancelled holder released")
    "cancellation"
}

private suspend fun loss(client: Redlock): String {
    val failure = runCatching {
        client.lock("lost").withLock {
            client.forceRelease("lost")
            awaitCancellation()
        }
    }.exceptionOrNull()
    demand(failure is LockLost && failure.reason == LostReason.RELEASED, "a loss, not $failure")
    return "loss"
}

private fun threads(client: Redlock): String {
    val lock = client.lock("threads").asJavaLock()
    demand(lock.withLock { lock.isHeldByCurrentThread }, "a lock of this thread")
    demand(!lock.isHeldByCurrentThread, "its release")
    return "threads"
}

private fun demand(met: Boolean, what: String) = check(met) { "not seen: $what" }

private const val COROUTINES = 100
