// A flash sale: one console, many customers. A customer who reserves it has some time to pay, and nobody else can buy
// it in that time.
//
//     scripts/kotlin-run dev.redlock.examples.FlashSaleKt [redis-url]
//
// The environment variable TIME_TO_PAY sets how many seconds a customer has; default: 6.
//
// The reservation is a lock with an explicit owner, the customer, and a fixed ttl, the time to pay:
//
// - The web server acquires it. Its process may end then: fixed leases of explicit owners outlive their process.
// - The payment service is another process. It needs no lease, only the customer:
//   `lock(…, owner = customer).release()`.
// - If the payment fails, the item is back on sale at once. If the bank never answers, it is back when the ttl ends.
//
// The lock decides who may buy now. The shop's database has the buyer in a row, with the largest token of a reservation
// so far. If the bank answers after the ttl and a newer reservation has registered its token, the database refuses the
// sale, even if nobody has bought the item since. The customer gets the money back.

package dev.redlock.examples

import dev.redlock.NotHeld
import dev.redlock.configure
import dev.redlock.lock
import kotlinx.coroutines.runBlocking
import java.nio.file.Files
import java.nio.file.Path
import java.sql.Connection
import java.sql.DriverManager
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

private const val ITEM = "console"
private val TIME_TO_PAY = (System.getenv("TIME_TO_PAY") ?: "6").toInt().seconds

/** The lock of the reservation, the same in all services. */
private fun reservation(customer: String, wait: Duration = Duration.ZERO) =
    lock("flash-sale:$ITEM", owner = customer, ttl = TIME_TO_PAY, wait = wait)

// ---- the shop's database: any that can update a row on a condition ------------------------------------------------

/** Runs one statement in a transaction of its own and returns how many rows it changed. */
private fun execute(database: Path, statement: String, vararg values: Any): Int = connect(database).use { connection ->
    connection.prepareStatement(statement).run {
        values.forEachIndexed { index, value -> setObject(index + 1, value) }
        executeUpdate()
    }
}

/** The buyer of the item, if it is sold. */
private fun buyer(database: Path): String? = connect(database).use { connection ->
    connection.createStatement().executeQuery("SELECT buyer FROM item").getString(1)
}

private fun connect(path: Path): Connection = DriverManager.getConnection("jdbc:sqlite:$path?busy_timeout=30000")

// ---- the web server: reserves ---------------------------------------------------------------------------------------

/** Reserves the item and returns the reservation's token, or 0. The process ends then, as it would in a deploy. */
private suspend fun reserve(database: Path, customer: String, wait: Duration): Long {
    val lease = reservation(customer, wait).run { if (wait == Duration.ZERO) tryAcquire() else acquire() }
    if (lease == null) {
        say("web", "sorry $customer, somebody else is paying right now")
        return 0
    }
    // The first access of each tenure registers its token: from then on the database refuses older reservations.
    val register = "UPDATE item SET fence = ?1 WHERE fence <= ?1 AND buyer IS NULL"
    if (execute(database, register, lease.token) == 0) {
        say("web", "sorry $customer, it is sold to ${buyer(database)}")
        lease.release()
        return 0
    }
    say("web", "$customer has ${TIME_TO_PAY.inWholeSeconds} s to pay")
    return lease.token
}

// ---- the payment service: sells, or gives back ----------------------------------------------------------------------

/** Handles the bank's answer. The token went to the bank and back as the reference of the payment. */
private suspend fun settle(database: Path, customer: String, token: Long, accepted: Boolean) {
    if (accepted) {
        val sale = "UPDATE item SET buyer = ? WHERE fence = ? AND buyer IS NULL"
        if (execute(database, sale, customer, token) == 0) {
            // The reservation had ended by its ttl. Do not release: the customer may have a newer reservation by now.
            say("payments", "$customer paid too late, and gets the money back")
            return
        }
        say("payments", "$customer paid: sold")
    } else {
        say("payments", "$customer's card was declined: back on sale")
    }
    try {
        reservation(customer).release()
    } catch (_: NotHeld) {
        say("payments", "$customer's reservation had ended meanwhile")
    }
}

// ---- the course of the sale -----------------------------------------------------------------------------------------

private fun say(who: String, what: String) = println("${who.padStart(8)}: $what")

/** Runs a service as a process of its own, as if on another machine. Returns the number that it prints, or 0. */
private fun service(vararg arguments: Any?): Long {
    val process = startJvm("dev.redlock.examples.FlashSaleKt", arguments.map { "${it ?: ""}" })
    val (answers, lines) = process.inputReader().readLines().partition { it.toLongOrNull() != null }
    check(process.waitFor() == 0) { lines }
    lines.forEach(::println)
    return answers.firstOrNull()?.toLong() ?: 0
}

fun main(arguments: Array<String>): Unit = runBlocking {
    val url = arguments.getOrNull(0)?.ifEmpty { null }
    configure(url?.let(::listOf))
    when (arguments.getOrNull(1)) {
        null -> day(url)
        "web" -> println(reserve(Path.of(arguments[2]), arguments[3], Duration.parse(arguments[4])))
        else -> settle(Path.of(arguments[2]), arguments[3], arguments[4].toLong(), arguments[5].toBoolean())
    }
}

/** Four customers try to buy the same console. */
private fun day(url: String?) {
    val database = Files.createTempFile("shop", ".db")
    fun web(customer: String, wait: Duration = Duration.ZERO) = service(url, "web", database, customer, wait)
    fun payments(customer: String, token: Long, accepted: Boolean) =
        service(url, "payments", database, customer, token, accepted)

    execute(database, "CREATE TABLE item (buyer TEXT, fence INTEGER NOT NULL)")
    execute(database, "INSERT INTO item VALUES (NULL, 0)")

    val ann = web("ann")
    web("bob")
    payments("ann", ann, accepted = false)
    val bob = web("bob")
    say("bank", "no answer about bob's card")
    val carl = web("carl", wait = TIME_TO_PAY * 3) // waits until bob's time is over
    say("bank", "bob's card was accepted after all")
    payments("bob", bob, accepted = true)
    payments("carl", carl, accepted = true)
    web("dora")
    println("sold to ${buyer(database)}, once")
    Files.delete(database)
}
