// The requests that this project's client sends for an acquire and a release on one server, without the client. This
// is the floor.

package dev.redlock.bench

import com.fasterxml.jackson.databind.ObjectMapper
import io.lettuce.core.RedisClient
import io.lettuce.core.ScriptOutputType
import kotlinx.coroutines.future.await
import java.util.UUID
import java.util.concurrent.atomic.AtomicLong

/** Over Lettuce: blocking in `alone`, and asynchronous in `together`. */
class Bare(urls: List<String>) : Library {
    private val redis = RedisClient.create(urls.singleOrNull() ?: throw Unsupported("one server only"))
    private val connection = redis.connect()
    private val acquire = connection.sync().scriptLoad(script("acquire"))
    private val release = connection.sync().scriptLoad(script("release"))
    private val client = UUID.randomUUID()
    private val tenures = AtomicLong()

    private inner class Held(val name: String) {
        val field = "$client:${tenures.incrementAndGet()}"
        val keys get() = arrayOf(name, "redlock_token:{$name}")
        val taking get() = arrayOf(field, "", "30000", "3600000", "0")
        val releasing get() = arrayOf(field, "redisson_lock__channel:{$name}")
    }

    override val alone: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): Any = Held(name).also {
            granted(connection.sync().evalsha(acquire, ScriptOutputType.VALUE, it.keys, *it.taking))
        }

        override suspend fun release(lease: Any) {
            val held = lease as Held
            released(connection.sync().evalsha(release, ScriptOutputType.INTEGER, arrayOf(held.name), *held.releasing))
        }
    }

    override val together: Locks = object : Locks {
        override suspend fun acquire(name: String, owner: String?): Any = Held(name).also {
            val reply = connection.async().evalsha<String>(acquire, ScriptOutputType.VALUE, it.keys, *it.taking)
            granted(reply.await())
        }

        override suspend fun release(lease: Any) {
            val held = lease as Held
            val keys = arrayOf(held.name)
            val reply = connection.async().evalsha<Long>(release, ScriptOutputType.INTEGER, keys, *held.releasing)
            released(reply.await())
        }
    }

    private fun granted(vote: String) = check(vote.startsWith("1 ")) { "not granted: $vote" }

    private fun released(reply: Long) = check(reply == 1L) { "not released" }

    override val reentrant: Boolean get() = false
    override val waits: Boolean get() = false

    override fun close() {
        connection.close()
        redis.shutdown()
    }
}

/** One of the scripts that our client sends, as the harness passes them. */
private fun script(name: String): String = ObjectMapper().readTree(System.getenv("BENCH_SCRIPTS")).path(name).asText()
