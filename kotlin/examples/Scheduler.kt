// A scheduler: each tick's job runs once, on one of many machines, even if machines die or hang during the job.
//
//     scripts/kotlin-run dev.redlock.examples.SchedulerKt [redis-url]
//
// Every worker tries to run every tick's job. One gets the lock; the others wait, and then find the job done. The
// guarantees:
//
// - **The job runs at least once.** The lock of a worker that dies is free within one lease, and the next worker runs
//   the job again from the start. No lock can tell whether the dead worker's last step took effect.
// - **The result is written exactly once.** The job's result and the mark "done" are written in one transaction, which
//   fails if the tick has a newer token than the writer. A worker that was paused for longer than its lease has an
//   older token: its write changes nothing.
// - **Effects elsewhere** (an e-mail, a payment) cannot be part of that transaction. Give them the tick as an
//   idempotency key, or accept that they may happen twice.
//
// The database is SQLite so that this runs anywhere. Any database with transactions works.

package dev.redlock.examples

import dev.redlock.Lease
import dev.redlock.LockLost
import dev.redlock.RedlockOptions
import dev.redlock.configure
import dev.redlock.lock
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import java.nio.file.Files
import java.nio.file.Path
import java.sql.Connection
import java.sql.DriverManager
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

private const val WORKERS = 4
private const val TICKS = 6
private val PERIOD = 500.milliseconds
private val LEASE = 2.seconds // how long a dead worker keeps the others waiting; the default is 30 s

// The ticks in whose first attempt the worker dies or hangs.
private const val DIES_AT = 2
private const val HANGS_AT = 4

/** The tick has the token of a newer holder. */
private class Outdated : Exception()

/** The database of the job: the results and the ticks that are done. */
private class Store(path: Path) {
    private val connection: Connection = DriverManager.getConnection("jdbc:sqlite:$path?busy_timeout=30000")

    fun create() {
        execute(
            "CREATE TABLE tick (number INTEGER PRIMARY KEY, fence INTEGER NOT NULL, attempts INTEGER NOT NULL, done INTEGER)",
        )
        execute("CREATE TABLE report (tick INTEGER, worker INTEGER)")
    }

    private fun execute(statement: String, vararg values: Any): Int = connection.prepareStatement(statement).use {
        values.forEachIndexed { index, value -> it.setObject(index + 1, value) }
        it.executeUpdate()
    }

    private fun query(statement: String): List<List<Int>> = connection.createStatement().use { statements ->
        val rows = statements.executeQuery(statement)
        buildList { while (rows.next()) add(List(rows.metaData.columnCount) { rows.getInt(it + 1) }) }
    }

    /** Runs the block in one transaction: all of its statements take effect, or none. */
    private fun <T> transaction(block: () -> T): T {
        execute("BEGIN IMMEDIATE")
        return runCatching(block).onSuccess { execute("COMMIT") }.onFailure { execute("ROLLBACK") }.getOrThrow()
    }

    /** Registers a token, as the first access of a tenure must. Returns the attempt's number, or 0 if it is done. */
    fun begin(tick: Int, token: Long): Int = transaction {
        execute("INSERT OR IGNORE INTO tick VALUES (?, 0, 0, NULL)", tick)
        val register =
            "UPDATE tick SET fence = ?1, attempts = attempts + (done IS NULL) WHERE number = ?2 AND fence <= ?1"
        if (execute(register, token, tick) == 0) throw Outdated()
        val (done, attempts) = query("SELECT done, attempts FROM tick WHERE number = $tick").single()
        if (done == 1) 0 else attempts
    }

    /** Writes the result and the mark "done", unless a newer holder has registered its token. */
    fun finish(tick: Int, token: Long, worker: Int) = transaction {
        val done = "UPDATE tick SET done = 1 WHERE number = ? AND fence = ? AND done IS NULL"
        if (execute(done, tick, token) == 0) throw Outdated()
        execute("INSERT INTO report VALUES (?, ?)", tick, worker)
    }

    fun isDone(tick: Int) = query("SELECT 1 FROM tick WHERE number = $tick AND done").isNotEmpty()

    fun summary() = query(
        "SELECT number, attempts, (SELECT count(*) FROM report WHERE tick = number) FROM tick ORDER BY number",
    )
}

/** Runs a tick's job unless it is done. The caller holds the lock. */
private suspend fun run(store: Store, tick: Int, lease: Lease, worker: Int) {
    val attempt = store.begin(tick, lease.token)
    if (attempt == 0) return
    println("worker $worker runs the job of tick $tick" + if (attempt > 1) " again" else "")
    delay(PERIOD / 5) // the work
    if (attempt == 1 && tick == DIES_AT) {
        println("worker $worker dies")
        Runtime.getRuntime().halt(1) // as kill -9 does: nothing is released
    }
    // A worker that wakes up after its lease would be cancelled here. This one ignores the cancellation, as code
    // sometimes must.
    withContext(NonCancellable) {
        if (attempt == 1 && tick == HANGS_AT) {
            println("worker $worker hangs")
            signal(ProcessHandle.current().pid(), "STOP")
            Thread.sleep(200) // until the signal arrives: it must not stop the process inside a transaction
        }
        try {
            store.finish(tick, lease.token, worker)
            println("worker $worker has done tick $tick")
        } catch (_: Outdated) {
            println("worker $worker comes too late for tick $tick: its write is refused")
        }
    }
}

/** Runs the worker of one machine. */
private suspend fun work(url: String?, database: Path, worker: Int, begin: Long) {
    configure(url?.let(::listOf), RedlockOptions(watchdog = LEASE))
    val store = Store(database)
    for (tick in 1..TICKS) {
        delay(begin.milliseconds + PERIOD * tick - System.currentTimeMillis().milliseconds)
        try {
            lock("scheduler:report").withLock { lease -> run(store, tick, lease, worker) }
        } catch (_: LockLost) {
            // The lease ended during the job, and the store refused the write.
        }
    }
}

fun main(arguments: Array<String>) {
    val url = arguments.getOrNull(0)?.ifEmpty { null }
    if (arguments.size > 1) {
        val (database, worker, begin) = arguments.drop(1)
        return runBlocking { work(url, Path.of(database), worker.toInt(), begin.toLong()) }
    }
    // Starts the workers, resumes the one that hangs, and prints the results.
    val database = Files.createTempFile("jobs", ".db")
    val store = Store(database).apply { create() }
    val begin = System.currentTimeMillis()
    val workers = List(WORKERS) { number ->
        startJvm("dev.redlock.examples.SchedulerKt", listOf(url.orEmpty(), "$database", "${number + 1}", "$begin"))
    }
    val output = workers.map { worker -> thread { worker.inputReader().forEachLine(::println) } }
    while (!store.isDone(HANGS_AT) && workers.any(Process::isAlive)) Thread.sleep(50)
    // SIGCONT resumes the worker that hangs and has no effect on the others.
    workers.filter(Process::isAlive).forEach { signal(it.pid(), "CONT") }
    workers.forEach { it.waitFor() }
    output.forEach { it.join() }
    for ((tick, attempts, reports) in store.summary()) println("tick $tick: attempts $attempts, reports $reports")
    Files.delete(database)
}
