// Starts processes for the examples, in which several machines take part.

package dev.redlock.examples

import java.nio.file.Path

/** Starts a main class in a JVM of its own. The caller must read its standard output. */
internal fun startJvm(mainClass: String, arguments: List<String>): Process {
    val java = Path.of(System.getProperty("java.home"), "bin", "java").toString()
    val command = listOf(java, "-cp", System.getProperty("java.class.path"), mainClass) + arguments
    return ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start()
}

/** Sends a signal to a process. */
internal fun signal(process: Long, name: String) {
    ProcessBuilder("kill", "-$name", "$process").start().waitFor()
}
