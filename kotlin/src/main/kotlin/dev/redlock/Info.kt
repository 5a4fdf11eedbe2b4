// The values that locks, leases and clients return: reasons, outcomes, holders and the status of nodes.

package dev.redlock

import dev.redlock.internal.Holder
import dev.redlock.internal.Node
import java.time.Instant
import java.time.temporal.ChronoUnit
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds

/** Why a lock was lost. */
public enum class LostReason {
    /** The deadline passed: a fixed lease ended, or the process of a renewed one was paused for too long. */
    EXPIRED,

    /** Another owner holds the key. */
    TAKEN,

    /** Another call released it: `forceRelease`, or a release by the same explicit owner elsewhere. */
    RELEASED,

    /** The key is gone: deleted, evicted, flushed or lost in a restart. */
    DELETED,

    /** Too few nodes answered before the deadline. */
    UNREACHABLE,

    /** The client was closed. */
    CLOSED,

    /** The process forked. Never happens in a JVM. */
    FORKED,

    /** The lock was held for longer than `maxHold`. */
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
    /** The lock is free, or another lease of the same owner still holds it. */
    RELEASED,

    /** The lock had been lost before. */
    LOST,

    /** Too few nodes confirmed the release in time. It continues in the background. */
    UNCONFIRMED,
    ;

    /** The outcome as all languages spell it. */
    public val code: String get() = name.lowercase()

    internal companion object {
        fun of(code: String): ReleaseOutcome = valueOf(code.uppercase())
    }
}

/** The kind of hold. */
public enum class LockKind {
    /** One owner holds an exclusive lock. */
    LOCK,

    /** Readers hold a read/write lock. */
    READ,

    /** The writer holds a read/write lock. */
    WRITE,

    /** Owners hold permits of a semaphore. */
    SEMAPHORE,

    /** Nobody: the lock was released before its `minHold` was over, and is free when its ttl is over. */
    REST,
}

/**
 * The holder of a lock, as a quorum of nodes reported it.
 *
 * @property owner the explicit owner, or `uuid:tenure`; for Redisson `uuid:thread`; the first one of several readers;
 *   empty for [LockKind.REST]
 * @property ttl the time until the key expires, unless it is renewed; null when another client set no expiry
 * @property token the last fencing token; 0 when the holder's client has no tokens
 * @property kind the kind of hold
 * @property owners all owners: several only if they are readers or hold permits of a semaphore; none for
 *   [LockKind.REST]
 * @property host the name of the machine of [owner]; null for other libraries, for explicit owners, and when its
 *   connections have no name or this client may not read it; of a detached lease, the one that detached it
 * @property pid the number of its process; null if [host] is
 * @property app the name of its program, its option `app`; null if [host] is
 * @property since since when [owner] has the lock, by the clock of a node; null for readers, for permits, for other
 *   libraries and when it is not known
 */
public data class LockInfo(
    val owner: String,
    val ttl: Duration?,
    val token: Long,
    val kind: LockKind,
    val owners: List<String>,
    val host: String? = null,
    val pid: Long? = null,
    val app: String? = null,
    val since: Instant? = null,
) {
    /** [ttl] in milliseconds, for Java. */
    public val ttlMillis: Long? get() = ttl?.inWholeMilliseconds
}

/**
 * The status of one node.
 *
 * @property node the address, without credentials
 * @property up whether it answered
 * @property run the server's run id, new after each restart
 * @property version the server's version
 * @property cause why it did not answer, for people; null if it did
 */
public data class NodeStatus(
    val node: String,
    val up: Boolean,
    val run: String?,
    val version: String?,
    val cause: String?,
)

internal fun Holder.info() = LockInfo(
    owner = owner,
    ttl = ttl?.milliseconds,
    token = token,
    kind = LockKind.entries.first { it.name.lowercase() == kind },
    owners = owners,
    host = host,
    pid = pid?.toLong(),
    app = app,
    since = since?.let { Instant.EPOCH.plus(it, ChronoUnit.MICROS) },
)

internal fun Node.status() = NodeStatus(address, cause == null, run, version, cause)
