// The status object in which a call of the native library reports success or failure. One is reused for each thread.

package dev.redlock.internal

private val statuses = ThreadLocal.withInitial(::SparseStatus)

/**
 * A status that JNA does not write before a call and reads only if the call failed. JNA copies each field separately,
 * which takes several microseconds.
 */
private class SparseStatus : UniffiRustCallStatus() {
    init {
        autoWrite = false
    }

    override fun read() {
        // The code is the first byte.
        if (pointer.getByte(0) != UNIFFI_CALL_SUCCESS) super.read()
    }
}

/**
 * Returns the status of this thread's last call for reuse, or a new one if that call failed.
 *
 * The generated code makes a status for each call. Each has native memory, which JNA frees in a separate thread. That
 * thread falls behind at thousands of calls a second.
 *
 * Reuse is safe. A successful call writes nothing to its status. The calls that prepare an argument, such as a buffer,
 * end before the call itself starts. A callback from the native library must make no native calls: it
 * would use the status of the call that is running.
 */
internal fun reusableStatus(): UniffiRustCallStatus {
    val last = statuses.get()
    return if (last.isSuccess()) last else SparseStatus().also(statuses::set)
}
