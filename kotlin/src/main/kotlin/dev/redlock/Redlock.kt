// Clients, and the default client.

@file:JvmName("DefaultRedlock")

package dev.redlock

import dev.redlock.internal.Client
import dev.redlock.internal.Loader
import dev.redlock.internal.Outcome
import dev.redlock.internal.checkLock
import dev.redlock.internal.checkPermits
import java.util.concurrent.atomic.AtomicReference
import kotlin.time.Duration
import dev.redlock.internal.Lock as NativeLock

/**
 * A client of one or several nodes. Its constructors do no I/O. It does not keep the JVM alive: at the end of the
 * process all clients release their locks. The first client loads the native library. If the jar has none for this
 * machine, that fails with an [UnsatisfiedLinkError] that says what to do.
 *
 * ```kotlin
 * import dev.redlock.Redlock
 * import dev.redlock.RedlockOptions
 * import kotlin.time.Duration.Companion.seconds
 *
 * suspend fun main() {
 *     val urls = listOf("redis://a", "redis://b", "redis://c") // a quorum of three nodes
 *     Redlock(urls, RedlockOptions(watchdog = 10.seconds)).use { client ->
 *         client.lock("report", wait = 5.seconds).withLock { lease -> println("building under ${lease.token}") }
 *     }
 * }
 * ```
 *
 * In Java:
 *
 * ```java
 * RedlockOptions options = new RedlockOptions().watchdog(Duration.ofSeconds(10));
 * try (Redlock client = new Redlock(List.of("redis://a", "redis://b", "redis://c"), options);
 *         Lease lease = client.lock("report").acquireBlocking()) {
 *     buildReport(lease.getToken());
 * }
 * ```
 */
public class Redlock private constructor(internal val native: Client) : AutoCloseable {
    /**
     * A client of these nodes with the default options.
     *
     * @param urls one for each node: `redis://`, `rediss://` (TLS), `unix://`, `redis+cluster://host,…`,
     * `redis+sentinel://host,…/name` (both also with TLS, as `rediss+…`) or `memory://`
     * @throws InvalidArgument when a URL is wrong
     */
    public constructor(vararg urls: String) : this(urls.asList())

    /**
     * A client of one node.
     *
     * @throws InvalidArgument when the URL or an option is wrong
     */
    public constructor(url: String, options: RedlockOptions) : this(listOf(url), options)

    /**
     * A client of these nodes.
     *
     * @param urls one for each node: `redis://`, `rediss://` (TLS), `unix://`, `redis+cluster://host,…`,
     * `redis+sentinel://host,…/name` (both also with TLS, as `rediss+…`) or `memory://`
     * @throws InvalidArgument when a URL or an option is wrong
     */
    @JvmOverloads
    public constructor(urls: List<String>, options: RedlockOptions = RedlockOptions()) :
        this(loaded { Client(urls.map { it.asUnicode("urls") }, options.settings) })

    private val holds = mapOf("read" to Holds(), "write" to Holds())

    init {
        Calls.heedLogger()
    }

    /** The threads' holds of a half, "read" or "write", of this client's read/write locks. */
    internal fun holds(part: String): Holds = holds.getValue(part)

    /** The nodes' addresses, without credentials, in the order of the URLs. */
    public val nodes: List<String> get() = native.nodes()

    /**
     * A lock of this client. Sends nothing.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @throws InvalidArgument when the name or an option is wrong
     */
    @JvmOverloads
    public fun lock(name: String, options: LockOptions = LockOptions()): Lock =
        made(name.asName(), options) { native.lock(name, options.settings) }

    /**
     * A lock of this client. Sends nothing. Null means the default.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @param ttl a fixed lease from 50 ms, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: without limit
     * @param owner an owner that is the same in all processes, 1 to 256 bytes; default: each acquire is an owner, or
     *   each thread of a [JavaLock]
     * @param maxHold the longest time for which the lock is renewed, from 50 ms; default: without limit
     * @param reentrant whether the owner may acquire the lock again; false: fails with [WouldDeadlock]; default: true
     * @param fair whether waiters get the lock in the order in which they called; needs one server, and the same value
     *   wherever the name is used; default: false
     * @param minHold the least time for which the lock stays taken, from its grant, however early it is released, from
     *   50 ms; not with an `owner`; default: a release frees the lock
     * @throws InvalidArgument when the name or an option is wrong
     */
    public fun lock(
        name: String,
        ttl: Duration? = null,
        wait: Duration? = null,
        owner: String? = null,
        maxHold: Duration? = null,
        reentrant: Boolean? = null,
        fair: Boolean? = null,
        minHold: Duration? = null,
    ): Lock = lock(name, LockOptions(ttl, wait, owner, maxHold, reentrant, fair, minHold))

    /**
     * A read/write lock of this client. Sends nothing.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @param options without an `owner` and `fair`
     * @throws InvalidArgument when the name or an option is wrong
     */
    @JvmOverloads
    public fun readWriteLock(name: String, options: LockOptions = LockOptions()): ReadWriteLock =
        ReadWriteLock(name.asName()) { part ->
            val make = { native { native.part(name, options.settings, part) } }
            // One suffices to check the options, and most programs use only one of the two.
            Lock(name, options, LockHandle(if (part == "read") make() else null, make)) { holds(part) }
        }

    /**
     * A read/write lock of this client. Sends nothing. Null means the default.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @param ttl a fixed lease from 50 ms, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: without limit
     * @param maxHold the longest time for which the lock is renewed, from 50 ms; default: without limit
     * @param minHold the least time for which the lock stays taken by a writer, from its grant, however early it is
     *   released, from 50 ms; default: a release frees the lock
     * @throws InvalidArgument when the name or an option is wrong
     */
    public fun readWriteLock(
        name: String,
        ttl: Duration? = null,
        wait: Duration? = null,
        maxHold: Duration? = null,
        minHold: Duration? = null,
    ): ReadWriteLock = readWriteLock(name, LockOptions(ttl = ttl, wait = wait, maxHold = maxHold, minHold = minHold))

    /**
     * A semaphore of this client. Sends nothing.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @param permits the number of slots, 1 to 65536
     * @param options without an `owner`, `minHold` and `fair`
     * @throws InvalidArgument when the name, the number or an option is wrong
     */
    @JvmOverloads
    public fun semaphore(name: String, permits: Int, options: LockOptions = LockOptions()): Semaphore =
        Semaphore(name.asName(), permits) { n ->
            made(name, options) { native.permits(name, options.settings, n, permits) }
        }

    /**
     * A semaphore of this client. Sends nothing. Null means the default.
     *
     * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
     * @param permits the number of slots, 1 to 65536
     * @param ttl a fixed lease from 50 ms, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the slots; zero is one try; default: without limit
     * @param maxHold the longest time for which a permit is renewed, from 50 ms; default: without limit
     * @throws InvalidArgument when the name, the number or an option is wrong
     */
    public fun semaphore(
        name: String,
        permits: Int,
        ttl: Duration? = null,
        wait: Duration? = null,
        maxHold: Duration? = null,
    ): Semaphore = semaphore(name, permits, LockOptions(ttl = ttl, wait = wait, maxHold = maxHold))

    /** A lock with its native lock, which is made at once because making it checks the options. */
    private fun made(name: String, options: LockOptions, make: () -> NativeLock) =
        Lock(name, options, LockHandle(native(make)) { native(make) })

    /**
     * Sends a request to every node and returns the status of each, after the client's `replyTimeout` at the latest.
     * Does not fail for a node that does not answer.
     *
     * ```kotlin
     * val down = client.ping().filter { !it.up }
     * ```
     *
     * @throws Closed after the client was closed
     */
    public suspend fun ping(): List<NodeStatus> = Calls.call { native.ping() }.nodes()

    /** [ping], blocking. */
    public fun pingBlocking(): List<NodeStatus> = Calls.block { native.ping() }.nodes()

    /**
     * Frees a lock, whoever holds it. Returns whether there was a holder. The holder detects the loss at its next
     * renewal: until then two owners may believe that they hold the lock, and only fencing tokens protect the resource.
     *
     * ```kotlin
     * val wasHeld = client.forceRelease("report")
     * ```
     *
     * @throws Unavailable when too few nodes answer
     * @throws KeyConflict when the key holds something that is not a lock
     * @throws InvalidArgument when the name is wrong
     * @throws Closed after the client was closed
     */
    public suspend fun forceRelease(name: String): Boolean = Calls.call { native.forceRelease(name.asName()) }.flag()

    /** [forceRelease], blocking. */
    public fun forceReleaseBlocking(name: String): Boolean = Calls.block { native.forceRelease(name.asName()) }.flag()

    /**
     * Makes all nodes of a quorum vote at once, even those in quarantine. Call it only when no lock can be held, as in
     * a new deployment.
     *
     * @throws Unavailable when a node does not answer
     * @throws Closed after the client was closed
     */
    public suspend fun initNodes() {
        Calls.call { native.initNodes() }
    }

    /** [initNodes], blocking. */
    public fun initNodesBlocking() {
        Calls.block { native.initNodes() }
    }

    /**
     * Takes over a detached lease. Works once for each text.
     *
     * ```kotlin
     * val order = client.lock("order:42", ttl = 600.seconds).acquire()
     * val text = order.detach()
     * val lease = client.attach(text) // in another process, too
     * lease.release()
     * ```
     *
     * @param text the text that [Lease.detach] returned
     * @throws LockLost when the lease was attached before or has ended
     * @throws Unavailable when too few nodes answer; the text still works
     * @throws InvalidArgument when the text does not come from `detach()`
     * @throws Closed after the client was closed; the text still works
     */
    public suspend fun attach(text: String): Lease =
        Lease(Calls.call { native.attach(text.asUnicode("text")) } as Outcome.Leased)

    /** [attach], blocking. */
    public fun attachBlocking(text: String): Lease =
        Lease(Calls.block { native.attach(text.asUnicode("text")) } as Outcome.Leased)

    /**
     * Marks every lease of this client as lost, releases them, and disconnects. Blocks for one second at most. Detached
     * leases and fixed leases of explicit owners stay held until their ttl ends. Later calls fail with [Closed].
     */
    override fun close() {
        Calls.block { native.shutDown() }
    }

    override fun toString(): String = "Redlock($nodes)"

    internal companion object {
        private val default = AtomicReference<Redlock?>()

        /** The client of the last `configure()`, or else one with the nodes of the environment. */
        val shared: Redlock
            get() = default.updateAndGet { it ?: fromEnvironment(RedlockOptions()) }!!

        fun share(client: Redlock) = default.set(client)

        fun fromEnvironment(options: RedlockOptions) = Redlock(loaded { Client.fromEnv(options.settings) })
    }
}

/**
 * Sets the default client, which the functions `lock`, `readWriteLock` and `semaphore` use. Locks that were used before
 * keep their client.
 *
 * ```kotlin
 * import dev.redlock.configure
 * import dev.redlock.lock
 *
 * suspend fun main() {
 *     configure("redis://10.0.0.4:6379")
 *     lock("report").withLock { lease -> println("building under ${lease.token}") }
 * }
 * ```
 *
 * @param urls one for each node; default: those of the environment variable `REDLOCK_URL`, separated by commas, or else
 *   redis://127.0.0.1:6379
 * @throws InvalidArgument when a URL or an option is wrong
 */
@JvmOverloads
public fun configure(urls: List<String>? = null, options: RedlockOptions = RedlockOptions()): Unit =
    Redlock.share(if (urls == null) Redlock.fromEnvironment(options) else Redlock(urls, options))

/**
 * [configure] with one node.
 *
 * @throws InvalidArgument when the URL or an option is wrong
 */
@JvmOverloads
public fun configure(url: String, options: RedlockOptions = RedlockOptions()): Unit = configure(listOf(url), options)

/**
 * A lock of the default client: the one set by `configure`, or else one for the environment variable `REDLOCK_URL`. The
 * lock gets its client when it is first used.
 *
 * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
 * @throws InvalidArgument when the name or an option is wrong
 */
@JvmOverloads
public fun lock(name: String, options: LockOptions = LockOptions()): Lock {
    name.asName()
    loaded { checkLock(name, options.settings, "") }
    return later(name, options) { it.lock(name, options.settings) }
}

/**
 * A read/write lock of the default client: the one set by `configure`, or else one for the environment variable
 * `REDLOCK_URL`. The lock gets its client when it is first used.
 *
 * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
 * @param options without an `owner` and `fair`
 * @throws InvalidArgument when the name or an option is wrong
 */
@JvmOverloads
public fun readWriteLock(name: String, options: LockOptions = LockOptions()): ReadWriteLock =
    ReadWriteLock(name.asName()) { part ->
        if (part == "read") loaded { checkLock(name, options.settings, part) }
        later(name, options, part) { it.part(name, options.settings, part) }
    }

/**
 * A semaphore of the default client. It gets its client when it is first used.
 *
 * @param name 1 to 1024 bytes in UTF-8, the client's prefix included, without NUL
 * @param permits the number of slots, 1 to 65536
 * @param options without an `owner`, `minHold` and `fair`
 * @throws InvalidArgument when the name, the number or an option is wrong
 */
@JvmOverloads
public fun semaphore(name: String, permits: Int, options: LockOptions = LockOptions()): Semaphore =
    Semaphore(name.asName(), permits) { n ->
        loaded { checkPermits(name, options.settings, n, permits) }
        later(name, options) { it.permits(name, options.settings, n, permits) }
    }

/**
 * A lock whose options were checked and that gets its client when it is first used. `part`: "read" or "write" of a
 * read/write lock.
 */
private fun later(name: String, options: LockOptions, part: String? = null, make: (Client) -> NativeLock): Lock {
    val client by lazy { Redlock.shared }
    val holds = part?.let { { client.holds(it) } }
    return Lock(name, options, LockHandle(null) { native { make(client.native) } }, holds)
}

/**
 * A lock of the default client, with the options of [Redlock.lock].
 *
 * @throws InvalidArgument when the name or an option is wrong
 */
public fun lock(
    name: String,
    ttl: Duration? = null,
    wait: Duration? = null,
    owner: String? = null,
    maxHold: Duration? = null,
    reentrant: Boolean? = null,
    fair: Boolean? = null,
    minHold: Duration? = null,
): Lock = lock(name, LockOptions(ttl, wait, owner, maxHold, reentrant, fair, minHold))

private fun String.asName() = asUnicode("name")

/** Loads the native library and runs `call`. Every function that may be the process's first call uses this. */
private inline fun <T> loaded(call: () -> T): T {
    Loader.load()
    return native(call)
}

private fun Outcome.nodes() = (this as Outcome.Nodes).nodes.map { it.status() }
