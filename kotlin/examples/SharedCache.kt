// A cache that many processes read. When it is too old, one of them rebuilds it, and the others wait for that.
//
//     scripts/kotlin-run dev.redlock.examples.SharedCacheKt [redis-url]
//
// The cache is a folder with two files, which belong together: prices, and an index of them. A reader must never see
// one of them old and the other one new.
//
// - A reader has the read lock while it reads. Readers do not wait for each other.
// - If the cache is too old, the reader releases its lock, acquires the write lock, and compares again: perhaps another
//   process has rebuilt the cache meanwhile. It must release first. Two readers that both kept their read locks would
//   wait for each other, so an acquire of the write lock inside the read lock fails with `WouldDeadlock`.
// - The process that rebuilt the cache downgrades its lease: it goes on as a reader, and the others come in.
//
// Each reader has a client of its own, as if it ran on a machine of its own.

package dev.redlock.examples

import dev.redlock.ReadWriteLock
import dev.redlock.Redlock
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.atomic.AtomicInteger
import kotlin.io.path.ExperimentalPathApi
import kotlin.io.path.deleteRecursively
import kotlin.io.path.exists
import kotlin.io.path.readText
import kotlin.io.path.writeText
import kotlin.time.Duration.Companion.milliseconds

private const val READERS = 8
private const val VERSIONS = 3

/** Two files that belong together. */
private class Cache(folder: Path) {
    private val prices = folder.resolve("prices")
    private val index = folder.resolve("index")
    val rebuilt = mutableListOf<Int>()

    /** Reads both files; fails if they do not belong together. */
    fun version(): Int {
        if (!index.exists()) return 0
        val (priced, indexed) = listOf(prices, index).map { it.readText().toInt() }
        check(priced == indexed) { "prices $priced, but index $indexed" }
        return priced
    }

    /** Writes one file after the other, which takes a while. */
    suspend fun rebuild(version: Int) {
        for (file in listOf(prices, index)) {
            file.writeText("$version")
            delay(50.milliseconds)
        }
        rebuilt += version
    }
}

/** Returns the cache's version, after it was rebuilt if it is older than [atLeast]. */
private suspend fun read(lock: ReadWriteLock, cache: Cache, atLeast: Int): Int {
    val version = lock.read { cache.version() }
    if (version >= atLeast) return version
    return lock.write { lease ->
        if (cache.version() < atLeast) cache.rebuild(atLeast)
        lease.downgrade() // other readers come in
        cache.version()
    }
}

@OptIn(ExperimentalPathApi::class)
fun main(arguments: Array<String>): Unit = runBlocking(Dispatchers.IO) {
    val url = arguments.firstOrNull() ?: "redis://127.0.0.1:6379"
    val folder = Files.createTempDirectory("cache")
    try {
        val cache = Cache(folder)
        val reads = AtomicInteger()
        coroutineScope {
            repeat(READERS) {
                launch {
                    Redlock(url).use { client ->
                        val lock = client.readWriteLock("prices:cache")
                        for (version in 1..VERSIONS) {
                            read(lock, cache, version)
                            reads.incrementAndGet()
                        }
                    }
                }
            }
        }
        println("rebuilt: ${cache.rebuilt.joinToString()}")
        println("$reads reads by $READERS readers, all of them whole")
    } finally {
        folder.deleteRecursively()
    }
}
