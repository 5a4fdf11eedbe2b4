package dev.redlock

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.io.File
import java.net.URI
import java.nio.file.Path
import javax.tools.Diagnostic
import javax.tools.DiagnosticCollector
import javax.tools.JavaFileObject
import javax.tools.SimpleJavaFileObject
import javax.tools.ToolProvider

/**
 * Compiles the blocks of Kotlin and Java in the documentation. The page shows how a block is tested:
 *
 * - An excerpt follows a link to a file. `python/tests/test_docs.py` compares the two, and checks the fences of all
 *   blocks.
 * - The first line of a program, after comments, is an import. A program is compiled as it is.
 * - A fragment is any other block. It is compiled as the body of a function, which knows `client` and the names in
 *   [KOTLIN_NAMES] or [JAVA_NAMES].
 */
class DocsTest {
    private class Block(val page: String, val line: Int, val language: String, val code: String) {
        val isProgram = Regex("(//.*\\n|\\s)*import ").matchesAt(code, 0)
    }

    private fun blocksOf(page: String, text: String): List<Block> = FENCES.findAll(text).mapNotNull { fence ->
        val before = text.substring(0, fence.range.first)
        val (indent, language, code) = fence.destructured
        Block(page, before.count { it == '\n' } + 2, language, code.replace(Regex("(?m)^$indent"), ""))
            .takeUnless { EXCERPT.containsMatchIn(before) }
    }.toList()

    /** All blocks, without those of Redisson's own API: it is not installed. */
    private fun blocks(language: String): List<Block> {
        val readmes = ROOT.listFiles().orEmpty().map { it.resolve("README.md") } + ROOT.resolve("README.md")
        val pages = readmes + ROOT.resolve("docs").listFiles().orEmpty().filter { it.extension == "md" }
        val found = pages.filter { it.isFile }.flatMap { blocksOf(it.relativeTo(ROOT).path, it.readText()) }
            .filter { it.language == language }
        for (page in listOf("README.md", "kotlin/README.md", "docs/quickstart.md", "docs/locks.md")) {
            assertTrue(found.any { it.page == page }) { "no $language in $page" }
        }
        return found.filter { "import org.redisson." !in it.code }
    }

    /** The errors of a compiler in each block, with the lines of the page. */
    private fun javaErrors(blocks: List<Block>, out: Path): Map<Block, String> = blocks.associateWith { block ->
        val (before, after) = if (block.isProgram) "" to "" else JAVA_NAMES to "}}"
        val source = object : SimpleJavaFileObject(URI("string:///Block.java"), JavaFileObject.Kind.SOURCE) {
            override fun getCharContent(ignoreEncodingErrors: Boolean) =
                before + "\n".repeat(block.line - 1) + block.code + after
        }
        val found = DiagnosticCollector<JavaFileObject>()
        val options = listOf("-classpath", classPath(), "-d", "$out", "-proc:none")
        ToolProvider.getSystemJavaCompiler().getTask(null, null, found, options, null, listOf(source)).call()
        found.diagnostics.filter { it.kind == Diagnostic.Kind.ERROR }
            .joinToString("\n") { "${block.page}:${it.lineNumber}: ${it.getMessage(null)}" }
    }

    private fun kotlinErrors(blocks: List<Block>, folder: Path): Map<Block, String> {
        val files = blocks.withIndex().associate { (number, block) ->
            val header = "package block$number;" + if (block.isProgram) "" else KOTLIN_HEADER
            val code = header + "\n".repeat(block.line - 1) + block.code + if (block.isProgram) "" else "}\n"
            folder.resolve("Block$number.kt").toFile().apply { writeText(code) }.path to block
        }
        val names = folder.resolve("Names.kt").toFile().apply { writeText(KOTLIN_NAMES) }
        val version = System.getProperty("kotlin.compiler.languageVersion")
        val options = listOf("-language-version", version, "-api-version", version, "-jvm-target", "17", "-nowarn")
        val classes = folder.resolve("classes")
        val libraries = listOf("-no-stdlib", "-no-reflect", "-classpath", classPath(), "-d", "$classes")
        val java = Path.of(System.getProperty("java.home"), "bin", "java")
        val main = listOf("$java", "-cp", compiler(), "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler")
        val command = main + options + libraries + files.keys + names.path
        val output = folder.resolve("output").toFile()
        val process = ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start()
        try {
            process.waitFor()
        } finally {
            process.destroyForcibly()
        }
        val said = output.readText()
        val errors = Regex("(?m)^(.+?):(\\d+):\\d+: error: (.*)$").findAll(said).map { it.destructured }.groupBy(
            { (file) -> checkNotNull(files[file]) { said } },
            { (file, line, message) -> "${files.getValue(file).page}:$line: $message" },
        )
        check(errors.isNotEmpty() || classes.toFile().exists()) { said }
        return blocks.associateWith { errors[it].orEmpty().joinToString("\n") }
    }

    /** The class path of the compiler that Maven runs. Its jars are in the repository of this class path. */
    private fun compiler(): String {
        val junit = Test::class.java.protectionDomain.codeSource.location
        val folders = generateSequence(File(junit.toURI())) { it.parentFile }
        val repository = folders.first { it.resolve("org/junit").isDirectory }
        fun stored(group: String, artifact: String, version: String, extension: String = "jar") =
            repository.resolve("${group.replace('.', '/')}/$artifact/$version/$artifact-$version.$extension")
                .also { check(it.isFile) { "$it is missing; mvn test-compile downloads it" } }

        val kotlin = "org.jetbrains.kotlin"
        val version = System.getProperty("kotlin.compiler.version")
        val own = listOf(stored(kotlin, "kotlin-compiler", version), stored(kotlin, "kotlin-stdlib", version))
        val dependencies = DEPENDENCY.findAll(stored(kotlin, "kotlin-compiler", version, "pom").readText())
            .map { it.destructured }.map { (group, artifact, version) -> stored(group, artifact, version) }
        return (own + dependencies).joinToString(File.pathSeparator)
    }

    /** Checks that blocks of the pages have no error, and that each block of `broken` has the error named there. */
    private fun verify(language: String, broken: Map<String, String>, errors: (List<Block>) -> Map<Block, String>) {
        val planted = broken.keys.associateBy { code ->
            val inside = code.prependIndent("    ")
            blocksOf("page.md", "# Title\n\n=== \"Tab\"\n\n    ```$language\n$inside\n    ```\n").single()
        }
        val found = errors(blocks(language) + planted.keys)
        assertEquals("", (found - planted.keys).values.filter { it != "" }.joinToString("\n"))
        for ((block, code) in planted) {
            assertEquals(code, block.code.trimEnd())
            assertTrue(Regex("page.md:[67]: .*${broken[code]}.*").matches(found.getValue(block).lines().first())) {
                "$code: ${found[block]}"
            }
        }
    }

    @Test
    fun `java - programs and fragments compile, and broken ones do not`(@TempDir folder: Path) {
        val broken = mapOf(
            "import dev.redlock.Redlock;\nclass Main { Redlock client = new Redlock(7); }" to "no suitable constructor",
            "client.lock(\"x\").aquireBlocking();" to "cannot find symbol",
            "client.lock(\"x\"" to "expected",
        )
        verify("java", broken) { javaErrors(it, folder) }
    }

    @Test
    fun `kotlin - programs and fragments compile, and broken ones do not`(@TempDir folder: Path) {
        val broken = mapOf(
            "import dev.redlock.Redlock\nfun main() = Redlock(\"memory://\").nothing()" to "nothing",
            "client.lock(\"x\", weight = 1)" to "weight",
        )
        verify("kotlin", broken) { kotlinErrors(it, folder) }
    }

    private companion object {
        val ROOT: File = File("..").canonicalFile
        val FENCES = Regex("(?ms)^( *)```(kotlin|java)\\b[^\\n]*\\n(.*?)^\\1```$")
        val EXCERPT = Regex("\\[`[^`]+`]\\([^)]+\\):\\n\\n\\z")
        val DEPENDENCY = Regex(
            "<dependency>\\s*<groupId>(.+)</groupId>\\s*<artifactId>(.+)</artifactId>\\s*<version>(.+)</version>",
        )

        const val KOTLIN_HEADER = "import dev.redlock.*; import kotlin.time.Duration.Companion.seconds; " +
            "import names.*; suspend fun fragment(client: Redlock) {"
        const val KOTLIN_NAMES = """
            package names
            val new = ""
            val connection = ""
            fun buildReport(fence: Long) = println(fence)
            fun loadConfig() = ""
            fun serve(config: String) = println(config)
            fun saveConfig(config: String, fence: Long) = println(config + fence)
            fun announce(config: String) = println(config)
            fun deposit(connection: String, account: Long, amount: Long, token: Long) =
                println(connection + account + amount + token)
            fun run(device: Int, fence: Long) = println(device + fence)
        """
        const val JAVA_NAMES = "import dev.redlock.*; import java.io.IOException; import java.time.Duration; " +
            "abstract class Fragment { Redlock client; JavaLock report; String next; " +
            "abstract void buildReport(long fence); abstract void saveConfig(String config, long fence); " +
            "abstract void announce(String config); " +
            "abstract void run(int device, long fence); void fragment() throws Exception {"
    }
}
