// Initialises JNA.

package dev.redlock.internal

import com.sun.jna.NativeLibrary
import com.sun.jna.Platform
import java.nio.file.Path

/** Names the folders in which JNA looks for its own native library first. */
private const val FOLDERS = "jna.boot.library.path"

/** Settings by which a user chooses the native library of JNA. */
private val CHOICES = listOf(FOLDERS, "jna.boot.library.name", "jna.nosys", "jna.noclasspath")

/**
 * Initialises JNA with a copy of its native library, if one is kept. JNA would write the library to a new file each time.
 * A setting of the user takes precedence.
 */
internal fun startJna(copies: LibraryCopies?) {
    val copy = copies?.takeIf { CHOICES.all { System.getProperty(it) == null } }?.copyOfJna()
    if (copy == null) return initialise()
    // Set only meanwhile: JNA in another class loader may be another version. It loads no library that is loaded here.
    System.setProperty(FOLDERS, "${copy.parent}")
    try {
        initialise()
    } finally {
        System.clearProperty(FOLDERS)
    }
}

private fun initialise() {
    Class.forName(NativeLibrary::class.java.name)
}

private fun LibraryCopies.copyOfJna(): Path? {
    val file = System.mapLibraryName("jnidispatch")
    return Platform::class.java.getResource("${Platform.RESOURCE_PREFIX}/$file")?.let { copy(it) }
}
