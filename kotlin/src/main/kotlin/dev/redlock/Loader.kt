// Which native library is loaded, and what is said when none can be.

package dev.redlock.internal

import java.io.File
import java.io.IOException
import java.net.URL
import java.nio.file.Files
import java.nio.file.Path
import java.nio.file.StandardCopyOption.REPLACE_EXISTING
import java.util.concurrent.TimeUnit

private const val LIBRARY = "redlock_kotlin"
private const val SOURCES = "https://github.com/redlock-dev/redlock/tree/main/kotlin#from-this-repository"

/** Names the folder for libraries that are unpacked for one JVM. */
internal const val TEMPORARY = "redlock.tmpdir"

/** Parts of the errors where a library cannot be unpacked, or the system does not load it from that folder. */
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
        isLinux && runCatching { File("/proc/self/maps").useLines { hasMusl(it) } }.getOrDefault(false)
    }

    /** The file name of the library. */
    private val file by lazy {
        System.mapLibraryName(if (musl && withMusl(PLATFORM) in carried) "${LIBRARY}_musl" else LIBRARY)
    }

    /**
     * Loads the library. A second thread prepares classes meanwhile. Neither may hold the lock of a class or of a lazy value
     * that the other needs.
     */
    private fun open() {
        inBackground(FirstLock::link)
        val chosen = System.getProperty(OVERRIDE)
        if (chosen != null) return if (File(chosen).isAbsolute) System.load(chosen) else System.loadLibrary(chosen)
        val path = "$PLATFORM/$file"
        val library = Loader::class.java.classLoader.getResource(path)
            ?: throw UnsatisfiedLinkError("$path is not in the package")
        if (!isLoaded(library)) loadUnpacked(library)
    }

    /** Loads the library from its file or from its copy, if there is one. False if that fails. */
    private fun isLoaded(library: URL): Boolean = try {
        val path = if (library.protocol == "file") Path.of(library.toURI()) else LibraryCopies.ofUser()?.copy(library)
        path?.let { System.load("$it") } != null
    } catch (_: UnsatisfiedLinkError) {
        // The folder is mounted `noexec`, another JVM deleted the copy as too old, or another class loader has loaded this
        // file. A JVM loads a file only once.
        false
    }

    /** Loads the library from a new temporary file. */
    private fun loadUnpacked(library: URL) {
        val folder = Path.of(System.getProperty(TEMPORARY) ?: System.getProperty("java.io.tmpdir"))
        val unpacked = try {
            if (isWindows) deleteLeft(folder)
            Files.createTempFile(folder, LEFT, file).also { to ->
                library.openStream().use { Files.copy(it, to, REPLACE_EXISTING) }
            }
        } catch (failure: IOException) {
            throw UnsatisfiedLinkError("cannot write a temporary file to $folder: $failure").initCause(failure)
        }
        try {
            System.load("$unpacked")
        } finally {
            // Windows deletes no file that is loaded: a later JVM does.
            runCatching { Files.delete(unpacked) }
        }
    }

    /** Deletes the libraries that earlier JVMs left in `folder`. Those of JVMs that still run cannot be deleted. */
    private fun deleteLeft(folder: Path) {
        val before = System.currentTimeMillis() - TimeUnit.DAYS.toMillis(1)
        folder.toFile().listFiles { left -> left.name.startsWith(LEFT) && left.name.endsWith(file) }.orEmpty()
            .filter { it.lastModified() < before }
            .forEach { it.delete() }
    }

    /** Why the library cannot be used. A library that failed to load is not tried again. */
    private val failure: Throwable? by lazy { runCatching(::open).exceptionOrNull() }

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
        val platform = if (musl) withMusl(PLATFORM) else PLATFORM
        if (chosen == null && platform !in carried) {
            return "redlock-core has no native library for $platform, only for ${carried.joinToString()}: " +
                "build it on this machine, see $SOURCES"
        }
        val reason = failure.message ?: "$failure"
        val hint = if (UNPACKING.any { it in reason }) "; -D$TEMPORARY=FOLDER says where programs may be" else ""
        return "redlock-core cannot load its native library ${chosen ?: "for $platform"}: $reason$hint"
    }
}

/** The beginning of the name of a temporary file. */
private const val LEFT = "redlock-"

private val SYSTEM = System.getProperty("os.name")
private val isLinux = SYSTEM == "Linux"
private val isWindows = SYSTEM.startsWith("Windows")

/** The folder of the library in the jar, such as `linux-x86-64`. */
internal val PLATFORM: String = run {
    val system = when {
        isWindows -> "win32"
        SYSTEM.startsWith("Mac") -> "darwin"
        else -> SYSTEM.lowercase().replace(" ", "")
    }
    val machine = when (val name = System.getProperty("os.arch").lowercase()) {
        "amd64", "x86_64" -> "x86-64"
        "arm64" -> "aarch64"
        "i386", "i686" -> "x86"
        else -> name
    }
    "$system-$machine"
}

/** Runs `task` in another thread, or in this one if no other can be started. */
private fun inBackground(task: () -> Unit) {
    try {
        Thread(null, task, "redlock-load", 0, false).apply { isDaemon = true }.start()
    } catch (_: OutOfMemoryError) {
        task()
    }
}

/** The platform that a file in the jar is for, such as `linux-x86-64/libredlock_kotlin.so`. */
private fun platform(file: String): String {
    val folder = file.substringBefore('/')
    return if ("_musl." in file) withMusl(folder) else folder
}

/** The folder of a library in the jar is the same for each C library. */
private fun withMusl(platform: String) = "$platform (musl)"

/**
 * Whether musl is the C library of a process that has these files in its memory. Nothing else tells: a machine can have
 * several installed. Alpine maps the loader; elsewhere that is a link to `libc.so`, which glibc calls `libc.so.6`.
 */
internal fun hasMusl(maps: Sequence<String>): Boolean =
    maps.map { it.removeSuffix(" (deleted)") }.any { "/ld-musl-" in it || it.endsWith("/libc.so") }
