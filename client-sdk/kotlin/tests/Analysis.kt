package org.tributary.tests

import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.jsonPrimitive
import org.tributary.Participant
import org.tributary.ffi.TributaryException

private const val WIDTH = 2
private val rows = doubleArrayOf(16.0, 0.0, 40.0, 1.0, 94.0, 1.0)

/**
 * A device that answers an analysis with its rows, like `client-sdk/ffi/tests/c/analysis.c`.
 *
 *     Analysis OPTIONS.json
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = readOptions(arguments[0])
    var jobs = 0
    Participant.start(options).use { me ->
        me.jobs().collect { job ->
            check(job.analysis?.get("kind")?.jsonPrimitive?.content == "statistics") { "${job.analysis}" }
            check(job.parameters().isEmpty() && job.tensors.isEmpty())
            expect<TributaryException.Update>("it takes rows, and no model") { job.finish(FloatArray(0), 3) }
            expect<TributaryException.Update>("columns: got 3 where 2") { job.answer(rows, 3) }
            expect<TributaryException.Update>("targets: got 1 where 3") { job.answer(rows, WIDTH, doubleArrayOf(1.0)) }
            expect<TributaryException.Update>("row 0, column 1") { job.answer(doubleArrayOf(1.0, Double.NaN), WIDTH) }
            check(job.answer(rows, WIDTH)) { "the round no longer waited" }
            jobs += 1
        }
    }
    check(jobs == 1) { "$jobs" }
    println("analysis: one round, answered with ${rows.size / WIDTH} rows")
}
