// The options of clients and locks: their names and types. The core has the defaults and checks the values.

package dev.redlock

import dev.redlock.internal.Setting
import kotlin.time.Duration
import kotlin.time.DurationUnit
import kotlin.time.toKotlinDuration
import java.time.Duration as JavaDuration

/** The format of a lock on the server. */
public enum class Wire {
    /** As Redisson's `RLock` writes it: excludes processes that use Redisson. */
    REDISSON,

    /** As `SET name value NX PX ttl` writes it: excludes clients such as redis-py, node-redlock and redsync. */
    TOKEN,
}

/** Where fencing tokens are counted. */
public enum class TokenKey {
    /** In a counter of this library, which is kept for `tokenTtl` after its last use. */
    REDLOCK,

    /** In the counter of Redisson's `RFencedLock`, which is kept for ever. */
    REDISSON,
}

/**
 * The options of a client. Kotlin passes named arguments to the constructor. Java starts from the defaults and chains
 * calls: each returns a copy with one option changed.
 *
 * @constructor the defaults
 */
public class RedlockOptions private constructor(internal val settings: Map<String, Setting>) {
    public constructor() : this(emptyMap())

    /**
     * The given options; null means the default. No time exceeds 10 years.
     *
     * @param quorum how many nodes must agree, from a majority to all; default: a majority
     * @param watchdog the ttl of a lease that is renewed until release, at least 300 ms, on a quorum at most `maxTtl`;
     *   default: 30 s, or on a quorum `maxTtl` if that is shorter
     * @param prefix put before every lock's name; default: empty
     * @param wire the format of a lock on the server; default: Redisson's
     * @param drift how much faster a node's clock may run, as a share from 0.01 to below 0.5; default: 0.1
     * @param tokenKey where fencing tokens are counted; default: [TokenKey.REDLOCK], a counter of this library
     * @param tokenTtl how long a token counter is kept after its last use, and so how far a node's clock may be set
     *   back while tokens still increase: at least 60 s, on a quorum at least the quarantine; default: one hour, or the
     *   quarantine if that is longer
     * @param maxTtl the longest ttl on a quorum, at least 50 ms, on a quorum at least 300 ms; a restarted node does not
     *   vote for this time plus `drift`; default: 60 s
     * @param minReplicas how many replicas of a node, 0 to 1000, must acknowledge a lock before it counts there;
     *   default: 0
     * @param patience how long an outage may last before a waiting acquire fails with [Unavailable], at least 1 ms;
     *   default: 5 s
     * @param connectTimeout the longest time to connect to a node, at least 1 ms; default: 2 s
     * @param replyTimeout the longest time to wait for a reply, at least 1 ms; default: 2 s
     * @param strict whether a quorum's nodes need `initNodes()` before their first vote; default: false
     * @param quarantine whether a restarted node of a quorum does not vote for `maxTtl` plus `drift`; default: true;
     *   only tests turn it off
     * @param identify whether the client names its connections and reads the names of others, to tell who holds a lock;
     *   default: true
     * @param app the name of the program that other processes see, 1 to 64 bytes; default: the environment variable
     *   `REDLOCK_APP`, else `OTEL_SERVICE_NAME`, else the name of the main class or jar
     * @param username the user, for URLs that name none; default: none
     * @param password the password, for URLs that have none; default: none
     * @param ca the certificates to trust, for `rediss://`: PEM text, or the path of a PEM file; default: those of the
     *   system. A file is read by the first call that needs a connection, not by the client's constructor; that call
     *   fails with [InvalidArgument] if it cannot read the file
     * @param cert this client's certificate, PEM text or the path of a PEM file that is read when `ca` is; needs `key`;
     *   default: none
     * @param key this client's private key, PEM text or the path of a PEM file that is read when `ca` is; needs `cert`;
     *   default: none
     * @throws InvalidArgument when a text has a surrogate without a partner; the client checks everything else
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
        identify: Boolean? = null,
        app: String? = null,
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
            "identify" to identify,
            "app" to app,
            "username" to username,
            "password" to password,
            "ca" to ca,
            "cert" to cert,
            "key" to key,
        ),
    )

    private fun with(name: String, value: Any) = RedlockOptions(settings + settings(name to value))

    /** A copy with this quorum: how many nodes must agree, from a majority, the default, to all. */
    public fun quorum(quorum: Int): RedlockOptions = with("quorum", quorum)

    /**
     * A copy with this ttl for leases that are renewed until release: at least 300 ms, on a quorum at most `maxTtl`;
     * default: 30 s, or on a quorum `maxTtl` if that is shorter.
     */
    public fun watchdog(watchdog: JavaDuration): RedlockOptions = with("watchdog", watchdog)

    /** A copy with this prefix, which is put before every lock's name; default: empty. */
    public fun prefix(prefix: String): RedlockOptions = with("prefix", prefix)

    /** A copy with this format of a lock on the server; default: Redisson's. */
    public fun wire(wire: Wire): RedlockOptions = with("wire", wire)

    /** A copy with this drift: how much faster a node's clock may run, a share from 0.01 to below 0.5; default: 0.1. */
    public fun drift(drift: Double): RedlockOptions = with("drift", drift)

    /** A copy with this place for the counters of fencing tokens; default: [TokenKey.REDLOCK]. */
    public fun tokenKey(tokenKey: TokenKey): RedlockOptions = with("tokenKey", tokenKey)

    /**
     * A copy with this time for which a token counter is kept after its last use: at least 60 s, on a quorum at least
     * the quarantine; default: one hour, or the quarantine if that is longer.
     */
    public fun tokenTtl(tokenTtl: JavaDuration): RedlockOptions = with("tokenTtl", tokenTtl)

    /** A copy with this longest ttl on a quorum, at least 50 ms; default: 60 s. */
    public fun maxTtl(maxTtl: JavaDuration): RedlockOptions = with("maxTtl", maxTtl)

    /**
     * A copy with this number of replicas of a node, 0 to 1000, that must acknowledge a lock before it counts there;
     * default: 0.
     */
    public fun minReplicas(minReplicas: Int): RedlockOptions = with("minReplicas", minReplicas)

    /**
     * A copy with this time for which an outage may last before a waiting acquire fails with [Unavailable], at least
     * 1 ms; default: 5 s.
     */
    public fun patience(patience: JavaDuration): RedlockOptions = with("patience", patience)

    /** A copy with this longest time to connect to a node, at least 1 ms; default: 2 s. */
    public fun connectTimeout(connectTimeout: JavaDuration): RedlockOptions = with("connectTimeout", connectTimeout)

    /** A copy with this longest time to wait for a reply, at least 1 ms; default: 2 s. */
    public fun replyTimeout(replyTimeout: JavaDuration): RedlockOptions = with("replyTimeout", replyTimeout)

    /** A copy that says whether a quorum's nodes need `initNodes()` before their first vote; default: false. */
    public fun strict(strict: Boolean): RedlockOptions = with("strict", strict)

    /** A copy that says whether a restarted node of a quorum does not vote for `maxTtl` plus `drift`; default: true. */
    public fun quarantine(quarantine: Boolean): RedlockOptions = with("quarantine", quarantine)

    /** A copy that says whether the client names its connections and reads the names of others; default: true. */
    public fun identify(identify: Boolean): RedlockOptions = with("identify", identify)

    /** A copy with this name of the program, which other processes see; default: `REDLOCK_APP`, or none. */
    public fun app(app: String): RedlockOptions = with("app", app)

    /** A copy with this user and password, for URLs that have none; default: none. */
    public fun credentials(username: String?, password: String): RedlockOptions =
        RedlockOptions(settings + settings("username" to username, "password" to password))

    /**
     * A copy with these certificates to trust: PEM text, or the path of a PEM file, which the first call that connects
     * reads; default: those of the system.
     */
    public fun ca(ca: String): RedlockOptions = with("ca", ca)

    /** A copy with the client's certificate and private key: PEM texts, or the paths of PEM files; default: none. */
    public fun certificate(cert: String, key: String): RedlockOptions = with("cert", cert).with("key", key)
}

/**
 * The options of a lock. Kotlin passes named arguments to `lock(name, …)` or to the constructor. Java starts from the
 * defaults and chains calls: each returns a copy with one option changed.
 *
 * ```java
 * Lock report = client.lock("report", new LockOptions().wait(Duration.ofSeconds(5)).fair(true));
 * ```
 *
 * @constructor the defaults
 */
public class LockOptions private constructor(internal val settings: Map<String, Setting>) {
    public constructor() : this(emptyMap())

    /**
     * The given options; null means the default. No time exceeds 10 years.
     *
     * @param ttl a fixed lease from 50 ms and on a quorum to `maxTtl`, never renewed; default: the client's `watchdog`,
     *   renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: without limit
     * @param owner an owner that is the same in all processes, 1 to 256 bytes; default: each acquire is an owner, or
     *   each thread of a [JavaLock]
     * @param maxHold the longest time for which the lock is renewed, at least 50 ms, not with a fixed `ttl`; default:
     *   without limit
     * @param minHold the least time for which the lock stays taken, from its grant, however early it is released; at
     *   least 50 ms, on a quorum at most `maxTtl`, at most `maxHold` or a fixed `ttl`, not with an `owner`; default: a
     *   release frees the lock
     * @param reentrant whether the owner may acquire the lock again; false: fails with [WouldDeadlock]; default: true
     * @param fair whether waiters get the lock in the order in which they called; needs one server, and the same value
     *   wherever the name is used; default: false
     */
    public constructor(
        ttl: Duration? = null,
        wait: Duration? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        reentrant: Boolean? = null,
        fair: Boolean? = null,
        minHold: Duration? = null,
    ) : this(
        settings(
            "ttl" to ttl,
            "wait" to wait.takeUnless { it == Duration.INFINITE },
            "owner" to owner,
            "maxHold" to maxHold,
            "minHold" to minHold,
            "reentrant" to reentrant,
            "fair" to fair,
        ),
    )

    private fun with(name: String, value: Any) = LockOptions(settings + settings(name to value))

    /**
     * A copy with a fixed lease from 50 ms and on a quorum to `maxTtl`, which is not renewed; default: the client's
     * `watchdog`, renewed until release.
     */
    public fun ttl(ttl: JavaDuration): LockOptions = with("ttl", ttl)

    /** A copy with a renewed lease whose ttl is 4 times the average hold, from 2 s to the client's `watchdog`. */
    public fun adaptiveTtl(): LockOptions = with("ttl", "adaptive")

    /** A copy with this time to wait for the lock; zero is one try; default: without limit. */
    public fun wait(wait: JavaDuration): LockOptions = with("wait", wait)

    /**
     * A copy with this owner, 1 to 256 bytes, which is the same in all processes; default: each acquire is an owner, or
     * each thread of a [JavaLock].
     */
    public fun owner(owner: String): LockOptions = with("owner", owner)

    /**
     * A copy with this longest time for which the lock is renewed, at least 50 ms, not with a fixed `ttl`; default:
     * without limit.
     */
    public fun maxHold(maxHold: JavaDuration): LockOptions = with("maxHold", maxHold)

    /**
     * A copy with this least time for which the lock stays taken, from its grant, however early it is released: at
     * least 50 ms, not with an `owner`; default: none.
     */
    public fun minHold(minHold: JavaDuration): LockOptions = with("minHold", minHold)

    /**
     * A copy that says whether the owner may acquire the lock again; false: fails with [WouldDeadlock]; default: true.
     */
    public fun reentrant(reentrant: Boolean): LockOptions = with("reentrant", reentrant)

    /**
     * A copy that says whether waiters get the lock in the order in which they called; needs one server, and the same
     * value wherever the name is used; default: false.
     */
    public fun fair(fair: Boolean): LockOptions = with("fair", fair)

    /** The time to wait, in milliseconds; infinity without a `wait`. */
    internal val waitMillis: Double get() = (settings["wait"] as? Setting.Number)?.value ?: Double.POSITIVE_INFINITY
}

/** This time in milliseconds, as the core expects times. */
internal val Duration.millis: Double get() = toDouble(DurationUnit.MILLISECONDS)

/**
 * Checks that this text can be written in UTF-8, which the core expects, and returns it.
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
