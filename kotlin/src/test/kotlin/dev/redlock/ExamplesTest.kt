package dev.redlock

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Runs the examples as a reader would, on a server of their own, and checks what they print and leave behind. */
class ExamplesTest : OnServer() {
    /** Runs an example to its end; `see` gets each line that it prints. */
    private fun run(
        example: String,
        environment: Map<String, String> = mapOf(),
        see: (String) -> Unit = {},
    ): List<String> {
        val process = java("dev.redlock.examples.${example}Kt", server.url)
            .apply { environment() += environment }
            .redirectError(ProcessBuilder.Redirect.INHERIT).start()
        val lines = process.inputReader().lineSequence().onEach(see).toList()
        assertEquals(0, process.waitFor()) { lines.joinToString("\n") }
        return lines
    }

    @Test
    fun `flash sale - sold once, to whoever had the reservation when the money came`() {
        // 300 s, so that no customer pays too late on a busy machine. Bob's reservation is ended when the bank does not
        // answer.
        val lines = run("FlashSale", mapOf("TIME_TO_PAY" to "300")) { line ->
            if ("no answer" in line) server.command("PEXPIRE", "flash-sale:console", "1")
        }
        assertEquals(
            listOf(
                "web: ann has 300 s to pay",
                "web: sorry bob, somebody else is paying right now",
                "payments: ann's card was declined: back on sale",
                "web: bob has 300 s to pay",
                "bank: no answer about bob's card",
                "web: carl has 300 s to pay",
                "bank: bob's card was accepted after all",
                "payments: bob paid too late, and gets the money back",
                "payments: carl paid: sold",
                "web: sorry dora, it is sold to carl",
                "sold to carl, once",
            ),
            lines.map(String::trim),
        )
        assertEquals(1L, server.command("EXISTS", "redlock_token:{flash-sale:console}"), "taken on this server")
    }

    @Test
    fun `scheduler - each tick once, also the one whose worker died and the one whose worker hung`() {
        val lines = run("Scheduler")
        val finished = Regex("worker \\d has done tick (\\d)")
        val done = lines.mapNotNull { finished.matchEntire(it)?.groupValues?.get(1)?.toInt() }
        assertEquals((1..6).toList(), done)
        val summary = lines.takeLast(6).associate { line ->
            val match = checkNotNull(Regex("tick (\\d): attempts (\\d+), reports (\\d)").matchEntire(line)) { line }
            val (tick, attempts, reports) = match.destructured
            tick.toInt() to (attempts.toInt() to reports.toInt())
        }
        assertEquals(done, summary.keys.sorted())
        assertTrue(summary.values.all { (_, reports) -> reports == 1 }, "run once or more, and once in effect")
        assertTrue(summary.getValue(2).first > 1, "its first worker died")
        assertTrue(summary.getValue(4).first > 1, "its first worker hung")
        val dead = lines.single { it.endsWith(" dies") }.split(" ")[1]
        val hung = lines.single { it.endsWith(" hangs") }.split(" ")[1]
        assertTrue("worker $hung comes too late for tick 4: its write is refused" in lines)
        assertTrue(lines.dropWhile { it != "worker $dead dies" }.drop(1).none { it.startsWith("worker $dead ") })
        assertEquals(1L, server.command("EXISTS", "redlock_token:{scheduler:report}"), "taken on this server")
    }

    @Test
    fun `job queue - all jobs run, and no licence is used twice at the same time`() {
        val lines = run("JobQueue")
        val ran = lines.mapNotNull(Regex("worker \\d ran job (\\d+) with licence (\\d)")::matchEntire)
        assertEquals((1..12).toList(), ran.map { it.groupValues[1].toInt() }.sorted())
        assertEquals(setOf("0", "1", "2"), ran.map { it.groupValues[2] }.toSet())
        assertEquals("12 jobs, 3 at once at most", lines.last())
        assertEquals(3L, server.command("HLEN", "redlock_slot_tokens:{renderer:licences}"), "held on this server")
    }

    @Test
    fun `shared cache - each version is rebuilt by one reader, and no reader sees half of it`() {
        assertEquals(listOf("rebuilt: 1, 2, 3", "24 reads by 8 readers, all of them whole"), run("SharedCache"))
        assertEquals(1L, server.command("EXISTS", "redlock_token:{prices:cache}"), "taken on this server")
    }
}
