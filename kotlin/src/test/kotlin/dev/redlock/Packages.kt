// Copies of the tested package that carry other native libraries.

package dev.redlock

import java.io.File
import java.nio.file.FileSystems
import java.nio.file.Files
import java.nio.file.Path
import java.util.zip.ZipEntry
import java.util.zip.ZipOutputStream
import kotlin.io.path.createDirectories
import kotlin.io.path.isDirectory
import kotlin.io.path.name
import kotlin.io.path.outputStream
import kotlin.io.path.readBytes
import kotlin.io.path.writeBytes
import kotlin.io.path.writeLines

private val tested = Path.of(Redlock::class.java.protectionDomain.codeSource.location.toURI())

/** Makes a copy of the tested package in `folder`, with these native libraries and no others. */
fun packageWith(folder: Path, vararg libraries: Pair<String, ByteArray>): Path {
    fun put(name: String, bytes: ByteArray) =
        folder.resolve(name).apply { parent.createDirectories() }.writeBytes(bytes)

    fun copy(root: Path) = Files.walk(root).use { paths ->
        for (path in paths.filter { !it.isDirectory() && "redlock_kotlin." !in it.name }) {
            put("${root.relativize(path)}", path.readBytes())
        }
    }
    if (tested.isDirectory()) copy(tested) else FileSystems.newFileSystem(tested).use { copy(it.getPath("/")) }
    for ((name, bytes) in libraries) put(name, bytes)
    folder.resolve("dev/redlock/internal/natives").writeLines(libraries.map { it.first })
    return folder
}

/** Packs this folder into a jar. */
fun Path.packInto(jar: Path): Unit = ZipOutputStream(jar.outputStream()).use { zip ->
    for (path in Files.walk(this).filter { !it.isDirectory() }) {
        zip.putNextEntry(ZipEntry(relativize(path).joinToString("/")))
        zip.write(path.readBytes())
    }
}

/** The class path of these tests with another package. */
fun classPathWith(made: Path): String =
    (listOf("$made") + classPath().split(File.pathSeparator).filterNot { Path.of(it) == tested })
        .joinToString(File.pathSeparator)
