// A queue of jobs, many workers, and three licences: at most three jobs run at once, each with a licence of its own.
//
//     scripts/kotlin-run dev.redlock.examples.JobQueueKt [redis-url]
//
// The licences are the slots of a semaphore. A worker acquires a permit before it takes a job, so a worker that waits
// has no job. The permit's slot is the number of the licence: no other worker has it meanwhile.
//
// A worker that dies frees its licence when its lease ends; the others go on with theirs. A worker that hangs for
// longer than its lease may wake up while another one has its licence. So the licence server compares the permit's
// token with the largest one that it has seen for this licence, and refuses an older one.
//
// Each worker has a client of its own, as if it ran on a machine of its own.

package dev.redlock.examples

import dev.redlock.Redlock
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import java.util.concurrent.ConcurrentLinkedQueue
import kotlin.time.Duration.Companion.milliseconds

private const val LICENCES = 3
private const val WORKERS = 6
private const val JOBS = 12

/** The resource. It counts the licences in use, and refuses tokens that are too old. */
private class LicenceServer {
    private val tokens = LongArray(LICENCES)
    private val inUse = mutableSetOf<Int>()
    var most = 0
        private set

    /** Starts to use a licence. */
    @Synchronized
    fun checkOut(licence: Int, token: Long) {
        check(token >= tokens[licence]) { "licence $licence was given to somebody else meanwhile" }
        check(inUse.add(licence)) { "licence $licence is used twice" }
        tokens[licence] = token
        most = maxOf(most, inUse.size)
    }

    /** Ends the use of a licence. */
    @Synchronized
    fun checkIn(licence: Int) {
        inUse -= licence
    }
}

/** Runs jobs until the queue is empty. */
private suspend fun work(client: Redlock, worker: Int, jobs: ConcurrentLinkedQueue<Int>, server: LicenceServer) {
    val licences = client.semaphore("renderer:licences", permits = LICENCES)
    do {
        val job = licences.withPermit { permit ->
            jobs.poll()?.also { job ->
                val licence = permit.slots[0]
                server.checkOut(licence, permit.tokens[0])
                delay(50.milliseconds) // the work, which is cancelled if the lease is lost
                server.checkIn(licence)
                println("worker $worker ran job $job with licence $licence")
            }
        }
    } while (job != null)
}

fun main(arguments: Array<String>): Unit = runBlocking(Dispatchers.Default) {
    val url = arguments.firstOrNull() ?: "redis://127.0.0.1:6379"
    val jobs = ConcurrentLinkedQueue((1..JOBS).toList())
    val server = LicenceServer()
    coroutineScope {
        for (worker in 1..WORKERS) launch { Redlock(url).use { work(it, worker, jobs, server) } }
    }
    println("$JOBS jobs, ${server.most} at once at most")
}
