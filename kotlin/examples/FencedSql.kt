// Fencing in SQL: each transaction presents the token, the first one of a tenure too. To be copied; see docs/fencing.md.
//
// The token is a column of the row that the lock protects. Works with PostgreSQL, MySQL and SQLite by JDBC, which counts
// the rows that an UPDATE finds. (MySQL by itself counts those it changes: leave `useAffectedRows` alone.)

package dev.redlock.examples

import java.sql.Connection

/** A newer holder of the lock was here: stop. */
class OutdatedToken(message: String) : Exception(message)

/** Runs a block as one transaction under a token; throws [OutdatedToken] before it if a larger token was here. */
fun <T> Connection.fenced(account: Long, token: Long, access: () -> T): T {
    autoCommit = false
    try {
        val present = "UPDATE account SET fence = ? WHERE id = ? AND fence <= ?"
        if (update(present, token, account, token) == 0) throw OutdatedToken("account $account: token $token")
        return access().also { commit() }
    } catch (failure: Throwable) {
        rollback()
        throw failure
    } finally {
        autoCommit = true
    }
}

/** Reads, thinks, writes: under a lock, in two transactions, because thinking takes long. */
fun deposit(connection: Connection, account: Long, amount: Long, token: Long) {
    val balance = connection.fenced(account, token) { connection.balance(account) }
    val new = balance + amount
    connection.fenced(account, token) { connection.update("UPDATE account SET balance = ? WHERE id = ?", new, account) }
}

/** What is in an account. */
fun Connection.balance(account: Long): Long = prepareStatement("SELECT balance FROM account WHERE id = ?").use {
    it.setLong(1, account)
    it.executeQuery().run {
        next()
        getLong(1)
    }
}

/** Runs a statement; returns how many rows it found. */
fun Connection.update(statement: String, vararg values: Long): Int = prepareStatement(statement).use {
    values.forEachIndexed { index, value -> it.setLong(index + 1, value) }
    it.executeUpdate()
}
