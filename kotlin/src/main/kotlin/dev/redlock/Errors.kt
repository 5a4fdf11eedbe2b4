// The errors of the core as exceptions. One base class, so that a caller can catch them all; each tells what to do.

package dev.redlock

import dev.redlock.internal.Failure

/**
 * What can go wrong with a lock. Unchecked: Kotlin has no checked exceptions, and a caller of `withLock` handles
 * [LockTimeout] at most.
 *
 * @property code what went wrong, the same word in every language
 */
public sealed class LockError(message: String, public val code: String) : RuntimeException(message)

/** Somebody else holds the lock: try later. */
public class LockTimeout internal constructor(message: String) : LockError(message, "timeout")

/**
 * The lock was lost: stop touching what it protects. Not a `CancellationException`: a coroutine that ends with it has
 * failed.
 *
 * @property reason why it was lost
 */
public class LockLost internal constructor(message: String, public val reason: LostReason) : LockError(message, "lost")

/** The caller releases or extends what it does not hold: a bug of the caller. */
public class NotHeld internal constructor(message: String) : LockError(message, "not_held")

/**
 * Too few nodes answered: an outage, not contention.
 *
 * @property causes what each node that did not help said, by its address
 */
public class Unavailable internal constructor(message: String, public val causes: Map<String, String>) :
    LockError(message, "unavailable")

/** The key holds something that is no lock; it was left untouched. */
public class KeyConflict internal constructor(message: String) : LockError(message, "conflict")

/** Waiting would wait for the caller itself. */
public class WouldDeadlock internal constructor(message: String) : LockError(message, "deadlock")

/**
 * A name, a time, a URL or an option is wrong; the message names it, and nothing was sent. Not an
 * `IllegalArgumentException`, since a class has one base and all errors of a lock share theirs.
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
