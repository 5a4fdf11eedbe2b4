// A process that acquires and releases a lock TIMES times and logs each grant and release:
//
//     Contender URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX [KIND]]]]]
//
// It holds the lock for up to HOLD_MS milliseconds and pauses for up to PAUSE_MS after each release. With PAUSE_MS it
// also logs when each acquire was called. KIND is `lock`, `fair`, `read_write` (most turns are readers') or
// `semaphore:SLOTS` (a turn acquires one slot or two); with a KIND it logs what each turn holds, too. `tests/tests/languages.rs` starts it together with those of the other
// languages; `tests/src/history.rs` describes the log.

package dev.redlock

import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import java.io.FileOutputStream
import kotlin.random.Random

fun main(arguments: Array<String>): Unit = runBlocking {
    val (urls, name, times, path) = arguments
    val hold = arguments.getOrNull(4)?.toLong() ?: 0
    val pause = arguments.getOrNull(5)?.toLong() ?: 0
    var options = RedlockOptions()
    arguments.getOrNull(6)?.let { options = options.wire(Wire.valueOf(it.uppercase())) }
    arguments.getOrNull(7)?.let { options = options.prefix(it) }
    FileOutputStream(path, true).use { log ->
        Redlock(urls.split(","), options).use { client ->
            val kind = arguments.getOrNull(8)
            val target = Target(client, kind ?: "lock", name)
            repeat(times.toInt()) { turn ->
                val (acquire, share) = target.draw()
                val called = if (pause > 0 || kind != null) " ${System.nanoTime()}" else ""
                val lease = acquire()
                val granted = System.nanoTime()
                rest(hold)
                // The time is read before the release is sent, because another owner may hold the lock from then on. If
                // the lease is held after that, it was held at that time.
                val released = System.nanoTime()
                val tenure = if (kind == null) "" else " $turn"
                val end = if (lease.held) "release ${lease.token} $released$tenure\n" else ""
                lease.release()
                val slots = lease.slots.zip(lease.tokens).joinToString(",") { (slot, token) -> "$slot:$token" }
                val held = "$tenure ${if (share == "slots") slots else share}".trimEnd()
                log.write("grant ${lease.token} $granted$called$held\n$end".toByteArray())
                rest(pause)
            }
        }
    }
}

/** The lock of one of our kinds, and how a turn acquires it. */
private class Target(client: Redlock, kind: String, name: String) {
    private val permits = kind.substringAfter(':', "0").toInt()
    private val semaphore = if (permits > 0) client.semaphore(name, permits) else null
    private val readWriteLock = if (kind == "read_write") client.readWriteLock(name) else null
    private val lock = if (kind in setOf("lock", "fair")) client.lock(name, fair = kind == "fair") else null

    /** The call of an acquire, and what it holds, as the log says it. */
    fun draw(): Pair<suspend () -> Lease, String> {
        if (semaphore != null) {
            val n = Random.nextInt(1, minOf(2, permits) + 1)
            return suspend { semaphore.acquire(n) } to "slots"
        }
        if (readWriteLock == null) return suspend { checkNotNull(lock).acquire() } to ""
        if (Random.nextDouble() < 0.7) return suspend { readWriteLock.readLock.acquire() } to "read"
        return suspend { readWriteLock.writeLock.acquire() } to "write"
    }
}

private suspend fun rest(most: Long) {
    if (most > 0) delay(Random.nextLong(most + 1))
}
