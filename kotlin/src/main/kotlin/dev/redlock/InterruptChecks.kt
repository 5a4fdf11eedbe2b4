// Lets calls that block in native code detect interrupts of their threads.

package dev.redlock

import dev.redlock.internal.Interrupts
import dev.redlock.internal.UniffiLib
import dev.redlock.internal.heed
import dev.redlock.internal.uniffiCallbackInterfaceInterrupts

/** The callback of the native library. Its first use registers it: most processes make no such call. */
internal object InterruptChecks {
    init {
        uniffiCallbackInterfaceInterrupts.register(UniffiLib)
        heed(
            object : Interrupts {
                override fun interrupted() = Thread.interrupted()
            },
        )
    }

    fun ensureRegistered(): Unit = Unit
}
