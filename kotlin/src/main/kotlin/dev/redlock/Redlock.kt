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
 * A client of one or several nodes. Its constructors do no I/O. It keeps no JVM alive: at the end of the process all
 * clients release what they hold. The first one loads the native library: an [UnsatisfiedLinkError] says what to do where
 * there is none for this machine.
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

    init {
        Calls.heedLogger()
    }

    /** The nodes' addresses, without credentials. */
    public val nodes: List<String> get() = native.nodes()

    /**
     * A lock of this client; sends nothing.
     *
     * @param name 1 to 1024 bytes in UTF-8 together with the client's prefix, none of them zero
     * @throws InvalidArgument when the name or an option is wrong
     */
    @JvmOverloads
    public fun lock(name: String, options: LockOptions = LockOptions()): Lock =
        made(name.asName(), options) { native.lock(name, options.settings) }

    /**
     * A lock of this client; sends nothing. Null means the default.
     *
     * @param name 1 to 1024 bytes in UTF-8 together with the client's prefix, none of them zero
     * @param ttl the lease, from 50 ms: fixed, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: for ever
     * @param owner an owner across processes, 1 to 256 bytes; default: each acquire, or each thread of a [JavaLock]
     * @param maxHold how long the lock is renewed at most; default: for ever
     * @param reentrant whether its owner may take it again; otherwise that fails with [WouldDeadlock]; default: true
     * @param fair whether those that want it get it in the order in which they asked; needs one server, and the same
     *   wherever the name is used; default: false
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
    ): Lock = lock(name, LockOptions(ttl, wait, owner, maxHold, reentrant, fair))

    /**
     * A read/write lock of this client; sends nothing.
     *
     * @throws InvalidArgument when the name or an option is wrong
     */
    @JvmOverloads
    public fun readWriteLock(name: String, options: LockOptions = LockOptions()): ReadWriteLock =
        ReadWriteLock(name.asName()) { part ->
            val make = { native { native.part(name, options.settings, part) } }
            // Most use one of the two, and each refuses the same options.
            Lock(name, options, LockHandle(if (part == "read") make() else null, make))
        }

    /**
     * A read/write lock of this client; sends nothing. Null means the default.
     *
     * @param ttl the lease, from 50 ms: fixed, never renewed; default: the client's `watchdog`, renewed until release
     * @param wait how long to wait for the lock; zero is one try; default: for ever
     * @param maxHold how long the lock is renewed at most; default: for ever
     * @throws InvalidArgument when the name or an option is wrong
     */
    public fun readWriteLock(
        name: String,
        ttl: Duration? = null,
        wait: Duration? = null,
        maxHold: Duration? = null,
    ): ReadWriteLock = readWriteLock(name, LockOptions(ttl = ttl, wait = wait, maxHold = maxHold))

    /**
     * A semaphore of this client with [permits] slots, 1 to 65536; sends nothing.
     *
     * @throws InvalidArgument when the name, the number or an option is wrong
     */
    @JvmOverloads
    public fun semaphore(name: String, permits: Int, options: LockOptions = LockOptions()): Semaphore =
        Semaphore(name.asName(), permits) { n ->
            made(name, options) { native.permits(name, options.settings, n, permits) }
        }

    /** A lock, and at once its native lock, which refuses bad options. */
    private fun made(name: String, options: LockOptions, make: () -> NativeLock) =
        Lock(name, options, LockHandle(native(make)) { native(make) })

    /** Asks every node for a sign of life. */
    public suspend fun ping(): List<NodeStatus> = Calls.call { native.ping() }.nodes()

    /** [ping], blocking. */
    public fun pingBlocking(): List<NodeStatus> = Calls.block { native.ping() }.nodes()

    /**
     * Frees a lock whoever holds it; says whether anybody did. Its holder learns of it at its next renewal, so for a
     * while two may believe that they hold it: only fencing tokens protect from that.
     *
     * @throws Unavailable when too few nodes answer
     */
    public suspend fun forceRelease(name: String): Boolean = Calls.call { native.forceRelease(name.asName()) }.flag()

    /** [forceRelease], blocking. */
    public fun forceReleaseBlocking(name: String): Boolean = Calls.block { native.forceRelease(name.asName()) }.flag()

    /**
     * Vouches for all nodes of a quorum: they vote at once, even those in quarantine. Only right when no lock can be
     * held, as in a new deployment.
     *
     * @throws Unavailable when a node does not answer
     */
    public suspend fun initNodes() {
        Calls.call { native.initNodes() }
    }

    /** [initNodes], blocking. */
    public fun initNodesBlocking() {
        Calls.block { native.initNodes() }
    }

    /**
     * Takes over the lease that `detach()` returned [text] for. Works once.
     *
     * @throws LockLost when it was attached before, or has ended
     * @throws InvalidArgument when the text does not come from `detach()`
     */
    public suspend fun attach(text: String): Lease =
        Lease(Calls.call { native.attach(text.asUnicode("text")) } as Outcome.Leased)

    /** [attach], blocking. */
    public fun attachBlocking(text: String): Lease =
        Lease(Calls.block { native.attach(text.asUnicode("text")) } as Outcome.Leased)

    /**
     * Marks every lease of this client lost, releases them, and disconnects; blocks for a second at most. Detached
     * leases and fixed leases of explicit owners live on. Later calls fail with [Closed].
     */
    override fun close() {
        Calls.block { native.shutDown() }
    }

    override fun toString(): String = "Redlock($nodes)"

    internal companion object {
        private val default = AtomicReference<Redlock?>()

        /** The client of `configure()`, or else that of the environment. */
        val shared: Redlock
            get() = default.updateAndGet { it ?: fromEnvironment(RedlockOptions()) }!!

        fun share(client: Redlock) = default.set(client)

        fun fromEnvironment(options: RedlockOptions) = Redlock(loaded { Client.fromEnv(options.settings) })
    }
}

/**
 * Sets the client that the function `lock` uses. Locks that were used before keep theirs.
 *
 * @param urls its nodes; null: those of the environment variable `REDLOCK_URL`, separated by commas, or else
 * redis://127.0.0.1:6379
 * @throws InvalidArgument when a URL or an option is wrong
 */
@JvmOverloads
public fun configure(urls: List<String>? = null, options: RedlockOptions = RedlockOptions()): Unit =
    Redlock.share(if (urls == null) Redlock.fromEnvironment(options) else Redlock(urls, options))

/** [configure] with one node. */
@JvmOverloads
public fun configure(url: String, options: RedlockOptions = RedlockOptions()): Unit = configure(listOf(url), options)

/**
 * A lock of the default client: that of `configure`, or else that of the environment variable `REDLOCK_URL`. It is
 * looked for when the lock is used for the first time.
 *
 * @throws InvalidArgument when the name or an option is wrong
 */
@JvmOverloads
public fun lock(name: String, options: LockOptions = LockOptions()): Lock {
    name.asName()
    loaded { checkLock(name, options.settings, "") }
    return later(name, options) { it.lock(name, options.settings) }
}

/**
 * A read/write lock of the default client: that of `configure`, or else that of the environment variable `REDLOCK_URL`. It
 * is looked for when the lock is used for the first time.
 *
 * @throws InvalidArgument when the name or an option is wrong
 */
@JvmOverloads
public fun readWriteLock(name: String, options: LockOptions = LockOptions()): ReadWriteLock =
    ReadWriteLock(name.asName()) { part ->
        if (part == "read") loaded { checkLock(name, options.settings, part) }
        later(name, options) { it.part(name, options.settings, part) }
    }

/**
 * A semaphore of the default client with [permits] slots, 1 to 65536. The client is looked for when it is used for the first
 * time.
 *
 * @throws InvalidArgument when the name, the number or an option is wrong
 */
@JvmOverloads
public fun semaphore(name: String, permits: Int, options: LockOptions = LockOptions()): Semaphore =
    Semaphore(name.asName(), permits) { n ->
        loaded { checkPermits(name, options.settings, n, permits) }
        later(name, options) { it.permits(name, options.settings, n, permits) }
    }

/** A lock whose options were checked, and whose client is known when the lock is used. */
private fun later(name: String, options: LockOptions, make: (Client) -> NativeLock): Lock {
    val client by lazy { Redlock.shared.native }
    return Lock(name, options, LockHandle(null) { native { make(client) } })
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
): Lock = lock(name, LockOptions(ttl, wait, owner, maxHold, reentrant, fair))

private fun String.asName() = asUnicode("name")

/** The native library's first call, which nothing else in this package comes before. */
private inline fun <T> loaded(call: () -> T): T {
    Loader.load()
    return native(call)
}

private fun Outcome.nodes() = (this as Outcome.Nodes).nodes.map { it.status() }
