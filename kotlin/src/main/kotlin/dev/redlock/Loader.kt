// Which native library is loaded, and what is said when none can be.

package dev.redlock.internal

import com.sun.jna.Platform
import java.io.File

private const val LIBRARY = "redlock_kotlin"
private const val SOURCES = "https://github.com/redlock-dev/redlock/tree/main/kotlin#from-this-repository"

/** Parts of what is said where JNA cannot unpack a library, or may not load what it unpacked. */
private val UNPACKING = listOf("temporary", "failed to map segment", "not permitted", "denied")

internal object Loader {
    /** The platforms that the jar has a library for; scripts/kotlin-native lists the files. */
    private val carried = Loader::class.java.getResourceAsStream("natives")?.bufferedReader()
        ?.useLines { files -> files.map(::platform).toList() }.orEmpty()

    private val musl by lazy {
        Platform.isLinux() && runCatching { File("/proc/self/maps").useLines { hasMusl(it) } }.getOrDefault(false)
    }

    /** What to load, without what each system puts around it. The code that is generated asks for it. */
    val library: String = if (withMusl(Platform.RESOURCE_PREFIX) in carried && musl) "${LIBRARY}_musl" else LIBRARY

    /** Why the library cannot be used. A class that failed to load never will. */
    private val failure: Throwable? by lazy { runCatching(::uniffiEnsureInitialized).exceptionOrNull() }

    /**
     * Loads the library, once. Whatever comes first to this process calls it.
     *
     * @throws UnsatisfiedLinkError when that fails, each time
     */
    fun load() {
        failure?.let { throw UnsatisfiedLinkError(explain(it)).initCause(it) }
    }

    private fun explain(failure: Throwable): String {
        val chosen = System.getProperty("uniffi.component.$LIBRARY.libraryOverride")
        val platform = if (musl) withMusl(Platform.RESOURCE_PREFIX) else Platform.RESOURCE_PREFIX
        if (chosen == null && platform !in carried) {
            return "redlock-core has no native library for $platform, only for ${carried.joinToString()}: " +
                "build it on this machine, see $SOURCES"
        }
        val cause = generateSequence(failure) { it.cause }.last()
        // JNA lists all places that it tried; the last is where the library was.
        val reason = cause.message.orEmpty().lines().lastOrNull(String::isNotBlank) ?: "$cause"
        val hint = if (UNPACKING.any { it in reason }) "; -Djna.tmpdir=FOLDER says where programs may be" else ""
        return "redlock-core cannot load its native library ${chosen ?: "for $platform"}: $reason$hint"
    }
}

/** The platform that a file in the jar is for, such as `linux-x86-64/libredlock_kotlin.so`. */
private fun platform(file: String): String {
    val folder = file.substringBefore('/')
    return if ("_musl." in file) withMusl(folder) else folder
}

/** JNA has no word for it: it looks into the same folder of a jar, whatever the C library is. */
private fun withMusl(platform: String) = "$platform (musl)"

/**
 * Whether musl is the C library of a process that has these files in its memory. Nothing else tells: a machine can have
 * several installed. Alpine maps the loader; elsewhere that is a link to `libc.so`, which glibc calls `libc.so.6`.
 */
internal fun hasMusl(maps: Sequence<String>): Boolean =
    maps.map { it.removeSuffix(" (deleted)") }.any { "/ld-musl-" in it || it.endsWith("/libc.so") }
