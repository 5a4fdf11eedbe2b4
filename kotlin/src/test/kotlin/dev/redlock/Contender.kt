// One process that takes and releases a lock so many times and logs it: Contender URLS NAME TIMES LOG. The project's
// `tests/tests/languages.rs` starts it beside those of the other languages; `tests/src/history.rs` describes the log.

package dev.redlock

import kotlinx.coroutines.runBlocking
import java.io.FileOutputStream

fun main(arguments: Array<String>): Unit = runBlocking {
    val (urls, name, times, path) = arguments
    FileOutputStream(path, true).use { log ->
        Redlock(urls.split(",")).use { client ->
            val lock = client.lock(name)
            repeat(times.toInt()) {
                val lease = lock.acquire()
                val granted = System.nanoTime()
                // Taken before the release is sent: from then on somebody else may hold it.
                val released = System.nanoTime()
                lease.release()
                log.write("grant ${lease.token} $granted\nrelease ${lease.token} $released\n".toByteArray())
            }
        }
    }
}
