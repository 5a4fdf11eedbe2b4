// Frees native objects as soon as they are no longer needed, instead of leaving them to the garbage collector.

package dev.redlock

import dev.redlock.internal.Outcome
import java.util.concurrent.CancellationException
import dev.redlock.internal.Lock as NativeLock

/**
 * The native lock of a [Lock]. It is freed when the first lease of the lock ends, because most lock objects are used
 * once. A second acquire makes a new native lock and keeps it until the [Lock] is collected.
 *
 * @param unused the native lock, if there is one already
 * @param make makes the native lock
 */
internal class LockHandle(private var unused: NativeLock?, private val make: () -> NativeLock) {
    private var isUsed = false

    /** The native lock from the first call to the end of the first lease. */
    private var first: NativeLock? = null

    /** The native lock from the second acquire on, which is never freed by [free]. */
    @Volatile
    private var kept: NativeLock? = null

    /** Calls `begin`, which starts an acquire, with the native lock. */
    fun <T> acquire(begin: (NativeLock) -> T): T = begin(::toAcquire, begin)

    /** Calls `begin`, which starts any other call, with the native lock. */
    fun <T> call(begin: (NativeLock) -> T): T = begin(::toCall, begin)

    private inline fun <T> begin(native: () -> NativeLock, begin: (NativeLock) -> T): T {
        while (true) {
            val lock = native()
            try {
                return begin(lock)
            } catch (failure: IllegalStateException) {
                if (!failure.isOfFreed || !lock.uniffiIsDestroyed) throw failure
                // Another thread freed the native lock before the call started: retry with a new one.
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

    /** Frees the native lock, unless it is kept. Called when an acquire failed and when a lease ended. */
    fun free() {
        if (kept != null) return
        synchronized(this) {
            if (kept != null) return
            first.also { first = null }
        }?.destroy()
    }
}

/** Whether this may be the exception of a call on a freed native object. */
internal val IllegalStateException.isOfFreed: Boolean get() = this !is CancellationException

/** Frees the native lease in a result that nobody uses, if there is one. */
internal fun Outcome.free() {
    if (this is Outcome.Leased) lease.destroy()
}
