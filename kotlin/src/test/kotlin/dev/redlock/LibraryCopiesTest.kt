package dev.redlock

import dev.redlock.internal.LibraryCopies
import dev.redlock.internal.PLATFORM
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledOnOs
import org.junit.jupiter.api.condition.OS.LINUX
import org.junit.jupiter.api.io.TempDir
import java.io.File
import java.net.URI
import java.net.URL
import java.net.URLClassLoader
import java.nio.file.Files
import java.nio.file.LinkOption.NOFOLLOW_LINKS
import java.nio.file.Path
import java.nio.file.attribute.FileTime
import java.nio.file.attribute.PosixFilePermissions
import java.time.Instant
import java.util.concurrent.CyclicBarrier
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import kotlin.concurrent.thread
import kotlin.io.path.createDirectories
import kotlin.io.path.createDirectory
import kotlin.io.path.createFile
import kotlin.io.path.createSymbolicLinkPointingTo
import kotlin.io.path.exists
import kotlin.io.path.isRegularFile
import kotlin.io.path.name
import kotlin.io.path.outputStream
import kotlin.io.path.readBytes
import kotlin.io.path.setLastModifiedTime
import kotlin.io.path.setPosixFilePermissions
import kotlin.io.path.writeBytes

/** Acquires a lock, and prints which native libraries are loaded. */
fun main() {
    Redlock("memory://").use { client -> client.lock("loaded").acquireBlocking().close() }
    // A JVM that starts at the same time may have replaced a copy by its own.
    val paths = File("/proc/self/maps").readLines().map { it.removeSuffix(" (deleted)").substringAfterLast(' ') }
    paths.toSet().filter { it.endsWith(".so") && "redlock" in it }.forEach(::println)
}

/** Acquires a lock, in the class loader of this class. */
fun acquire(): String = Redlock("memory://").use { client ->
    client.lock("loaded").acquireBlocking().use { lease -> if (lease.held) "held" else "lost" }
}

/** The copies of native libraries that later JVMs use. */
@EnabledOnOs(LINUX, disabledReason = "copies are kept on Linux only")
class LibraryCopiesTest {
    @TempDir
    private lateinit var above: Path

    private val folder by lazy { above.resolve("redlock") }
    private val user by lazy { Files.getAttribute(above, "unix:uid") as Int }
    private val contents = ByteArray(300_000) { (it % 251).toByte() }
    private val library: URL by lazy {
        val jar = above.resolve("package.jar")
        ZipOutputStream(jar.outputStream()).use { zip ->
            zip.putNextEntry(ZipEntry("linux/libany.so"))
            zip.write(contents)
        }
        URI("jar:${jar.toUri()}!/linux/libany.so").toURL()
    }

    private fun copies() = LibraryCopies(folder, user)

    /** Returns the copy, which is correct. */
    private fun copied(): Path = checkNotNull(copies().copy(library)).also { copy ->
        assertTrue(copy.isRegularFile(NOFOLLOW_LINKS))
        assertArrayEquals(contents, copy.readBytes())
        assertEquals(listOf(copy.name), copy.parent.toFile().list()?.toList())
    }

    private fun isRefused() {
        assertNull(copies().copy(library))
    }

    private fun Path.permit(who: String) = setPosixFilePermissions(PosixFilePermissions.fromString(who))

    private fun permissions(path: Path) = PosixFilePermissions.toString(Files.getPosixFilePermissions(path))

    private fun inode(path: Path) = Files.getAttribute(path, "unix:ino", NOFOLLOW_LINKS)

    @Test
    fun `a copy is made once, for the user alone`() {
        val copy = copied()
        assertEquals("rwx------", permissions(folder))
        assertFalse('w' in permissions(copy).drop(3))
        val file = inode(copy)
        assertEquals(copy, copied())
        assertEquals(file, inode(copy))
    }

    @Test
    fun `a damaged copy is replaced`() {
        for (damage in listOf(contents.copyOf(1000), ByteArray(0), contents.copyOf().apply { this[299_999] = 1 })) {
            val copy = copied()
            val file = inode(copy)
            copy.writeBytes(damage)
            copied()
            assertNotEquals(file, inode(copy))
        }
    }

    @Test
    fun `a copy to which others can write is replaced`() {
        for (who in listOf("rw-rw----", "rw----rw-")) {
            val copy = copied()
            val file = inode(copy)
            copy.permit(who)
            copied()
            assertNotEquals(file, inode(copy))
        }
    }

    @Test
    fun `a symbolic link in the place of a copy is replaced, and its target left alone`() {
        val copy = copied()
        val target = above.resolve("target").apply { writeBytes(contents) }
        Files.delete(copy)
        copy.createSymbolicLinkPointingTo(target)
        copied()
        assertArrayEquals(contents, target.readBytes())
    }

    @Test
    fun `a folder to which others can write is refused`() {
        val copy = copied()
        for (who in listOf("rwxrwx---", "rwx----w-")) {
            for (opened in listOf(folder, copy.parent, above)) {
                opened.permit(who)
                isRefused()
                opened.permit("rwx------")
            }
        }
        copied()
    }

    @Test
    fun `the folder may be in one like tmp, where each may delete only what is his own`() {
        val shared = above.resolve("shared").createDirectory()
        check(ProcessBuilder("chmod", "1777", "$shared").start().waitFor() == 0)
        assertTrue(checkNotNull(LibraryCopies(shared.resolve("redlock"), user).copy(library)).exists())
    }

    @Test
    fun `a folder of another user is refused`() {
        copied()
        assertNull(LibraryCopies(folder, user + 1).copy(library))
    }

    @Test
    fun `a folder that is a symbolic link, or a file, is refused`() {
        val target = above.resolve("target").createDirectory()
        folder.createSymbolicLinkPointingTo(target)
        isRefused()
        assertEquals(emptyList<String>(), target.toFile().list()?.toList())
        Files.delete(folder)
        folder.createFile()
        isRefused()
    }

    @Test
    fun `a folder that cannot be made is refused`() {
        assertNull(LibraryCopies(Path.of("/proc/redlock"), user).copy(library))
    }

    @Test
    fun `a library that is not in a jar is not copied`() {
        val file = above.resolve("libany.so").apply { writeBytes(contents) }
        assertNull(copies().copy(file.toUri().toURL()))
        assertFalse(folder.exists())
    }

    @Test
    fun `several threads at once make one copy`() {
        val start = CyclicBarrier(8)
        val made = Array<Path?>(8) { null }
        val threads = List(8) { number ->
            thread {
                start.await()
                made[number] = copies().copy(library)
            }
        }
        threads.forEach(Thread::join)
        assertEquals(setOf<Path?>(copied()), made.toSet())
    }

    @Test
    fun `old copies and unfinished ones are deleted, but no other file`() {
        fun file(path: String, days: Long) = folder.resolve(path).apply {
            parent.createDirectories()
            writeBytes(contents)
            setLastModifiedTime(FileTime.from(Instant.now().minusSeconds(days * 86_400 + 60)))
        }
        val old = listOf(file("1a2b-77/libold.so", 30), file("1a2b-78/1-2.tmp", 1))
        val others = listOf(file("1a2b-79/libnew.so", 29), file("notes/libold.so", 99), file("libold.so", 99))
        for (below in checkNotNull(folder.toFile().listFiles())) below.toPath().permit("rwx------")
        folder.permit("rwx------")
        copied()
        for (path in old) assertFalse(path.parent.exists()) { "$path" }
        for (path in others) assertTrue(path.exists()) { "$path" }
    }

    /** Starts JVMs at once, which use a jar with the library. Returns the loaded libraries of each. */
    private fun loaded(jvms: Int, vararg options: String, caches: Path? = null): List<List<String>> {
        val jar = above.resolve("package.jar")
        if (!jar.exists()) {
            val file = "$PLATFORM/${System.mapLibraryName("redlock_kotlin")}"
            val library = checkNotNull(Redlock::class.java.getResource("/$file")).readBytes()
            packageWith(above.resolve("package"), file to library).packInto(jar)
        }
        val command = arrayOf(*options, "-cp", classPathWith(jar), "dev.redlock.LibraryCopiesTestKt")
        val running = List(jvms) {
            val builder = java(*command)
            builder.environment().remove("XDG_CACHE_HOME")
            caches?.let { builder.environment()["XDG_CACHE_HOME"] = "$it" }
            builder.start()
        }
        return running.map { jvm ->
            val lines = jvm.inputStream.bufferedReader().readLines()
            val errors = jvm.errorStream.bufferedReader().readText()
            assertEquals(0, jvm.waitFor()) { errors }
            lines.sorted()
        }
    }

    /** The only copy in `folder`. */
    private fun copyIn(folder: Path): List<String> {
        val copies = Files.walk(folder).use { paths -> paths.filter { it.isRegularFile() }.map { "$it" }.toList() }
        assertEquals(listOf("libredlock_kotlin.so"), copies.map { it.substringAfterLast('/') })
        return copies
    }

    @Test
    fun `JVMs that start at once load the same copy`() {
        val setting = "-Dredlock.cache=$folder"
        val first = loaded(3, setting)
        for (libraries in first + loaded(1, setting)) assertEquals(copyIn(folder), libraries)
    }

    @Test
    fun `copies are among the caches of the user`() {
        val home = "-Duser.home=$above"
        val ofHome = loaded(2, home)
        assertEquals(copyIn(above.resolve(".cache/redlock")), ofHome.last())
        val ofCaches = loaded(2, home, caches = above.resolve("caches"))
        assertEquals(copyIn(above.resolve("caches/redlock")), ofCaches.last())
    }

    @Test
    fun `without copies, libraries are loaded from temporary files`() {
        val home = "-Duser.home=$above"
        val temporary = "-Dredlock.tmpdir=${above.resolve("temporary").createDirectory()}"
        val nowhere = "-Duser.home=$above/missing"
        for (options in listOf(arrayOf(home, "-Dredlock.cache=off"), arrayOf(home, temporary), arrayOf(nowhere))) {
            val libraries = loaded(1, *options).single()
            assertEquals(emptyList<String>(), libraries.filter { "redlock/" in it })
            assertFalse(above.resolve(".cache/redlock").exists())
            assertFalse(above.resolve("missing/.cache/redlock").exists())
        }
    }

    /** Acquires a lock with the classes that `loader` loads. */
    private fun acquires(loader: ClassLoader) {
        val run = loader.loadClass("dev.redlock.LibraryCopiesTestKt").getMethod("acquire")
        check(run.invoke(null) == "held")
    }

    @Test
    fun `each class loader of a JVM has the library for itself`() {
        val jar = above.resolve("package.jar")
        val file = "$PLATFORM/${System.mapLibraryName("redlock_kotlin")}"
        val library = checkNotNull(Redlock::class.java.getResource("/$file")).readBytes()
        packageWith(above.resolve("package"), file to library).packInto(jar)
        val urls = classPathWith(jar).split(File.pathSeparator).map { File(it).toURI().toURL() }.toTypedArray()
        val parent = ClassLoader.getPlatformClassLoader()
        System.setProperty("redlock.cache", "$folder")
        try {
            repeat(2) { acquires(URLClassLoader(urls, parent)) }
        } finally {
            System.clearProperty("redlock.cache")
        }
    }
}
