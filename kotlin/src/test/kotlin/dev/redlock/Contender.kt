// One process that takes and releases a lock so many times and logs it: Contender URLS NAME TIMES LOG [HOLD_MS], to hold
// it for up to so many milliseconds. The project's `tests/tests/languages.rs` starts it beside those of the other
// languages; `tests/src/history.rs` describes the log.

package dev.redlock

import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import java.io.FileOutputStream
import kotlin.random.Random

fun main(arguments: Array<String>): Unit = runBlocking {
    val (urls, name, times, path) = arguments
    val hold = arguments.getOrNull(4)?.toLong() ?: 0
    FileOutputStream(path, true).use { log ->
        Redlock(urls.split(",")).use { client ->
            val lock = client.lock(name)
            repeat(times.toInt()) {
                val lease = lock.acquire()
                val granted = System.nanoTime()
                if (hold > 0) delay(Random.nextLong(hold + 1))
                // Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it
                // was at it.
                val released = System.nanoTime()
                val end = if (lease.held) "release ${lease.token} $released\n" else ""
                lease.release()
                log.write("grant ${lease.token} $granted\n$end".toByteArray())
            }
        }
    }
}
