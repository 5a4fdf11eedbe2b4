// Copies of native libraries in a folder of the user, so that only the first JVM unpacks them from their jars. The folder
// and each copy are checked before use: whoever can write there can run code in this process. See docs/adr/0045.

package dev.redlock.internal

import java.io.InputStream
import java.net.JarURLConnection
import java.net.URL
import java.nio.channels.Channels
import java.nio.file.Files
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.Path
import java.nio.file.StandardCopyOption.ATOMIC_MOVE
import java.nio.file.StandardOpenOption.CREATE_NEW
import java.nio.file.StandardOpenOption.WRITE
import java.nio.file.attribute.PosixFilePermissions
import java.util.concurrent.TimeUnit
import java.util.jar.JarEntry
import java.util.zip.CRC32

/** Names the folder of the copies. `off` keeps none. */
private const val SETTING = "redlock.cache"

/** The end of the name of a file that a JVM is writing. */
private const val UNFINISHED = ".tmp"

/** The name of a folder with copies. It is the user's folder: other files there are left alone. */
private val COPIES by lazy { Regex("[0-9a-f]{1,8}-[0-9]+") }

private const val ROOT = 0
private const val WRITABLE_BY_OTHERS = 0b000_010_010
private const val STICKY = 0b1_000_000_000

/**
 * The copies in `folder`. Each has a folder of its own, named by its checksum and size: `d570eb1c-7738144`.
 *
 * @param folder an absolute path. It is made if it is missing.
 * @param user the id of the user who runs this process
 */
internal class LibraryCopies(private val folder: Path, private val user: Int) {
    /**
     * Returns the copy of a library in a jar, and makes it if there is none. Null if it cannot be made, if others than the
     * user can change it, or if the library is not in a jar.
     */
    fun copy(library: URL): Path? = runCatching {
        val jar = library.openConnection() as? JarURLConnection ?: return@runCatching null
        jar.jarEntry?.takeIf { it.crc >= 0 && it.size > 0 }?.let { copy(it, jar::getInputStream) }
    }.getOrNull()

    private fun copy(library: JarEntry, contents: () -> InputStream): Path {
        val folder = checkedFolder()
        val own = folder.resolve("${library.crc.toString(16)}-${library.size}")
        val copy = own.resolve(library.name.substringAfterLast('/'))
        if (!isIntact(copy, library)) {
            deleteOld(folder)
            makeFolder(own)
            contents().use { write(it, copy) }
        }
        return copy
    }

    /** Makes the folder or checks it, with those above it. Returns its path without symbolic links. */
    private fun checkedFolder(): Path {
        makeFolder(folder)
        val above = folder.parent.toRealPath()
        generateSequence(above, Path::getParent).forEach(::checkAbove)
        return above.resolve(folder.fileName)
    }

    /** Makes a folder of this user, or checks the one that exists. It must not be a symbolic link. */
    private fun makeFolder(folder: Path) {
        if (Files.notExists(folder, NOFOLLOW_LINKS)) Files.createDirectories(folder, permissions("rwx------"))
        check(Files.isDirectory(folder, NOFOLLOW_LINKS) && belongsToUser(folder)) { "others can write to $folder" }
    }

    /** Checks a folder above ours. Only this user and root may replace what is in it. */
    private fun checkAbove(above: Path) {
        val mode = mode(above)
        val isClosed = mode and WRITABLE_BY_OTHERS == 0 || mode and STICKY != 0
        check(isClosed && owner(above).let { it == user || it == ROOT }) { "others can write to $above" }
    }

    private fun belongsToUser(path: Path) = owner(path) == user && mode(path) and WRITABLE_BY_OTHERS == 0

    private fun isIntact(copy: Path, library: JarEntry) = Files.isRegularFile(copy, NOFOLLOW_LINKS) &&
        belongsToUser(copy.parent) && belongsToUser(copy) &&
        Files.size(copy) == library.size && checksum(copy) == library.crc

    /** Writes a copy and then gives it its name, so that no JVM finds half of it. Other JVMs may do the same meanwhile. */
    private fun write(library: InputStream, copy: Path) {
        val unfinished = copy.resolveSibling("${ProcessHandle.current().pid()}-${System.nanoTime()}$UNFINISHED")
        try {
            val file = Files.newByteChannel(unfinished, setOf(CREATE_NEW, WRITE), permissions("rw-------"))
            Channels.newOutputStream(file).use { library.transferTo(it) }
            Files.move(unfinished, copy, ATOMIC_MOVE)
        } finally {
            Files.deleteIfExists(unfinished)
        }
    }

    /**
     * Deletes the copies of other versions that are older than 30 days, and what JVMs left behind that were killed while
     * they wrote. A JVM that uses a deleted copy keeps it; the next one makes it again.
     */
    private fun deleteOld(folder: Path) {
        val now = System.currentTimeMillis()
        for (copies in folder.toFile().listFiles().orEmpty().filter { COPIES.matches(it.name) }) {
            for (file in copies.listFiles().orEmpty()) {
                val days = if (file.name.endsWith(UNFINISHED)) 1L else 30L
                val isOld = now - file.lastModified() > TimeUnit.DAYS.toMillis(days)
                // Its folder is deleted if it was the last file. An empty folder can be one that another JVM made just now.
                if (isOld && file.delete()) copies.delete()
            }
        }
    }

    companion object {
        /**
         * The copies of this process's user, in the folder that the user set or else among the user's caches. Null if none
         * are kept: the user said so, there is no home, or the system is not Linux.
         */
        fun ofUser(): LibraryCopies? = runCatching {
            val isOff = System.getProperty(SETTING) == "off" || System.getProperty(TEMPORARY) != null
            if (isOff) null else LibraryCopies(folder(), owner(Path.of("/proc/self").toRealPath()))
        }.getOrNull()

        private fun folder(): Path {
            System.getProperty(SETTING)?.let { return Path.of(it).toAbsolutePath().normalize() }
            val caches = System.getenv("XDG_CACHE_HOME")?.let { Path.of(it) }?.takeIf(Path::isAbsolute)
            return (
                caches ?: Path.of(
                    System.getProperty("user.home"),
                ).toRealPath().resolve(".cache")
                ).resolve("redlock")
        }
    }
}

private fun permissions(which: String) = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(which))

private fun owner(path: Path) = Files.getAttribute(path, "unix:uid", NOFOLLOW_LINKS) as Int

private fun mode(path: Path) = Files.getAttribute(path, "unix:mode", NOFOLLOW_LINKS) as Int

private fun checksum(file: Path): Long {
    val checksum = CRC32()
    val buffer = ByteArray(1 shl 16)
    Files.newInputStream(file).use { contents ->
        while (true) {
            val length = contents.read(buffer)
            if (length < 0) return checksum.value
            checksum.update(buffer, 0, length)
        }
    }
}
