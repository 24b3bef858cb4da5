package org.tributary.tests

import kotlinx.coroutines.runBlocking
import org.tributary.Job
import org.tributary.Participant
import org.tributary.Rows
import org.tributary.ffi.Purpose
import org.tributary.ffi.TributaryException

private const val ROWS = 64
private const val WIDTH = 4
private val labels = IntArray(ROWS) { it % 2 }
private val features = FloatArray(ROWS * WIDTH) { index ->
    val (row, column) = index / WIDTH to index % WIDTH
    ((row * 7 + column * 3) % 10) / 10f + if (column % 2 == row % 2) 1 else 0
}
private const val TRAINING = ROWS * 3 / 4
private val heldOut = Rows(features.copyOfRange(TRAINING * WIDTH, ROWS * WIDTH), labels.copyOfRange(TRAINING, ROWS))

private fun train(job: Job, heldOut: Rows? = null): Boolean =
    job.train(features.copyOf(TRAINING * WIDTH), labels.copyOf(TRAINING), WIDTH, heldOut)

/**
 * A device with a model of its own beside the shared one, like `client-sdk/ffi/tests/c/personal.c`: each round of ditto is two jobs. The
 * library trains the shared model, and the device's own one in the second round; in the first the app moves its own one itself.
 *
 *     Personal OPTIONS.json
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = readOptions(arguments[0])
    var own = FloatArray(0)
    val jobs = mutableListOf<Pair<Int, Purpose>>()
    Participant.start(options).use { me ->
        me.jobs().collect { job ->
            jobs += job.round to job.purpose
            check(job.frozen.isEmpty() && job.correction() == null && job.base() == null)
            val parameters = job.parameters()
            val anchor = job.anchor()
            when (job.purpose) {
                Purpose.SHARED -> {
                    check(anchor == null && job.plan.proximalMu == 0.0)
                    expect<TributaryException.Update>("at least one") { train(job, Rows(FloatArray(0), IntArray(0))) }
                    check(train(job, heldOut)) { "the round no longer waited" }
                }
                Purpose.OWN -> {
                    check(anchor != null && job.plan.proximalMu == 0.5)
                    if (job.round == 1) {
                        check(parameters.contentEquals(anchor))
                        own = FloatArray(parameters.size) { parameters[it] + 1 }
                        check(job.finish(own, ROWS.toLong(), mapOf("personal_loss" to 0.5)))
                    } else {
                        check(parameters.contentEquals(own) && !parameters.contentEquals(anchor))
                        check(train(job))
                    }
                }
            }
        }
        check(jobs == (1..2).flatMap { listOf(it to Purpose.SHARED, it to Purpose.OWN) }) { "$jobs" }
        checkNotNull(me.model("personal")).use { model ->
            check(model.isPersonalized && model.round == 2 && !model.parameters().contentEquals(own))
        }
    }
    println("personal: two rounds of two jobs each, and the own model of round 2")
}
