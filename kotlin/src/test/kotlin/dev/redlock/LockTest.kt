package dev.redlock

import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.completeWith
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.yield
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import java.util.concurrent.atomic.AtomicInteger
import kotlin.coroutines.Continuation
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.startCoroutine
import kotlin.time.Duration
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlin.time.measureTime

/** Runs `block`, fails unless it throws an [E], and returns that exception. */
internal inline fun <reified E : Throwable> failsWith(block: () -> Any?): E {
    val failure = runCatching(block).exceptionOrNull()
    assertTrue(failure is E) { "fails with ${E::class.simpleName}, not $failure" }
    return failure as E
}

class LockTest : OnServer() {
    @Test
    fun `the properties of a lease, held and released`(): Unit = runBlocking {
        val lock = client.lock("told")
        val lease = lock.acquire()
        assertEquals("told", lease.name)
        assertTrue(lease.held && lock.owned() && lock.locked())
        assertTrue(lease.remaining() in 20.seconds..27.seconds) { "${lease.remaining()}" }
        assertTrue(lease.remainingMillis() in 20_000..27_000)
        lease.check()
        val info = checkNotNull(lock.inspect())
        assertEquals(lease.owner to lease.token, info.owner to info.token)
        assertTrue(info.ttl!! in 25.seconds..30.seconds)
        assertEquals(ProcessHandle.current().pid(), info.pid)
        assertFalse(info.host.isNullOrEmpty() || info.app.isNullOrEmpty(), "$info")
        assertTrue(java.time.Duration.between(info.since!!, java.time.Instant.now()).abs().toMinutes() < 1)
        assertEquals(ReleaseOutcome.RELEASED, lease.release())
        assertEquals(ReleaseOutcome.RELEASED, lease.release(), "the same again")
        assertFalse(lease.held || lock.owned() || lock.locked())
        assertEquals(Duration.ZERO, lease.remaining())
        assertNull(lock.inspect())
        failsWith<NotHeld> { lease.check() }
        failsWith<NotHeld> { lock.release() }
        lease.lost.join()
        assertTrue(lease.lost.isCancelled)
        assertNull(lease.lostReason)
    }

    @Test
    fun `a block may assign a val that is used after it`(): Unit = runBlocking {
        val token: Long
        client.lock("assigned").withLock { token = it.token }
        val reader: Long
        client.readWriteLock("assigned-too").read { reader = it.token }
        val slot: Int
        client.semaphore("assigned-slot", 3).withPermit { slot = it.slots.single() }
        assertTrue(token > 0 && reader > 0 && slot == 0)
        val thread: Long?
        val lock = client.lock("assigned").asJavaLock()
        lock.withLock { thread = lock.token() }
        assertTrue(thread!! > token)
    }

    @Test
    fun `an acquire waits for its own wait, or for that of the lock`(): Unit = runBlocking {
        val lock = client.lock("waited", wait = 100.milliseconds)
        val lease = client.lock("waited").acquire()
        assertNull(lock.tryAcquire())
        assertTrue(measureTime { failsWith<LockTimeout> { lock.acquire() } } >= 100.milliseconds)
        assertTrue(measureTime { failsWith<LockTimeout> { lock.acquire(wait = 300.milliseconds) } } >= 300.milliseconds)
        failsWith<LockTimeout> { lock.withLock { error("entered") } }
        val waiting = async { lock.acquire(wait = Duration.INFINITE) }
        delay(150.milliseconds) // longer than the lock's own wait
        lease.release()
        assertEquals(ReleaseOutcome.RELEASED, waiting.await().release())
    }

    @Test
    fun `a thousand coroutines never overlap`(): Unit = runBlocking(Dispatchers.Default) {
        val lock = client.lock("crowd")
        var inside = 0
        var entered = 0
        List(1000) {
            launch {
                lock.withLock {
                    assertEquals(0, inside++)
                    yield()
                    entered++
                    inside--
                }
            }
        }.forEach { it.join() }
        assertEquals(1000, entered)
    }

    @Test
    fun `options reach the wire`(): Unit = runBlocking {
        val options = RedlockOptions(prefix = "app:", wire = Wire.TOKEN, tokenKey = TokenKey.REDISSON)
        Redlock(server.url, options).use { other ->
            val lease = other.lock("x").acquire()
            assertEquals("string", server.command("TYPE", "app:x"))
            assertEquals(1L, server.command("EXISTS", "redisson_lock_token:{app:x}"))
            lease.release()
        }
        server.command("DEL", "redisson_lock_token:{app:x}")
    }

    @Test
    fun `closing a client releases its locks, and fails its leases and waiters`(): Unit = runBlocking {
        val closing = Redlock(server.url)
        val lock = closing.lock("closing")
        val lease = lock.acquire()
        val waiting = async { runCatching { lock.acquire() } }
        eventually("it waits") { Calls.waiting.size == 3 || lock.owned() }
        withContext(Dispatchers.IO) { closing.close() }
        closing.close()
        assertEquals(LostReason.CLOSED, lease.lost.await())
        assertTrue(waiting.await().exceptionOrNull() is Closed)
        assertFalse(server.holds("closing"))
        failsWith<Closed> { lock.acquire() }
        failsWith<Closed> { closing.ping() }
        assertEquals(ReleaseOutcome.LOST, lease.release())
    }

    @Test
    fun `ping returns the status of each node, and an outage is Unavailable`(): Unit = runBlocking {
        val gone = "redis://127.0.0.1:${freePort()}"
        Redlock(listOf(server.url, gone), RedlockOptions(patience = 200.milliseconds)).use { client ->
            val (up, down) = client.ping()
            assertTrue(up.up && up.version != null && up.run != null && up.cause == null)
            assertEquals(client.nodes, listOf(up.node, down.node))
            assertTrue(!down.up && down.version == null && down.cause != null)
            val failure = failsWith<Unavailable> { client.lock("outage").acquire() }
            assertEquals(setOf(down.node), failure.causes.keys)
        }
    }

    @Test
    fun `initNodes prepares new nodes`(): Unit = runBlocking {
        Redlock(List(3) { "memory://new-$it" }).use { client ->
            client.initNodes()
            client.lock("prepared").withLock { }
        }
    }

    @Test
    fun `a lock gets the default client when it is first used`(): Unit = runBlocking {
        configure("redis://127.0.0.1:${freePort()}")
        val lock = lock("default", wait = Duration.ZERO)
        failsWith<InvalidArgument> { lock("default", ttl = 1.milliseconds) }
        configure(server.url, RedlockOptions(prefix = "p:"))
        lock.withLock { assertTrue(server.holds("p:default")) }
        configure(server.url)
        lock.withLock { assertTrue(server.holds("p:default"), "one that was used keeps its client") }
        lock("default", LockOptions(ttl = 5.seconds)).withLock { assertTrue(server.holds("default")) }
    }

    @Test
    fun `an error names the caller, also after a suspension`(): Unit = runBlocking(Dispatchers.Default) {
        val lease = client.lock("stack").acquire()
        val failure = failsWith<LockTimeout> { deeper() }
        val frames = failure.stackTrace.map { it.methodName to it.fileName }
        assertTrue(frames.any { it == "deeper" to "LockTest.kt" }) { failure.stackTraceToString() }
        lease.release()
    }

    private suspend fun deeper() {
        client.lock("stack").acquire(wait = 10.milliseconds).release()
        error("acquired")
    }

    @Test
    fun `many locks at once, from many coroutines`(): Unit = runBlocking(Dispatchers.Default) {
        val running = AtomicInteger()
        val most = AtomicInteger()
        List(500) { number ->
            async {
                client.lock("many-$number").withLock {
                    most.accumulateAndGet(running.incrementAndGet(), ::maxOf)
                    delay(100.milliseconds)
                    running.decrementAndGet()
                }
            }
        }.awaitAll()
        assertTrue(most.get() > 100) { "$most at once" }
    }

    @Test
    fun `a blocking call fails in an unconfined coroutine on the fetching thread`(): Unit = runBlocking {
        val lock = client.lock("unconfined")
        val lease = lock.acquire()
        // Resumed by the thread that fetches the results of all calls.
        val failure = async(Dispatchers.Unconfined) {
            val next = lock.acquire()
            val javaLock = lock.asJavaLock()
            val calls = listOf({ next.close() }, { javaLock.lock() }, { javaLock.tryLock() }, { javaLock.unlock() })
            calls.map { runCatching(it).exceptionOrNull() }.also { next.release() }
        }
        lease.release()
        failure.await().forEach { error ->
            assertTrue(error is IllegalStateException && "blocks the thread" in error.message!!) { "$error" }
        }
    }

    @Test
    fun `a coroutine without a dispatcher, such as suspend fun main, may block`(): Unit = runBlocking {
        val lock = client.lock("main")
        val lease = lock.acquire()
        val closed = CompletableDeferred<Unit>()
        val main = suspend { lock.acquire().close() }
        main.startCoroutine(Continuation(EmptyCoroutineContext) { closed.completeWith(it) })
        lease.release()
        closed.await()
    }

    @Test
    fun `blocking variants do the same`() {
        val lock = client.lock("twins")
        lock.acquireBlocking().use { lease ->
            assertTrue(lock.lockedBlocking())
            assertEquals(lease.token, lock.inspectBlocking()?.token)
            assertNull(client.lock("twins").tryAcquireBlocking())
            assertThrows(WouldDeadlock::class.java) { client.lock("twins").acquireBlocking() }
        }
        assertFalse(server.holds("twins"))
    }
}
