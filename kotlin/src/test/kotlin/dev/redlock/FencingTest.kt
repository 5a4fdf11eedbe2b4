package dev.redlock

import dev.redlock.examples.OutdatedToken
import dev.redlock.examples.balance
import dev.redlock.examples.deposit
import dev.redlock.examples.fenced
import dev.redlock.examples.update
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.io.TempDir
import java.nio.file.Path
import java.sql.Connection
import java.sql.DriverManager
import kotlin.time.Duration.Companion.milliseconds

/** The accesses of a holder to a counter: it reads the value, adds one, and writes it. */
private class Holder(val read: () -> Long, val write: (Long) -> Unit)

/**
 * Runs the fencing recipe with two holders, each on a connection of its own, in all interleavings. The negative
 * controls run the same without the check, and with a check on writes only. They must lose updates: otherwise this test
 * could not find a fault.
 */
class FencingTest : OnServer() {
    @TempDir
    lateinit var folder: Path

    private val connections = mutableListOf<Connection>()

    private fun connect(): Connection =
        DriverManager.getConnection("jdbc:sqlite:$folder/bank.db?busy_timeout=30000").also(connections::add)

    private fun openAccount() = connect().apply {
        createStatement().use {
            it.executeUpdate("DROP TABLE IF EXISTS account")
            it.executeUpdate("CREATE TABLE account (id BIGINT PRIMARY KEY, fence BIGINT NOT NULL, balance BIGINT)")
            it.executeUpdate("INSERT INTO account VALUES (7, 0, 0)")
        }
    }

    @AfterEach
    fun disconnect() = connections.forEach(Connection::close)

    private fun everyAccess(connection: Connection, token: Long) = Holder(
        { connection.fenced(7, token) { connection.balance(7) } },
        { value -> connection.fenced(7, token) { plainWrite(connection, value) } },
    )

    private fun writesOnly(connection: Connection, token: Long) =
        Holder({ connection.balance(7) }, everyAccess(connection, token).write)

    private fun noCheck(connection: Connection) =
        Holder({ connection.balance(7) }, { value -> plainWrite(connection, value) })

    private fun plainWrite(connection: Connection, value: Long) {
        connection.update("UPDATE account SET balance = ? WHERE id = ?", value, 7)
    }

    /** The orders of the steps of A and of B, the newer holder, in which an accepted update is lost. */
    private fun losing(rule: (Connection, Long) -> Holder): List<String> =
        listOf("AABB", "ABAB", "ABBA", "BAAB", "BABA", "BBAA").filter { order ->
            val bank = openAccount()
            val holders = mapOf('A' to rule(connect(), 1), 'B' to rule(connect(), 2))
            val seen = mutableMapOf<Char, Long>()
            val refused = mutableSetOf<Char>()
            var accepted = 0L
            for (who in order) {
                if (who in refused) continue
                val holder = holders.getValue(who)
                try {
                    val value = seen[who]
                    if (value == null) {
                        seen[who] = holder.read()
                    } else {
                        holder.write(value + 1)
                        accepted++
                    }
                } catch (_: OutdatedToken) {
                    refused += who
                }
            }
            assertFalse('B' in refused, "the newest holder is never refused")
            (bank.balance(7) != accepted).also { disconnect() }
        }

    @Test
    fun `no update is lost when every access is fenced, and some are when only writes or none are`() {
        assertEquals(emptyList<String>(), losing(::everyAccess))
        assertEquals(listOf("ABAB", "BAAB"), losing(::writesOnly))
        assertEquals(listOf("ABAB", "ABBA", "BAAB", "BABA"), losing { connection, _ -> noCheck(connection) })
    }

    @Test
    fun `a holder that writes after its lease without a check is refused`(): Unit = runBlocking {
        val bank = openAccount()
        val stale = client.lock("account:7", ttl = 200.milliseconds).acquire()
        val late = everyAccess(connect(), stale.token)
        val value = late.read()
        // Waits until the stale lease has ended.
        client.lock("account:7").withLock { lease ->
            val holder = everyAccess(connect(), lease.token)
            val now = holder.read()
            assertThrows(OutdatedToken::class.java) { late.write(value + 1) }
            holder.write(now + 10)
        }
        assertFalse(stale.held)
        assertEquals(10, bank.balance(7))
    }

    @Test
    fun `the example of the recipe's use`() {
        val bank = openAccount()
        deposit(bank, 7, 30, token = 1_800_000_000_000_000)
        deposit(bank, 7, 12, token = 1_800_000_000_000_001)
        assertThrows(OutdatedToken::class.java) { deposit(bank, 7, 1, token = 999) }
        assertEquals(42, bank.balance(7))
    }
}
