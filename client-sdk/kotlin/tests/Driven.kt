package org.tributary.tests

import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import org.tributary.Job
import org.tributary.Machine
import org.tributary.Model
import org.tributary.ParticipantOptions
import org.tributary.Plan
import org.tributary.ffi.DeviceState
import org.tributary.ffi.Thermal
import org.tributary.ffi.Todo
import org.tributary.ffi.TributaryException
import kotlin.time.Duration.Companion.milliseconds

/**
 * An app in Kotlin that drives a participant itself, like `client-sdk/ffi/tests/c/machine.c`, and then uses the model without a
 * participant and without a coordinator.
 *
 *     Driven OPTIONS.json [sliced]
 *
 * With `sliced` the library trains the task's ready model, for longer than a slice.
 */
fun main(arguments: Array<String>) {
    val options = readOptions(arguments[0])
    if (arguments.size > 1) return sliced(options)
    val good = DeviceState(charging = true, unmetered = true, idle = true, batteryPercent = null, thermal = Thermal.NOMINAL)
    val begin = System.nanoTime()
    fun elapsed() = ((System.nanoTime() - begin) / 1_000_000).milliseconds
    var rested = 0
    var paused = 0
    val rounds = mutableListOf<Int>()
    Machine.open(options).use { machine ->
        val train = { job: Job ->
            expect<TributaryException.InCallback>("another thread") { machine.perform {} }
            check(job.plan.isPlainSgd)
            for (more in listOf("accumulate", "schedule", "warmup", "budget", "momentum")) {
                check(!Plan(JsonObject(job.plan.all + (more to JsonPrimitive(2)))).isPlainSgd) { more }
            }
            if (rounds.isEmpty() && job.checkpoint() == null) {
                job.saveCheckpoint(byteArrayOf(7))
                while (!job.shouldPause) Thread.sleep(1)
                paused += 1
            } else {
                check(rounds.isNotEmpty() || job.checkpoint()?.single() == 7.toByte())
                // While this thread performs the training, another one is told that it is busy, and answers the job.
                inThread {
                    check(machine.tick(good, examples = 10, elapsed = elapsed()) == Todo.Busy)
                    check(!machine.perform {})
                    check(job.finish(FloatArray(8) { 1f + rounds.size }, examples = 10))
                }
                rounds += job.round
            }
        }
        while (true) {
            val device = if (rested < 2) good.copy(unmetered = null) else good
            when (machine.tick(device, examples = 10, elapsed = elapsed())) {
                Todo.Send, Todo.Fetch, Todo.Train -> check(rested == 2 && machine.perform(train))
                Todo.Journal -> check(machine.perform(train))
                is Todo.WaitUntil -> if (rested < 2) {
                    check(machine.heldUp()?.condition == "unmetered")
                    rested += 1
                } else {
                    Thread.sleep(20)
                }
                Todo.Busy -> error("no other thread performs anything")
                is Todo.Ended -> break
            }
        }
        check(rounds == listOf(1, 2) && paused == 1 && machine.id()?.length == 36)
        check(machine.model("driven")?.version == 2 && machine.models() == listOf("driven"))
        check(machine.refusals().isEmpty() && machine.privacySpent().isEmpty() && machine.privacyLifetime().limit == 10.0)
        check(machine.dataUse().sent > 500UL) { "sent: ${machine.dataUse()}" }
    }
    val closed = Machine.open(options).apply { close() }
    expect<TributaryException.Closed>("closed") { closed.tick() }
    expect<TributaryException.Closed>("closed") { closed.models() }
    // Nobody can be asked at this address, and nobody is.
    val offline = options.copy(server = "https://localhost:1")
    runBlocking {
        val model = checkNotNull(Model.load(offline, "driven"))
        check(model.version == 2 && !model.isPersonalized && model.sha256?.length == 64 && model.metrics.isEmpty())
        check(model.tensors.map { it.name to it.shape } == listOf("w" to listOf(2UL, 3UL), "b" to listOf(2UL)))
        check(model.parameters().all { it in 1.999f..2.001f })
        expect<TributaryException.Argument>("none of the SDK's own") { model.scores(FloatArray(3)) }
        check(Model.load(offline, "another") == null)
        model.close()
        expect<TributaryException.Closed>("closed") { model.parameters() }
    }
    println("driven in Kotlin: two rounds by hand, and the model without a participant")
}

/** A ready model: a pause of `train` is no answer and no failure, however it leaves the app's function, which is called again and goes on. */
private fun sliced(options: ParticipantOptions) {
    val rows = 2000
    val features = FloatArray(4 * rows) { (it * 7 % 10) / 10f + if (it % 2 == it / 4 % 2) 1f else 0f }
    val labels = IntArray(rows) { it % 2 }
    var calls = 0
    Machine.open(options).use { machine ->
        while (true) {
            when (machine.tick(examples = rows.toLong())) {
                Todo.Send, Todo.Fetch, Todo.Train, Todo.Journal -> check(
                    machine.perform { job ->
                        check((job.checkpoint() == null) == (calls == 0)) { "it began anew in call $calls" }
                        calls += 1
                        job.train(features, labels, 4)
                    },
                )
                is Todo.WaitUntil -> Thread.sleep(20)
                Todo.Busy -> error("no other thread performs anything")
                is Todo.Ended -> break
            }
        }
        check(calls > 1) { "it was trained in $calls call, and never paused" }
        check(machine.models() == listOf("sliced") && machine.model("sliced")?.version == 1)
    }
    println("driven in Kotlin: a ready model was trained in $calls slices")
}
