package org.tributary

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.double
import kotlinx.serialization.json.doubleOrNull
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.tributary.ffi.Metric
import org.tributary.ffi.Purpose
import org.tributary.ffi.Tensor
import org.tributary.ffi.TributaryException

/**
 * One model to train, or one [analysis] to give rows for. Takes one answer ([finish], [train], [answer], [fail] or [refuse]), from any
 * thread. One that comes too late is dropped, which is no error: go on with the next job. After [close] calls throw
 * `TributaryException.Closed`.
 */
public class Job internal constructor(private val native: org.tributary.ffi.Job) : AutoCloseable {
    private val description: JsonObject = Json.parseToJsonElement(native.description()).jsonObject

    /** The name of the task. */
    public val task: String = description.getValue("task").jsonPrimitive.content

    /** The round, from 1. */
    public val round: Int = description.getValue("round").jsonPrimitive.int

    /** What it is for; the jobs of one round may differ in it. */
    public val purpose: Purpose = native.purpose()

    /** How to train. */
    public val plan: Plan = Plan(description.getValue("plan").jsonObject)

    /** Names of the tensors that must stay as they are; only for an app whose options say `trainsWithin`. */
    public val frozen: List<String> = native.frozen()

    /** The task's description of its model, if it has one. */
    public val architecture: JsonElement? = description["architecture"]

    /**
     * What the task says of its analysis, if the job is one: `kind`, `max_rows`, `columns`, and what else it asks of rows; null if it trains
     * a model. Only for an app whose options say `answersAnalyses`.
     */
    public val analysis: JsonObject? = native.analysis()?.let { Json.parseToJsonElement(it).jsonObject }

    /** For shuffling and the like: an unsigned number of 64 bits. */
    public val seed: Long = description.getValue("seed").jsonPrimitive.content.toULong().toLong()

    /** Names, shapes and places of the tensors in the flat vector. */
    public val tensors: List<Tensor> = native.tensors()

    /** Whether the round no longer waits: training may stop. Cheap: look between batches. */
    public val isOverdue: Boolean get() = native.unlessClosed { isOverdue() }

    /** A copy of the parameters, flat and row-major, to be trained in place and given to [finish]. */
    public fun parameters(): FloatArray = floats(native.unlessClosed { parameters() })

    /**
     * What [Plan.proximalMu] pulls towards, in the form of [parameters]; null if that is the model that the job begins with. Only for an
     * app whose options say `trainsWithin`.
     */
    public fun anchor(): FloatArray? = native.unlessClosed { anchor() }?.let(::floats)

    /**
     * What must be added to the gradient of every step, in the form of [parameters], if anything. Only for an app whose options say
     * `trainsWithin`.
     */
    public fun correction(): FloatArray? = native.unlessClosed { correction() }?.let(::floats)

    /** The frozen model, if the [parameters] are its adapters. Only for an app whose options say `trainsAdapters`. */
    public fun base(): AdapterBase? = native.unlessClosed { base() }?.let(::AdapterBase)

    /** What the training of this job saved last, before it was paused or its process was killed; null if it begins. */
    public fun checkpoint(): ByteArray? = native.unlessClosed { checkpoint() }

    /**
     * Keeps the state of the training, so that it goes on from there after a pause, and after its process was killed. It replaces the last
     * one, and goes with the round. The journal seals it, once in [ParticipantOptions.checkpointEvery].
     *
     * Returns whether it was kept: if not, the round no longer waits, or the job was taken back, and training may stop. Throws
     * `TributaryException.Update` if it is larger than four times [ParticipantOptions.maxModelBytes].
     */
    public fun saveCheckpoint(state: ByteArray): Boolean = inTime { saveCheckpoint(state) }

    /** Whether the last checkpoint is old enough for a new one. Cheap: look between batches. */
    public val isCheckpointDue: Boolean get() = native.unlessClosed { isCheckpointDue() }

    /**
     * Whether the training should rest: save a checkpoint then, within ten seconds. The job is taken back, and comes again when it goes on, if
     * its round still waits; the round of a job that has never saved one is given up. Cheap: look between batches.
     */
    public val shouldPause: Boolean get() = native.unlessClosed { shouldPause() }

    /**
     * Hands in the trained parameters. What leaves the device is clipped, weighted, noised and masked as the task prescribes.
     *
     * [metrics] that are not of the training itself (`train_…`) count as those of the received model: measure the model that the job begins
     * with. A task that weighs updates by the loss takes `loss` from them. With [Purpose.OWN] they count for nothing, but for those of the
     * device's own model (`personal_…`).
     *
     * Returns whether they were handed in: if not, the round no longer waited, or the job was taken back. Throws
     * `TributaryException.Update` if they do not fit: nothing was sent, and the job still takes an answer.
     */
    public fun finish(parameters: FloatArray, examples: Long, metrics: Map<String, Double> = emptyMap()): Boolean {
        val count = maxOf(examples, 0).toULong()
        val measured = metrics.map { (name, value) -> Metric(name, value, count) }
        return inTime { finish(bytes(parameters), count, measured) }
    }

    /**
     * Trains the task's ready model as the plan says, and as the job asks beside it, and hands in the result: for apps without a training
     * function. [features] are rows of [width] numbers, [labels] the class of each row. Takes as long as training does. With [heldOut],
     * which nobody trains on, a job of the shared model also hands in what the model that it began with is worth, as `loss` and
     * `accuracy`.
     *
     * Returns whether it was handed in: if not, the job was paused, and comes again, or the round no longer waits. Throws
     * `TributaryException.Update` if the examples do not fit the model, or the task names no ready model.
     */
    public fun train(features: FloatArray, labels: IntArray, width: Int, heldOut: Rows? = null): Boolean = inTime {
        val classes = labels.map { it.toUInt() }
        when (heldOut) {
            null -> train(bytes(features), classes, width.toULong())
            else -> {
                val held = heldOut.labels.map { it.toUInt() }
                trainAndMeasure(bytes(features), classes, width.toULong(), bytes(heldOut.features), held)
            }
        }
    }

    /**
     * As the other [train], for a graph whose inputs have names. `accuracy` is left out if the model predicts numbers.
     *
     * Throws `TributaryException.Update` if the examples do not fit, or the task's model is no graph: the text names the input that is unknown,
     * missing, given twice, or of another type, length or range, and lists the graph's inputs. The job still takes an answer.
     */
    public fun train(examples: Examples, heldOut: Examples? = null): Boolean =
        inTime { trainGraph(examples.native(), heldOut?.native()) }

    /**
     * Answers an [analysis] with this device's rows: [rows] of [width] numbers, with its columns in their order, and in [targets] what is to
     * be predicted of each row, if it predicts something. They stay on the device: what leaves it is what the analysis counts and sums of
     * them, masked as the task prescribes. Give the same rows in the same order in each round.
     *
     * Returns whether they were handed in: if not, the round no longer waited, or the job was taken back. Throws
     * `TributaryException.Update` if they do not fit, or the job trains a model: nothing was sent, and the job still takes an answer.
     */
    public fun answer(rows: DoubleArray, width: Int, targets: DoubleArray? = null): Boolean =
        inTime { giveRows(bytes(rows), width.toULong(), targets?.let { bytes(it) }) }

    /** Says that training failed. The reason stays on the device. Where the round no longer waits, nobody is told. */
    public fun fail(reason: String) {
        inTime { fail(reason) }
    }

    /** Says that this app does not do such jobs. The reason stays on the device. Where the round no longer waits, nobody is told. */
    public fun refuse(reason: String) {
        inTime { refuse(reason) }
    }

    /** Gives the job up without an answer, unless it has one. */
    override fun close(): Unit = native.destroy()

    /** Whether the round still waited for the answer. */
    private inline fun inTime(answer: org.tributary.ffi.Job.() -> Unit): Boolean = try {
        native.unlessClosed(answer)
        true
    } catch (_: TributaryException.Overdue) {
        false
    }
}

/** Rows of numbers, row after row, and the class of each. */
public class Rows(public val features: FloatArray, public val labels: IntArray)

/**
 * The frozen model whose adapters a job trains: a layer of it computes with its matrix NAME + [scale] · B · A, where A and B are the job's
 * tensors `NAME.lora_a` and `NAME.lora_b`.
 */
public class AdapterBase internal constructor(native: org.tributary.ffi.AdapterBase) {
    /** Flat and row-major. */
    public val parameters: FloatArray = floats(native.parameters)

    /** Names, shapes and places of its tensors in [parameters]. */
    public val tensors: List<Tensor> = native.tensors

    /** The factor of B · A. */
    public val scale: Float = native.scale
}

/** The rule of a step; its state begins anew in each round. */
public sealed interface Optimizer {
    /** Stochastic gradient descent, with the plan's momentum and with its weight decay as a term of the gradient. */
    public data object Sgd : Optimizer

    /** AdamW (Loshchilov and Hutter 2019), with the plan's weight decay apart from the gradient. */
    public data class AdamW(val beta1: Double, val beta2: Double, val epsilon: Double) : Optimizer

    /** Of a newer task than this package. */
    public data class Other(val name: String) : Optimizer
}

/**
 * How to train: the numbers that most training functions need, and [all] of the plan. An app whose training cannot do what they ask for
 * refuses the job ([Job.refuse]).
 */
public class Plan internal constructor(public val all: JsonObject) {
    /** Passes over the local data, unless [steps] says how many steps. */
    public val epochs: Int = all.getValue("epochs").jsonPrimitive.int

    /** Number of steps; null if [epochs] counts. */
    public val steps: Long? = (all["steps"] as? JsonPrimitive)?.content?.toLongOrNull()

    /** Examples in a mini-batch. */
    public val batchSize: Int = all.getValue("batch_size").jsonPrimitive.int

    /** Of the local optimizer. */
    public val learningRate: Double = all.getValue("learning_rate").jsonPrimitive.double

    /** Of the local optimizer, from 0 to below 1. */
    public val momentum: Double = all.getValue("momentum").jsonPrimitive.double

    /** L2 penalty. */
    public val weightDecay: Double = all.getValue("weight_decay").jsonPrimitive.double

    /** FedProx μ: strength of the pull towards the received model; 0 if there is none. */
    public val proximalMu: Double = all.getValue("proximal_mu").jsonPrimitive.double

    /** L2 norm to which the gradient of each step is clipped; null if it is not. */
    public val gradientClip: Double? = all["gradient_clip"]?.jsonPrimitive?.doubleOrNull

    /** Mini-batches whose gradients are averaged into one step. */
    public val accumulate: Int = all["accumulate"]?.jsonPrimitive?.int ?: 1

    /** The rule of a step. */
    public val optimizer: Optimizer = all["optimizer"]?.jsonObject?.let(::readOptimizer) ?: Optimizer.Sgd

    /**
     * Whether it asks for steps of gradient descent at one learning rate, each after one mini-batch of [batchSize] examples, and nothing else. A
     * budget, at which training ends early, is something else.
     */
    public val isPlainSgd: Boolean
        get() = optimizer == Optimizer.Sgd && momentum == 0.0 && weightDecay == 0.0 && proximalMu == 0.0 && gradientClip == null &&
            accumulate == 1 && listOf("schedule", "warmup", "budget").none(all::containsKey)
}

private fun readOptimizer(said: JsonObject): Optimizer {
    fun number(name: String) = said.getValue(name).jsonPrimitive.double
    return when (val name = said.getValue("name").jsonPrimitive.content) {
        "sgd" -> Optimizer.Sgd
        "adamw" -> Optimizer.AdamW(number("beta1"), number("beta2"), number("epsilon"))
        else -> Optimizer.Other(name)
    }
}
