// Which native library is loaded, and what is said when none can be.

package dev.redlock.internal

import com.sun.jna.NativeLibrary
import com.sun.jna.Platform
import java.io.File
import java.io.InputStream
import java.net.URL
import java.net.URLConnection
import java.net.URLStreamHandler
import java.nio.file.Path
import java.util.concurrent.FutureTask

private const val LIBRARY = "redlock_kotlin"
private const val SOURCES = "https://github.com/redlock-dev/redlock/tree/main/kotlin#from-this-repository"

/** Parts of what is said where JNA cannot unpack a library, or may not load what it unpacked. */
private val UNPACKING = listOf("temporary", "failed to map segment", "not permitted", "denied")

/** Names a library file to load instead of the one in the jar. */
private const val OVERRIDE = "uniffi.component.$LIBRARY.libraryOverride"

internal object Loader {
    /** The platforms that the jar has a library for; scripts/kotlin-native lists the files. */
    private val carried by lazy {
        Loader::class.java.getResourceAsStream("natives")?.bufferedReader()
            ?.useLines { files -> files.map(::platform).toList() }.orEmpty()
    }

    private val musl by lazy {
        Platform.isLinux() && runCatching { File("/proc/self/maps").useLines { hasMusl(it) } }.getOrDefault(false)
    }

    /** The name of the library, without the prefix and suffix that each system adds. */
    private val library by lazy {
        if (musl && withMusl(Platform.RESOURCE_PREFIX) in carried) "${LIBRARY}_musl" else LIBRARY
    }

    /** The open library. The generated code registers its functions there. */
    val opened: NativeLibrary by lazy(::open)

    /**
     * Opens the library. A second thread unpacks it while this one initialises JNA. Neither may hold the lock of a class or
     * of a lazy value that the other needs. So `Platform`, which both use, is initialised first.
     */
    private fun open(): NativeLibrary {
        val own = Loader::class.java.classLoader
        System.getProperty(OVERRIDE)?.let { return NativeLibrary.getInstance(it, own) }
        val platform = Platform.RESOURCE_PREFIX
        val copies = LibraryCopies.ofUser()
        val unpacking = FutureTask { unpack(own, resource(platform), copies) }
        inBackground {
            unpacking.run()
            FirstLock.link()
        }
        startJna(copies)
        val unpacked = runCatching { unpacking.uninterrupted() }.getOrNull()
        return unpacked?.copy?.let { openCopy(it, own) }
            ?: unpacked?.contents?.let { contents ->
                LibraryInMemory(own, resource(platform), contents).use { NativeLibrary.getInstance(library, it) }
            }
            // JNA reads the library itself, and its error says why it cannot.
            ?: NativeLibrary.getInstance(library, own)
    }

    /** Null if that fails: the folder may be mounted `noexec`, or another JVM deleted the copy as too old. */
    private fun openCopy(copy: Path, own: ClassLoader): NativeLibrary? = try {
        NativeLibrary.getInstance("$copy", own)
    } catch (_: UnsatisfiedLinkError) {
        null
    }

    /** The path of the library in the jar. */
    private fun resource(platform: String) = "$platform/${System.mapLibraryName(library)}"

    /** Unpacks the library from the jar. Null if there is none, or if it is a file, which JNA opens where it is. */
    private fun unpack(own: ClassLoader, resource: String, copies: LibraryCopies?): Unpacked? {
        val library = own.getResource(resource)?.takeIf { it.protocol != "file" } ?: return null
        copies?.copy(library)?.let { return Unpacked(it, null) }
        val connection = library.openConnection()
        return connection.getInputStream().use { stream ->
            val bytes = ByteArray(connection.contentLength)
            val isComplete = stream.readNBytes(bytes, 0, bytes.size) == bytes.size && stream.read() < 0
            if (isComplete) Unpacked(null, bytes) else null
        }
    }

    /** Why the library cannot be used. A class that failed to load never will. */
    private val failure: Throwable? by lazy { runCatching { opened.let { register() } }.exceptionOrNull() }

    /** Registers the functions of the library with JNA. A second thread registers and compares their checksums. */
    private fun register() {
        val comparing = FutureTask { IntegrityCheckingUniffiLib.ensureInitialized() }
        inBackground(comparing::run)
        UniffiLib.ensureInitialized()
        comparing.uninterrupted()
    }

    /**
     * Loads the library, once. Whatever comes first to this process calls it.
     *
     * @throws UnsatisfiedLinkError when that fails, each time
     */
    fun load() {
        failure?.let { throw UnsatisfiedLinkError(explain(it)).initCause(it) }
    }

    private fun explain(failure: Throwable): String {
        val chosen = System.getProperty(OVERRIDE)
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

/** A library outside of its jar: a copy in a file, or its contents. */
private class Unpacked(val copy: Path?, val contents: ByteArray?)

/** Finds the library in memory and everything else with `parent`. JNA writes the library to a file and opens that. */
private class LibraryInMemory(parent: ClassLoader, private val resource: String, bytes: ByteArray) :
    ClassLoader(parent),
    AutoCloseable {
    private var bytes: ByteArray? = bytes

    override fun getResource(name: String): URL? {
        val found = bytes?.takeIf { name == resource } ?: return super.getResource(name)
        return URL(null, "redlock:/$name", Handler(found))
    }

    /** Drops the library: JNA keeps this class loader as long as the library is open. */
    override fun close() {
        bytes = null
    }

    private class Handler(private val bytes: ByteArray) : URLStreamHandler() {
        override fun openConnection(url: URL): URLConnection = object : URLConnection(url) {
            override fun connect() = Unit

            override fun getInputStream(): InputStream = bytes.inputStream()
        }
    }
}

/** Runs `task` in another thread, or in this one if no other can be started. */
private fun inBackground(task: () -> Unit) {
    try {
        Thread(null, task, "redlock-load", 0, false).apply { isDaemon = true }.start()
    } catch (_: OutOfMemoryError) {
        task()
    }
}

/** The result of this task. An interrupt does not end the wait; the thread stays interrupted. */
private fun <T> FutureTask<T>.uninterrupted(): T {
    var interrupted = false
    try {
        while (true) {
            try {
                return get()
            } catch (_: InterruptedException) {
                interrupted = true
            }
        }
    } finally {
        if (interrupted) Thread.currentThread().interrupt()
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
