// A separate process for tests of how processes end. It reports its state on standard output.

package dev.redlock

import kotlinx.coroutines.DelicateCoroutinesApi
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.GlobalScope
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.net.URLClassLoader
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.seconds

@OptIn(DelicateCoroutinesApi::class)
fun main(arguments: Array<String>) {
    val (what, url, name) = arguments
    if (what == "serves") beginRequest()
    val client = Redlock(url, RedlockOptions(watchdog = 1.seconds))
    val lock = client.lock(name)
    when (what) {
        "idles" -> runBlocking { client.ping() }
        "holds" -> runBlocking { lock.acquire() }
        "holds as a thread" -> lock.asJavaLock().lock()
        "waits" -> GlobalScope.launch { lock.acquire() }
        "waits as a thread" -> thread(isDaemon = true) { lock.asJavaLock().lock() }
        "stays" -> runBlocking { lock.stay() }
        "loses" -> failsWith<LockLost> { runBlocking { lock.stay() } }
        "serves" -> runBlocking { lock.checkFetcher() }
        "exits" -> Runtime.getRuntime().addShutdownHook(thread(start = false) { callAtExit(url) })
        "throws" -> runBlocking { lock.acquire().also { error("on purpose") } }
    }
    if (what == "loses") println("lost")
    if (what.startsWith("waits")) eventually("it waits") { Calls.waiting.size > 1 || what.endsWith("thread") }
    println("ready")
}

private suspend fun Lock.stay(): Unit = withLock { println("ready").also { awaitCancellation() } }

private val request = InheritableThreadLocal<String>()

private fun beginRequest() {
    request.set("the first")
    Thread.currentThread().contextClassLoader = URLClassLoader(emptyArray())
}

/** Checks that the thread that fetches results has nothing of the request that began. */
private suspend fun Lock.checkFetcher(): Unit = coroutineScope {
    val lease = acquire()
    val checked = async(Dispatchers.Unconfined) {
        val next = acquire()
        val thread = Thread.currentThread()
        check(thread.name == "redlock") { thread.name }
        check(request.get() == null) { "it has the value of a thread local" }
        check(thread.contextClassLoader === Redlock::class.java.classLoader) { "it has a class loader" }
        next.release()
    }
    lease.release()
    checked.await()
}

/** Makes a call once the thread that fetches results waits in Java, and checks that it waits there again. */
private fun callAtExit(url: String) {
    val fetcher = Thread.getAllStackTraces().keys.single { it.name == "redlock" }
    val isIdle = { fetcher.state == Thread.State.WAITING }
    eventually("it waits in Java", isIdle)
    runBlocking { Redlock(url).lock("late").acquire().release() }
    eventually("it waits in Java again", isIdle)
    println("fetched")
}
