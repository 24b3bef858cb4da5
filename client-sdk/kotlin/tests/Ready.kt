package org.tributary.tests

import kotlin.math.pow
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.tributary.Column
import org.tributary.Examples
import org.tributary.Model
import org.tributary.Participant
import org.tributary.ParticipantOptions
import org.tributary.ffi.TributaryException

private const val ROWS = 64
private const val WIDTH = 4
private val labels = IntArray(ROWS) { it % 2 }
private val features = FloatArray(ROWS * WIDTH) { index ->
    val (row, column) = index / WIDTH to index % WIDTH
    ((row * 7 + column * 3) % 10) / 10f + if (column % 2 == row % 2) 1 else 0
}

private fun judge(model: Model): Unit = model.use {
    val scores = model.scores(features.copyOf(2 * WIDTH))
    check(model.version != null && scores.size == 4 && model.parameters().size == 10) { "another model than the task's" }
    expect<TributaryException.Argument>("4") { model.scores(FloatArray(3)) }
    check(scores[0] > scores[1] && scores[3] > scores[2]) { "wrong of rows that it was trained on: ${scores.toList()}" }
    println("version ${model.version}, scores ${scores.toList()}")
}

/** One round of another model: `mlp` takes 4 numbers, and `cnn` images of 4 by 4. */
private suspend fun another(options: ParticipantOptions, kind: String) {
    val width = if (kind == "cnn") 16 else WIDTH
    val rows = FloatArray(ROWS * width) { (it * 7 % 10) / 10f + if (it % 2 == it / width % 2) 1 else 0 }
    Participant.start(options).use { me ->
        me.jobs().collect { job ->
            expect<TributaryException.Update>("") { job.train(rows, labels.copyOf(ROWS / 2), 2 * width) }
            check(job.train(rows, labels, width)) { "the round no longer waited" }
        }
        val model = checkNotNull(me.model(kind))
        val scores = model.scores(rows.copyOf(2 * width))
        check(model.version == 1 && kind in model.architecture.toString()) { "version ${model.version} of ${model.architecture}" }
        check(scores.size == 4 && scores.all(Float::isFinite)) { "scores ${scores.toList()}" }
    }
    println("$kind in Kotlin: trained and used")
}

/** Two rounds of a graph with three inputs: 4 numbers, an integer below 5, and a truth value. */
private suspend fun graph(options: ParticipantOptions) {
    val numbers = Column("numbers", FloatArray(ROWS * WIDTH) { it % 7 / 7f })
    fun kind(integers: LongArray) = Column("kind", integers)
    val known = Column("known", BooleanArray(ROWS) { it % 4 != 1 })
    val columns = listOf(kind(LongArray(ROWS) { it % 5L }), numbers, known)
    val targets = FloatArray(ROWS) { it * 4 % 7 / 7f - it % 5 }
    fun examples(columns: List<Column>) = Examples(columns, targets, ROWS)
    Participant.start(options).use { me ->
        suspend fun squaredError(): Double = checkNotNull(me.model("graph")).use { model ->
            expect<TributaryException.Argument>("`kind`, which is missing") { model.predict(listOf(numbers), ROWS) }
            val predicted = model.predict(columns, ROWS)
            check(predicted.indices.all { it % 4 != 1 || predicted[it] == 0f }) { "a row that is not known: ${predicted.toList()}" }
            predicted.zip(targets.toList()) { one, other -> (one - other).toDouble().pow(2) }.average()
        }
        val errors = mutableListOf<Double>()
        me.jobs().collect { job ->
            expect<TributaryException.Update>("`numbers` (floats [batch, 4])") { job.train(examples(columns.take(1))) }
            expect<TributaryException.Update>("`known`, which is missing") { job.train(examples(columns.take(2))) }
            expect<TributaryException.Update>("1 truth values an example as its input `known`") {
                job.train(examples(columns.take(2) + Column("known", LongArray(ROWS))))
            }
            expect<TributaryException.Update>("no input `x`") { job.train(examples(columns + Column("x", FloatArray(ROWS)))) }
            expect<TributaryException.Update>("not 5 (example 3)") {
                job.train(examples(listOf(kind(LongArray(ROWS) { if (it == 3) 5 else 0 }), numbers, known)))
            }
            expect<TributaryException.Update>("numbers as targets") { job.train(Examples(columns, IntArray(ROWS), ROWS)) }
            if (job.round == 2) errors += squaredError()
            check(job.train(examples(columns), examples(columns))) { "the round no longer waited" }
        }
        errors += squaredError()
        check(errors.size == 2 && errors[1] < errors[0]) { "squared errors $errors" }
    }
}

/**
 * An app without a training function, like `client-sdk/ffi/tests/c/ready.c`: the library trains the task's ready model on its rows, and the
 * app uses the model. With `offline` it only does that, while the coordinator is gone; with the name of another model it trains and uses that.
 *
 *     Ready OPTIONS.json [offline | mlp | cnn | graph]
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = readOptions(arguments[0])
    val mode = arguments.getOrNull(1)
    if (mode == "graph") return@runBlocking graph(options)
    if (mode != null && mode != "offline") return@runBlocking another(options, mode)
    if (mode == null) {
        // By default it refuses rounds in the clear, and remembers why.
        Participant.start(options.copy(secureAggregation = null)).use { strict ->
            while (strict.refusals().isEmpty()) delay(10)
            val refused = strict.refusals().first()
            check("without secure aggregation" in refused.reason && refused.round == 1 && refused.times > 0) { "$refused" }
        }
        var rounds = 0
        Participant.start(options).use { me ->
            me.jobs().collect { job ->
                expect<TributaryException.Update>("at least one") { job.train(features, IntArray(0), WIDTH) }
                expect<TributaryException.Update>("takes 4") { job.train(features, labels.copyOf(ROWS / 2), 2 * WIDTH) }
                expect<TributaryException.Update>("label") { job.train(features, IntArray(ROWS) { 7 }, WIDTH) }
                check(job.train(features, labels, WIDTH)) { "the round no longer waited" }
                expect<TributaryException.Answered>("answered before") { job.train(features, labels, WIDTH) }
                rounds += 1
            }
        }
        check(rounds == 2) { "$rounds rounds" }
    }
    judge(checkNotNull(Model.load(options, "ready")))
}
