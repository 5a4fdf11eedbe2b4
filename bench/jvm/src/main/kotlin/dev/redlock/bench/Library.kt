// What a library looks like to the works: an adapter for each makes it so.

package dev.redlock.bench

import java.util.Properties

/** Takes and releases locks by name. */
interface Locks {
    /** Returns a lease. The same `owner` may take a lock again, if the library is re-entrant. */
    suspend fun acquire(name: String, owner: String? = null): Any

    suspend fun release(lease: Any)

    /** Takes and releases a lock the way people write it, with a lock object made for this use. */
    suspend fun block(name: String) {
        release(acquire(name))
    }
}

/** A library, connected. */
interface Library : AutoCloseable {
    /** For one thread, which takes and releases one lock after the other; may block it. */
    val alone: Locks

    /** For many coroutines at once, each an owner of its own; null if the library only knows threads. */
    val together: Locks?

    /** Why many cannot wait for the same lock; null if they can. */
    val noHerd: String? get() = null

    val reentrant: Boolean get() = true

    /** Whether an acquire waits for a lock that is held. */
    val waits: Boolean get() = true
}

/** What a library cannot do. */
class Unsupported(why: String) : Exception(why)

/** The version of a Maven artifact, as its jar tells. */
fun versionOf(group: String, artifact: String): String {
    val path = "/META-INF/maven/$group/$artifact/pom.properties"
    val properties = Properties()
    checkNotNull(Library::class.java.getResourceAsStream(path)) { "no $path" }.use(properties::load)
    return properties.getProperty("version")
}
