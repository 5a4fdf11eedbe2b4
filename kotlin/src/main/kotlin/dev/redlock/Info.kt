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

/**
 * Who holds a lock, as a quorum saw it.
 *
 * @property owner the explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`
 * @property ttl how long the key lives unless it is renewed; null when a peer gave it no ttl
 * @property token the last fencing token; 0 when the holder draws none
 */
public data class LockInfo(val owner: String, val ttl: Duration?, val token: Long) {
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

internal fun Holder.info() = LockInfo(owner, ttl?.milliseconds, token)

internal fun Node.status() = NodeStatus(address, cause == null, run, version, cause)
