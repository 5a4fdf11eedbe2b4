package dev.redlock

import dev.redlock.internal.PLATFORM
import dev.redlock.internal.hasMusl
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.condition.EnabledOnOs
import org.junit.jupiter.api.condition.OS.LINUX
import org.junit.jupiter.api.io.TempDir
import java.nio.channels.FileChannel
import java.nio.file.Path
import java.util.concurrent.CyclicBarrier
import kotlin.concurrent.thread
import kotlin.io.path.createFile
import kotlin.io.path.writeBytes

/** Two threads at once acquire a lock or print why they cannot; so does the main thread afterwards. Maps `files`. */
fun main(files: Array<String>) {
    val maps = files.map { FileChannel.open(Path.of(it)).map(FileChannel.MapMode.READ_ONLY, 0, 1) }
    val start = CyclicBarrier(2)
    val threads = List(2) {
        thread {
            start.await()
            println(acquired())
        }
    }
    threads.forEach(Thread::join)
    println(acquired())
    check(maps.size == files.size)
}

private fun acquired(): String = try {
    Redlock("memory://").use { client -> client.lock("loaded").acquireBlocking().use { "works" } }
} catch (error: UnsatisfiedLinkError) {
    checkNotNull(error.cause) { "the cause is missing" }
    checkNotNull(error.message)
}

/** The native library that a JVM loads, and the error without one, with packages that carry different libraries. */
class LoaderTest {
    @TempDir
    private lateinit var folder: Path

    private val here = PLATFORM
    private val file = System.mapLibraryName("redlock_kotlin")
    private val muslFile = System.mapLibraryName("redlock_kotlin_musl")
    private val library = checkNotNull(Redlock::class.java.getResource("/$here/$file")).readBytes()
    private val garbage = "no library".toByteArray()

    private fun carrying(vararg libraries: Pair<String, ByteArray>) = packageWith(folder.resolve("package"), *libraries)

    /** Runs [main] on such a package. Returns its output, which must be the same both times. */
    private fun says(made: Path, vararg options: String, maps: List<Path> = emptyList()): String {
        val copies = "-Dredlock.cache=${folder.resolve("copies")}"
        val command = arrayOf(copies, *options, "-cp", classPathWith(made))
        val child = java(*command, "dev.redlock.LoaderTestKt", *maps.map { "$it" }.toTypedArray()).start()
        val lines = child.inputStream.bufferedReader().readLines()
        val errors = child.errorStream.bufferedReader().readText()
        assertEquals(0, child.waitFor()) { errors }
        assertEquals(3, lines.size) { "$lines" }
        assertEquals(1, lines.toSet().size) { "$lines" }
        return lines[0]
    }

    @Test
    fun `without a library for the machine the error lists those in the jar and says what to do`() {
        val made = carrying("linux-none/$file" to library, "linux-none/$muslFile" to library)
        val line = says(made)
        assertTrue(line.startsWith("redlock-core has no native library for $here, only for linux-none, ")) { line }
        assertTrue("linux-none (musl): build it " in line) { line }
        assertTrue("/kotlin#from-this-repository" in line) { line }
    }

    @Test
    fun `the same on an unknown machine`() {
        val line = says(carrying("$here/$file" to library), "-Dos.arch=abacus")
        assertTrue("no native library for ${here.substringBefore('-')}-abacus, only for $here: " in line) { line }
    }

    @Test
    fun `the error for a library that cannot be loaded has the reason`() {
        val line = says(carrying("$here/$file" to garbage))
        assertTrue(line.startsWith("redlock-core cannot load its native library for $here: ")) { line }
        assertTrue("$file: " in line) { line }
    }

    @Test
    fun `if the library cannot be unpacked the error says how to set another folder`() {
        val taken = folder.resolve("taken").createFile()
        val jar = folder.resolve("package.jar").also(carrying("$here/$file" to library)::packInto)
        val line = says(jar, "-Dredlock.tmpdir=$taken/below")
        assertTrue(line.endsWith("; -Dredlock.tmpdir=FOLDER says where programs may be")) { line }
    }

    @Test
    @EnabledOnOs(LINUX, disabledReason = "musl is a C library of Linux")
    fun `a process with musl gets the library for musl`() {
        val loader = folder.resolve("ld-musl-x86_64.so.1").createFile().apply { writeBytes(garbage) }
        val made = carrying("$here/$file" to garbage, "$here/$muslFile" to library)
        assertEquals("works", says(made, maps = listOf(loader)))
    }

    @Test
    @EnabledOnOs(LINUX, disabledReason = "musl is a C library of Linux")
    fun `a process without musl gets the library for glibc`() {
        assertEquals("works", says(carrying("$here/$file" to library, "$here/$muslFile" to garbage)))
    }

    @Test
    @EnabledOnOs(LINUX, disabledReason = "musl is a C library of Linux")
    fun `without a library for musl the one for glibc is tried, and the error lists those in the jar`() {
        val loader = folder.resolve("ld-musl-x86_64.so.1").createFile().apply { writeBytes(garbage) }
        assertEquals("works", says(carrying("$here/$file" to library), maps = listOf(loader)))
        val line = says(carrying("$here/$file" to garbage), maps = listOf(loader))
        assertTrue("no native library for $here (musl), only for $here: " in line) { line }
    }

    @Test
    fun `a library that the user names takes precedence over those in the jar`() {
        val made = carrying("$here/$file" to garbage)
        val own = folder.resolve("own").apply { writeBytes(library) }
        assertEquals("works", says(made, "-Duniffi.component.redlock_kotlin.libraryOverride=$own"))
        val line = says(made, "-Duniffi.component.redlock_kotlin.libraryOverride=$folder/missing")
        assertTrue(line.startsWith("redlock-core cannot load its native library $folder/missing: ")) { line }
    }

    @Test
    fun `the library is read from a jar`() {
        for ((content, outcome) in listOf(library to "works", garbage to "redlock-core cannot load ")) {
            val made = carrying("$here/$file" to content)
            val jar = folder.resolve("package.jar").also(made::packInto)
            val line = says(jar)
            assertTrue(line.startsWith(outcome)) { line }
        }
    }

    @Test
    fun `musl is recognised by the files that it maps`() {
        val alpine = "7f8e5c0b4000-7f8e5c0c8000 r--p 00000000 fe:01 1184 /lib/ld-musl-x86_64.so.1"
        val elsewhere = "7f8e5c0b4000-7f8e5c0c8000 r--p 00000000 fe:01 1184 /usr/lib/x86_64-linux-musl/libc.so"
        val glibc = "7f1c2a000000-7f1c2a028000 r--p 00000000 fe:01 1311 /usr/lib/x86_64-linux-gnu/libc.so.6"
        val others = sequenceOf(glibc, "7ffd1b5f2000-7ffd1b613000 rw-p 00000000 00:00 0 [stack]", "")
        assertFalse(hasMusl(others))
        for (line in listOf(alpine, elsewhere, "$elsewhere (deleted)")) assertTrue(hasMusl(others + line)) { line }
    }
}
