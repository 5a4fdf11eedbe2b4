// The options of clients and locks: their names and types. The defaults, and the rules, are the core's.

package dev.redlock

import dev.redlock.internal.Setting
import kotlin.time.Duration
import kotlin.time.DurationUnit
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

/** How a lock is written on the server. */
public enum class Wire {
    /** As Redisson's `RLock` writes it: excludes processes that use Redisson. */
    REDISSON,

    /** As `SET name value NX PX ttl` writes it: excludes redis-py, node-redlock, redsync and their like. */
    TOKEN,
}

/** Where fencing tokens are counted. */
public enum class TokenKey {
    /** Apart, for `tokenTtl` after their last use. */
    REDLOCK,

    /** Together with Redisson's `RFencedLock`, for ever. */
    REDISSON,
}

/**
 * How a client uses its nodes. Kotlin names what it needs in the constructor; Java begins with none and adds.
 *
 * @constructor the defaults, for Java to add to
 */
public class RedlockOptions private constructor(internal val settings: Map<String, Setting>) {
    public constructor() : this(emptyMap())

    /**
     * Those that are given; null means the default.
     *
     * @param quorum how many nodes must agree, from a majority to all; default: a majority
     * @param watchdog the lease that is renewed until release, 300 ms or more; default: 30 s
     * @param prefix put before every lock's name; default: nothing
     * @param wire how a lock is written; default: as Redisson does
     * @param drift how much faster a node's clock may run, as a share from 0.01 to below 0.5; default: 0.1
     * @param tokenKey where fencing tokens are counted; default: apart
     * @param tokenTtl how long a token's counter is kept after its last use, and so how far a node's clock may be set back
     * and tokens still increase: 60 s or more, on a quorum no less than a restarted node does not vote; default: an hour
     * @param maxTtl the longest ttl on a quorum, and so how long a restarted node does not vote; default: 60 s
     * @param minReplicas how many replicas of a node must have acknowledged a lock before it counts there; default: 0
     * @param patience how long an outage may last before a waiting acquire fails with [Unavailable]; default: 5 s
     * @param connectTimeout how long a connection may take; default: 2 s
     * @param replyTimeout how long a reply may take; default: 2 s
     * @param strict whether a quorum's nodes need `initNodes()` before their first vote; default: false
     * @param quarantine whether a restarted node of a quorum stays away for `maxTtl`; default: true, and only tests
     * turn it off
     * @param username the user, for URLs that name none
     * @param password the password, for URLs that have none
     * @param ca a PEM file of certificates to trust, for `rediss://`; default: the system's. The client's constructor
     * does not read it: the first call that needs a connection does, and fails with [InvalidArgument] if it cannot
     * @param cert a PEM file with this client's certificate, read when `ca` is
     * @param key a PEM file with this client's private key, read when `ca` is
     * @throws InvalidArgument when a text has a surrogate without a partner; all else is checked by the client
     */
    public constructor(
        quorum: Int? = null,
        watchdog: Duration? = null,
        prefix: String? = null,
        wire: Wire? = null,
        drift: Double? = null,
        tokenKey: TokenKey? = null,
        tokenTtl: Duration? = null,
        maxTtl: Duration? = null,
        minReplicas: Int? = null,
        patience: Duration? = null,
        connectTimeout: Duration? = null,
        replyTimeout: Duration? = null,
        strict: Boolean? = null,
        quarantine: Boolean? = null,
        username: String? = null,
        password: String? = null,
        ca: String? = null,
        cert: String? = null,
        key: String? = null,
    ) : this(
        settings(
            "quorum" to quorum,
            "watchdog" to watchdog,
            "prefix" to prefix,
            "wire" to wire,
            "drift" to drift,
            "tokenKey" to tokenKey,
            "tokenTtl" to tokenTtl,
            "maxTtl" to maxTtl,
            "minReplicas" to minReplicas,
            "patience" to patience,
            "connectTimeout" to connectTimeout,
            "replyTimeout" to replyTimeout,
            "strict" to strict,
            "quarantine" to quarantine,
            "username" to username,
            "password" to password,
            "ca" to ca,
            "cert" to cert,
            "key" to key,
        ),
    )

    private fun with(name: String, value: Any) = RedlockOptions(settings + settings(name to value))

    /** These, and how many nodes must agree. */
    public fun quorum(quorum: Int): RedlockOptions = with("quorum", quorum)

    /** These, and the lease that is renewed until release. */
    public fun watchdog(watchdog: JavaDuration): RedlockOptions = with("watchdog", watchdog)

    /** These, and what is put before every lock's name. */
    public fun prefix(prefix: String): RedlockOptions = with("prefix", prefix)

    /** These, and how a lock is written. */
    public fun wire(wire: Wire): RedlockOptions = with("wire", wire)

    /** These, and how much faster a node's clock may run, as a share. */
    public fun drift(drift: Double): RedlockOptions = with("drift", drift)

    /** These, and where fencing tokens are counted. */
    public fun tokenKey(tokenKey: TokenKey): RedlockOptions = with("tokenKey", tokenKey)

    /** These, and how long a token's counter is kept after its last use. */
    public fun tokenTtl(tokenTtl: JavaDuration): RedlockOptions = with("tokenTtl", tokenTtl)

    /** These, and the longest ttl on a quorum. */
    public fun maxTtl(maxTtl: JavaDuration): RedlockOptions = with("maxTtl", maxTtl)

    /** These, and how many replicas of a node must have acknowledged a lock before it counts there. */
    public fun minReplicas(minReplicas: Int): RedlockOptions = with("minReplicas", minReplicas)

    /** These, and how long an outage may last before a waiting acquire fails. */
    public fun patience(patience: JavaDuration): RedlockOptions = with("patience", patience)

    /** These, and how long a connection may take. */
    public fun connectTimeout(connectTimeout: JavaDuration): RedlockOptions = with("connectTimeout", connectTimeout)

    /** These, and how long a reply may take. */
    public fun replyTimeout(replyTimeout: JavaDuration): RedlockOptions = with("replyTimeout", replyTimeout)

    /** These, and whether a quorum's nodes need `initNodes()` before their first vote. */
    public fun strict(strict: Boolean): RedlockOptions = with("strict", strict)

    /** These, and whether a restarted node of a quorum stays away for `maxTtl`. */
    public fun quarantine(quarantine: Boolean): RedlockOptions = with("quarantine", quarantine)

    /** These, and the user and the password for URLs that have none. */
    public fun credentials(username: String?, password: String): RedlockOptions =
        RedlockOptions(settings + settings("username" to username, "password" to password))

    /** These, and a PEM file of certificates to trust, which the first call that needs a connection reads. */
    public fun ca(ca: String): RedlockOptions = with("ca", ca)

    /** These, and PEM files with this client's certificate and private key. */
    public fun certificate(cert: String, key: String): RedlockOptions = with("cert", cert).with("key", key)
}

/**
 * How a lock is taken. Kotlin names what it needs in `lock(name, …)` or in the constructor; Java begins with none and
 * adds.
 *
 * @constructor the defaults, for Java to add to
 */
public class LockOptions private constructor(internal val settings: Map<String, Setting>) {
    public constructor() : this(emptyMap())

    /**
     * Those that are given; null means the default.
     *
     * @param ttl the lease, from 50 ms: fixed, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: for ever
     * @param owner an owner across processes, 1 to 256 bytes; default: each acquire, or each thread of a [JavaLock]
     * @param maxHold how long the lock is renewed at most; default: for ever
     * @param reentrant whether its owner may take it again; otherwise that fails with [WouldDeadlock]; default: true
     * @param fair whether those that want it get it in the order in which they asked; needs one server, and the same
     *   wherever the name is used; default: false
     */
    public constructor(
        ttl: Duration? = null,
        wait: Duration? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        reentrant: Boolean? = null,
        fair: Boolean? = null,
    ) : this(
        settings(
            "ttl" to ttl,
            "wait" to wait.takeUnless { it == Duration.INFINITE },
            "owner" to owner,
            "maxHold" to maxHold,
            "reentrant" to reentrant,
            "fair" to fair,
        ),
    )

    private fun with(name: String, value: Any) = LockOptions(settings + settings(name to value))

    /** These, and a fixed lease, which is not renewed. */
    public fun ttl(ttl: JavaDuration): LockOptions = with("ttl", ttl)

    /** These, and a renewed lease of a length learned from how long the lock is held. */
    public fun adaptiveTtl(): LockOptions = with("ttl", "adaptive")

    /** These, and how long to wait for the lock. */
    public fun wait(wait: JavaDuration): LockOptions = with("wait", wait)

    /** These, and an owner across processes. */
    public fun owner(owner: String): LockOptions = with("owner", owner)

    /** These, and how long the lock is renewed at most. */
    public fun maxHold(maxHold: JavaDuration): LockOptions = with("maxHold", maxHold)

    /** These, and whether its owner may take it again. */
    public fun reentrant(reentrant: Boolean): LockOptions = with("reentrant", reentrant)

    /** These, and whether those that want it get it in the order in which they asked. */
    public fun fair(fair: Boolean): LockOptions = with("fair", fair)

    /** How long to wait, in milliseconds. */
    internal val waitMillis: Double get() = (settings["wait"] as? Setting.Number)?.value ?: Double.POSITIVE_INFINITY
}

/** A time as the core takes it. */
internal val Duration.millis: Double get() = toDouble(DurationUnit.MILLISECONDS)

/**
 * This text, if it has a form in UTF-8, in which the core gets it.
 *
 * @throws InvalidArgument if a surrogate in it has no partner
 */
internal fun String.asUnicode(argument: String): String {
    var index = 0
    while (index < length) {
        if (!this[index].isSurrogate()) {
            index++
        } else if (this[index].isHighSurrogate() && getOrNull(index + 1)?.isLowSurrogate() == true) {
            index += 2
        } else {
            throw InvalidArgument("$argument: must be Unicode, but the surrogate at index $index has no partner")
        }
    }
    return this
}

private fun settings(vararg options: Pair<String, Any?>): Map<String, Setting> = buildMap {
    for ((name, value) in options) {
        when (value) {
            null -> continue
            is Duration -> put(name, Setting.Number(value.millis))
            is JavaDuration -> put(name, Setting.Number(value.toKotlinDuration().millis))
            is Number -> put(name, Setting.Number(value.toDouble()))
            is Boolean -> put(name, Setting.Flag(value))
            is Enum<*> -> put(name, Setting.Text(value.name.lowercase()))
            else -> put(name, Setting.Text(value.toString().asUnicode(name)))
        }
    }
}
