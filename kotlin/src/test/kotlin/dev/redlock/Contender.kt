// A process that acquires and releases a lock TIMES times and logs each grant and release:
//
//     Contender URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX]]]]
//
// It holds the lock for up to HOLD_MS milliseconds and pauses for up to PAUSE_MS after each release. With PAUSE_MS it
// also logs when each acquire was called. `tests/tests/languages.rs` starts it together with those of the other
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
            val lock = client.lock(name)
            repeat(times.toInt()) {
                val called = if (pause > 0) " ${System.nanoTime()}" else ""
                val lease = lock.acquire()
                val granted = System.nanoTime()
                rest(hold)
                // The time is read before the release is sent, because another owner may hold the lock from then on. If
                // the lease is held after that, it was held at that time.
                val released = System.nanoTime()
                val end = if (lease.held) "release ${lease.token} $released\n" else ""
                lease.release()
                log.write("grant ${lease.token} $granted$called\n$end".toByteArray())
                rest(pause)
            }
        }
    }
}

private suspend fun rest(most: Long) {
    if (most > 0) delay(Random.nextLong(most + 1))
}
