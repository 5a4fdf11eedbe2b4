// What calls of the native library report their success in.

package dev.redlock.internal

private val statuses = ThreadLocal.withInitial(::SparseStatus)

/** Has nothing to tell the call, and is read only if that failed: JNA copies field by field, in several microseconds. */
private class SparseStatus : UniffiRustCallStatus() {
    init {
        autoWrite = false
    }

    override fun read() {
        // The code comes first.
        if (pointer.getByte(0) != UNIFFI_CALL_SUCCESS) super.read()
    }
}

/**
 * The status of this thread's last call, unless that failed. The generated code makes one for each call, each with
 * native memory that JNA frees in a thread of its own, which thousands of calls a second leave behind.
 *
 * Safe to use again: nothing is written to it on success, and whatever a call needs before it, such as a buffer for an
 * argument, has its own call behind it by then. Code that the native library calls must make no calls itself.
 */
internal fun reusableStatus(): UniffiRustCallStatus {
    val last = statuses.get()
    return if (last.isSuccess()) last else SparseStatus().also(statuses::set)
}
