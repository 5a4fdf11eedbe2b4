// Prepares the classes that the first lock of a process needs.

package dev.redlock.internal

import dev.redlock.Calls
import dev.redlock.LockHandle
import dev.redlock.Log

internal object FirstLock {
    /**
     * Loads and verifies the largest of these classes, and with them those that they name, while another thread waits for
     * JNA. It initialises none: two threads that initialise classes can block each other for ever.
     */
    fun link() {
        val classes = arrayOf(
            UniffiLib::class.java,
            Client::class.java,
            FfiConverterSequenceString::class.java,
            FfiConverterMapStringTypeSetting::class.java,
            Calls::class.java,
            Log::class.java,
            Lock::class.java,
            dev.redlock.Lock::class.java,
            LockHandle::class.java,
            Lease::class.java,
            dev.redlock.Lease::class.java,
            FfiConverterTypeOutcome::class.java,
            FfiConverterSequenceTypeEnded::class.java,
            Outcome.Leased::class.java,
        )
        // The list of its constructors is made only of a class that is linked.
        for (one in classes) runCatching(one::getDeclaredConstructors)
    }
}
