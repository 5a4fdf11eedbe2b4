// When native objects are freed: as soon as they are no longer needed, and not when the garbage collector finds them.

package dev.redlock

import dev.redlock.internal.Outcome
import java.util.concurrent.CancellationException
import dev.redlock.internal.Lock as NativeLock

/**
 * The native lock of a [Lock]. The first lease of a lock frees it when the lease ends: most lock objects have no second
 * one. A second acquire makes the native lock again, and keeps it until the [Lock] is collected.
 *
 * @param unused the native lock, if it was made already
 */
internal class LockHandle(private var unused: NativeLock?, private val make: () -> NativeLock) {
    private var isUsed = false

    /** The native lock between the first acquire and the end of its lease. */
    private var first: NativeLock? = null

    /** The native lock that is kept. */
    @Volatile
    private var kept: NativeLock? = null

    /** Begins an acquire. */
    fun <T> acquire(begin: (NativeLock) -> T): T = begin(::toAcquire, begin)

    /** Begins any other call. */
    fun <T> call(begin: (NativeLock) -> T): T = begin(::toCall, begin)

    private inline fun <T> begin(native: () -> NativeLock, begin: (NativeLock) -> T): T {
        while (true) {
            val lock = native()
            try {
                return begin(lock)
            } catch (failure: IllegalStateException) {
                if (!failure.isOfFreed || !lock.uniffiIsDestroyed) throw failure
                // Another thread freed it before the call began.
            }
        }
    }

    private fun toAcquire() = kept ?: synchronized(this) {
        if (isUsed) {
            toCall().also { kept = it }
        } else {
            isUsed = true
            toCall()
        }
    }

    private fun toCall() = kept ?: synchronized(this) {
        kept ?: first ?: (unused ?: make()).also {
            first = it
            unused = null
        }
    }

    /** Frees the native lock unless it is kept: the first acquire failed, or its lease ended. */
    fun free() {
        if (kept != null) return
        synchronized(this) {
            if (kept != null) return
            first.also { first = null }
        }?.destroy()
    }
}

/** Whether a native object can have thrown this because it was freed. */
internal val IllegalStateException.isOfFreed: Boolean get() = this !is CancellationException

/** Frees what a call resulted in, and nobody takes. */
internal fun Outcome.free() {
    if (this is Outcome.Leased) lease.destroy()
}
