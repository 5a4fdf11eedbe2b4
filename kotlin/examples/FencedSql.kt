// Fencing in SQL: each transaction registers the token, starting with the first one of a tenure. Copy this code; see
// docs/fencing.md.
//
// The token is a column of the row that the lock protects. This works with PostgreSQL, MySQL and SQLite over JDBC,
// which counts the rows that an UPDATE finds. MySQL itself counts only changed rows: do not set `useAffectedRows`.

package dev.redlock.examples

import java.sql.Connection

/** The row has the token of a newer holder: stop. */
class OutdatedToken(message: String) : Exception(message)

/** Registers `token` and runs `access` in one transaction. Throws [OutdatedToken] if the row has a larger token. */
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

/** Reads and writes under a lock, in two transactions: no transaction is open during the computation between them. */
fun deposit(connection: Connection, account: Long, amount: Long, token: Long) {
    val balance = connection.fenced(account, token) { connection.balance(account) }
    val new = balance + amount
    connection.fenced(account, token) { connection.update("UPDATE account SET balance = ? WHERE id = ?", new, account) }
}

/** The balance of an account. */
fun Connection.balance(account: Long): Long = prepareStatement("SELECT balance FROM account WHERE id = ?").use {
    it.setLong(1, account)
    it.executeQuery().run {
        next()
        getLong(1)
    }
}

/** Runs a statement and returns how many rows it found. */
fun Connection.update(statement: String, vararg values: Long): Int = prepareStatement(statement).use {
    values.forEachIndexed { index, value -> it.setLong(index + 1, value) }
    it.executeUpdate()
}
