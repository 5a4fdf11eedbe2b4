// The log of the library: the `System.Logger` named `redlock`.

package dev.redlock

import java.lang.System.Logger.Level
import java.util.logging.LogRecord
import java.util.logging.Logger
import java.util.logging.Level as JulLevel

internal object Log {
    private const val NAME = "redlock"

    private val logger = System.getLogger(NAME)

    /** Whether `System.Logger` logs to java.util.logging: the default, unless the application has another logger. */
    private val isJul = System.LoggerFinder.getLoggerFinder().javaClass.name.startsWith("sun.util.logging.")

    val isVerbose: Boolean get() = logger.isLoggable(Level.DEBUG)

    fun debug(line: String): Unit = log(Level.DEBUG, line, null)

    fun warning(line: String): Unit = log(Level.WARNING, line, null)

    fun error(line: String, failure: Throwable): Unit = log(Level.ERROR, line, failure)

    private fun log(level: Level, line: String, failure: Throwable?) {
        if (isJul) Jul.log(level, line, failure) else logger.log(level, line, failure)
    }

    /** A separate class, loaded only if it is used: a JVM may lack the module java.logging. */
    private object Jul {
        private val logger = Logger.getLogger(NAME)

        fun log(level: Level, line: String, failure: Throwable?) = logger.log(
            LogRecord(JulLevel.parse("${level.severity}"), line).apply {
                loggerName = NAME
                thrown = failure
                // Without a class, the logger's name is printed. The default would be this class.
                sourceClassName = null
            },
        )
    }
}
