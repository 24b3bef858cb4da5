package org.tributary.tests

import kotlinx.coroutines.runBlocking
import org.tributary.Job
import org.tributary.Machine
import org.tributary.Participant
import org.tributary.ParticipantOptions
import org.tributary.PrivacySpent
import org.tributary.ffi.Todo
import java.nio.ByteBuffer
import java.nio.ByteOrder

/** The process is killed as the system kills an app: nothing of it runs any more. */
private fun dieAt(moment: String?, now: String) {
    if (moment != now) return
    ProcessBuilder("kill", "-9", ProcessHandle.current().pid().toString()).start()
    Thread.sleep(Long.MAX_VALUE)
}

private fun train(job: Job, number: Float, moment: String?) {
    val parameters = job.parameters()
    val half = parameters.size / 2
    val saved = job.checkpoint()
    if (saved == null) {
        for (index in 0 until half) parameters[index] += number
        val state = ByteBuffer.allocate(parameters.size * Float.SIZE_BYTES).order(ByteOrder.LITTLE_ENDIAN)
        state.asFloatBuffer().put(parameters)
        job.saveCheckpoint(state.array())
    } else {
        ByteBuffer.wrap(saved).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(parameters)
        System.err.println("kotlin: goes on from its checkpoint")
    }
    dieAt(moment, "middle")
    for (index in half until parameters.size) parameters[index] += number
    job.finish(parameters, examples = 10)
    dieAt(moment, "answered")
}

private fun lent(options: ParticipantOptions) = LentClient(options.server, checkNotNull(options.caPem))

/** What the participant was charged for, as `.ci/sdks/participants.sh` looks for it: the names of the tasks in quotes. */
private fun printSpent(spent: List<PrivacySpent>) {
    check(spent.all { it.releases > 0 && (it.epsilon ?: 0.0) > 0.0 && it.damaged == null }) { "$spent" }
    println(spent.map { "\"${it.name}\"" })
}

private fun drive(options: ParticipantOptions, number: Float, moment: String?) {
    Machine.open(options, onEvent = { dieAt(moment, it.name) }).use { machine ->
        while (true) {
            when (machine.tick(examples = 10)) {
                Todo.Send, Todo.Fetch, Todo.Train, Todo.Journal -> machine.perform { train(it, number, moment) }
                Todo.Busy, is Todo.WaitUntil -> Thread.sleep(20) // Earlier than it says does no harm.
                is Todo.Ended -> break
            }
        }
        printSpent(machine.privacySpent())
    }
}

/**
 * Adds a number to every parameter: the participant in Kotlin of `.ci/sdks.sh`, like `client-sdk/ffi/tests/c/shift.c`.
 *
 *     Shift OPTIONS.json NUMBER [MOMENT]
 *
 * With the property `tributary.client` set to `lent` it sends with [LentClient], and else with the library's own HTTPS; with
 * `tributary.driven` it drives the participant itself.
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = readOptions(arguments[0])
    val number = arguments[1].toFloat()
    val moment = arguments.getOrNull(2)
    if (System.getProperty("tributary.driven") != null) return@runBlocking drive(options, number, moment)
    val client = if (System.getProperty("tributary.client") == "lent") lent(options) else null
    Participant.start(options, httpClient = client, onEvent = { dieAt(moment, it.name) }).use { me ->
        me.jobs().collect { job ->
            job.use { train(it, number, moment) }
            System.err.println("kotlin: handed in")
        }
        printSpent(me.privacySpent())
    }
}
