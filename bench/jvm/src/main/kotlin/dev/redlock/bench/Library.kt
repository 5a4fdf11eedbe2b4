// The interface that the works use; there is an adapter for each library.

package dev.redlock.bench

import java.util.Properties

/** Acquires and releases locks by name. */
interface Locks {
    /** Returns a lease. The same `owner` may acquire a lock again, if the library is re-entrant. */
    suspend fun acquire(name: String, owner: String? = null): Any

    /** Acquires a lock of another kind: `read` or `write` of a read/write lock, or a permit of a `semaphore`. */
    suspend fun acquireKind(kind: String, name: String): Any = throw Unsupported("has no $kind locks")

    suspend fun release(lease: Any)

    /** Acquires and releases a lock as users write it, with a lock object made for this use. */
    suspend fun block(name: String) {
        release(acquire(name))
    }
}

/** A connected library. */
interface Library : AutoCloseable {
    /** For one thread, which acquires and releases one lock after the other; calls may block it. */
    val alone: Locks

    /** For many coroutines at once, each an owner of its own; null if only threads can be owners. */
    val together: Locks?

    /** Why many callers cannot wait for the same lock; null if they can. */
    val noHerd: String? get() = null

    val reentrant: Boolean get() = true

    /** Whether an acquire waits for a lock that is held. */
    val waits: Boolean get() = true
}

/** How many slots a semaphore has. */
const val PERMITS = 10

/** A work that the library cannot do. */
class Unsupported(why: String) : Exception(why)

/** The version of a Maven artifact, read from its jar. */
fun versionOf(group: String, artifact: String): String {
    val path = "/META-INF/maven/$group/$artifact/pom.properties"
    val properties = Properties()
    checkNotNull(Library::class.java.getResourceAsStream(path)) { "no $path" }.use(properties::load)
    return properties.getProperty("version")
}
