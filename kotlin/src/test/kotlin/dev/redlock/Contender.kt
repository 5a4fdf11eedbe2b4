// One process that takes and releases a lock so many times and logs it: Contender URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS
// [WIRE [PREFIX]]]], to hold it for up to so many milliseconds, to let others go first for up to so many and note each call,
// and to write it as others do. The project's `tests/tests/languages.rs` starts it beside those of the other languages;
// `tests/src/history.rs` describes the log.

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
                // Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it
                // was at it.
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
