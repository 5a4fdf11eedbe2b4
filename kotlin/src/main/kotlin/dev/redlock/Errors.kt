// The errors of the core as exceptions. They have one base class, so that a caller can catch all of them.

package dev.redlock

import dev.redlock.internal.Failure

/**
 * The base class of all errors of this library. It is unchecked, because Kotlin has no checked exceptions and most
 * callers of `withLock` handle only [LockTimeout].
 *
 * @property code the kind of error, the same word in every language: "timeout", "lost", "not_held", "unavailable",
 *   "conflict", "deadlock", "invalid" or "closed"
 */
public sealed class LockError(message: String, public val code: String) : RuntimeException(message)

/** Another owner held the lock until the acquire's `wait` was over: try later. */
public class LockTimeout internal constructor(message: String) : LockError(message, "timeout")

/**
 * The lock was lost: stop using the resource that it protects. This is not a `CancellationException`: a coroutine that
 * ends with it has failed.
 *
 * @property reason why it was lost
 */
public class LockLost internal constructor(message: String, public val reason: LostReason) : LockError(message, "lost")

/** The caller releases or extends a lock that it does not hold: a bug of the caller. */
public class NotHeld internal constructor(message: String) : LockError(message, "not_held")

/**
 * Too few nodes answered: an outage, not contention. A try fails with it at once, a waiting acquire after the client's
 * `patience` (default: 5 s), or after its own `wait` if that is shorter.
 *
 * @property causes why each node that did not help failed, for people, by the node's address without credentials
 */
public class Unavailable internal constructor(message: String, public val causes: Map<String, String>) :
    LockError(message, "unavailable")

/** The key holds something that is not a lock, and was left unchanged: choose another name. */
public class KeyConflict internal constructor(message: String) : LockError(message, "conflict")

/** The caller holds the lock itself and would wait for ever: a bug of the caller. */
public class WouldDeadlock internal constructor(message: String) : LockError(message, "deadlock")

/**
 * A name, a time, a URL or another argument is wrong. The message names it; nothing was sent. This is not an
 * `IllegalArgumentException`, because all errors of this library extend [LockError] and a class has one superclass.
 */
public class InvalidArgument internal constructor(message: String) : LockError(message, "invalid")

/** The client was closed. */
public class Closed internal constructor(message: String) : LockError(message, "closed")

internal fun Failure.exception(): LockError = when (code) {
    "timeout" -> LockTimeout(detail)
    "lost" -> LockLost(detail, LostReason.of(checkNotNull(reason)))
    "not_held" -> NotHeld(detail)
    "unavailable" -> Unavailable(detail, causes.associate { it.node to it.cause })
    "conflict" -> KeyConflict(detail)
    "deadlock" -> WouldDeadlock(detail)
    "invalid" -> InvalidArgument(detail)
    "closed" -> Closed(detail)
    else -> error("unknown code $code: $detail")
}
