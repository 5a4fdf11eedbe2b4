// What a lock, a lease and a client tell of themselves.

package dev.redlock

import dev.redlock.internal.Holder
import dev.redlock.internal.Node
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds

/** Why a lock was lost. */
public enum class LostReason {
    /** The lease ended: a fixed one by itself, a renewed one because its process was stopped for too long. */
    EXPIRED,

    /** Somebody else holds the key. */
    TAKEN,

    /** Ended on purpose: `forceRelease`, or a release by the same explicit owner elsewhere. */
    RELEASED,

    /** The key is gone: deleted, evicted, flushed or lost in a restart. */
    DELETED,

    /** Too few nodes answered until the deadline. */
    UNREACHABLE,

    /** The client was closed. */
    CLOSED,

    /** The process forked; a JVM does not. */
    FORKED,

    /** Held for longer than `maxHold`. */
    MAX_HOLD,
    ;

    /** The reason as all languages spell it. */
    public val code: String get() = name.lowercase()

    internal companion object {
        fun of(code: String): LostReason = valueOf(code.uppercase())
    }
}

/** How a release ended. */
public enum class ReleaseOutcome {
    /** The lock is free, or another lease of its owner keeps it. */
    RELEASED,

    /** It had been lost before. */
    LOST,

    /** Too few nodes confirmed it in time; the release goes on in the background. */
    UNCONFIRMED,
    ;

    /** The outcome as all languages spell it. */
    public val code: String get() = name.lowercase()

    internal companion object {
        fun of(code: String): ReleaseOutcome = valueOf(code.uppercase())
    }
}

/** How a lock is held. */
public enum class LockKind {
    /** By an owner of an exclusive lock. */
    LOCK,

    /** By the readers of a read/write lock. */
    READ,

    /** By the writer of a read/write lock. */
    WRITE,

    /** By those with permits of a semaphore. */
    SEMAPHORE,
}

/**
 * Who holds a lock, as a quorum of nodes saw it.
 *
 * @property owner the explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`; of several readers the first
 * @property ttl how long the key lives unless it is renewed; null when a peer gave it no time to live
 * @property token the last fencing token; 0 when the holder draws none
 * @property kind how it is held
 * @property owners all owners: several only if they read, or have permits of a semaphore
 */
public data class LockInfo(
    val owner: String,
    val ttl: Duration?,
    val token: Long,
    val kind: LockKind,
    val owners: List<String>,
) {
    /** [ttl] in milliseconds, for Java. */
    public val ttlMillis: Long? get() = ttl?.inWholeMilliseconds
}

/**
 * What one node says of itself.
 *
 * @property node its address, without credentials
 * @property up whether it answered
 * @property run the run of the server: a new one after each restart
 * @property version the server's version
 * @property cause why it did not answer
 */
public data class NodeStatus(
    val node: String,
    val up: Boolean,
    val run: String?,
    val version: String?,
    val cause: String?,
)

internal fun Holder.info() =
    LockInfo(owner, ttl?.milliseconds, token, LockKind.entries.first { it.name.lowercase() == kind }, owners)

internal fun Node.status() = NodeStatus(address, cause == null, run, version, cause)
