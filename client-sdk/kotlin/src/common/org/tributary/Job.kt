package org.tributary

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.tributary.ffi.Metric
import org.tributary.ffi.Tensor
import org.tributary.ffi.TributaryException

/**
 * One model to train. Takes one answer ([finish], [train], [fail] or [refuse]), from any thread. One that comes too late is dropped, and ends
 * no loop: the next job is as good.
 */
public class Job internal constructor(private val native: org.tributary.ffi.Job) : AutoCloseable {
    private val description: JsonObject = Json.parseToJsonElement(native.description()).jsonObject

    /** The name of the task. */
    public val task: String = description.getValue("task").jsonPrimitive.content

    /** The round, from 1. */
    public val round: Int = description.getValue("round").jsonPrimitive.int

    /** How to train. */
    public val plan: Plan = Plan(description.getValue("plan").jsonObject)

    /** The task's description of its model, if it has one. */
    public val architecture: JsonElement? = description["architecture"]

    /** For shuffling and the like: an unsigned number of 64 bits. */
    public val seed: Long = description.getValue("seed").jsonPrimitive.content.toULong().toLong()

    /** Names, shapes and places of the tensors in the flat vector. */
    public val tensors: List<Tensor> = native.tensors()

    /** Whether the round no longer waits: training may stop. Cheap: look between batches. */
    public val isOverdue: Boolean get() = native.isOverdue()

    /** A copy of the parameters, flat and row-major, to be trained in place and given to [finish]. */
    public fun parameters(): FloatArray = floats(native.parameters())

    /** What the training of this job saved last, before it was paused or its process was killed; null if it begins. */
    public fun checkpoint(): ByteArray? = native.checkpoint()

    /**
     * Keeps the state of the training, so that it goes on from there after a pause, and after its process was killed. It replaces the last
     * one, and goes with the round. The journal seals it, once in `checkpoint_every_ms` of the options.
     *
     * Returns whether it was kept: if not, the round no longer waits, or the job was taken back, and training may stop. Throws
     * `TributaryException.Update` if it is larger than four times `max_model_bytes`.
     */
    public fun saveCheckpoint(state: ByteArray): Boolean = inTime { native.saveCheckpoint(state) }

    /** Whether the last checkpoint is old enough for a new one. Cheap: look between batches. */
    public val isCheckpointDue: Boolean get() = native.isCheckpointDue()

    /**
     * Whether the training should rest: save a checkpoint then. The job is taken back, and comes again when it goes on, if its round still
     * waits. Cheap: look between batches.
     */
    public val shouldPause: Boolean get() = native.shouldPause()

    /**
     * Hands in the trained parameters. What leaves the device is clipped, weighted, noised and masked as the task prescribes.
     *
     * Returns whether they were handed in: if not, the round no longer waited, or the job was taken back. Throws
     * `TributaryException.Update` if they do not fit: nothing was sent, and the job still takes an answer.
     */
    public fun finish(parameters: FloatArray, examples: Long, metrics: Map<String, Double> = emptyMap()): Boolean {
        val count = maxOf(examples, 0).toULong()
        return inTime { native.finish(bytes(parameters), count, metrics.map { (name, value) -> Metric(name, value, count) }) }
    }

    /**
     * Trains the task's ready model as the plan says, and hands in the result: for apps without a training function. [features] are
     * rows of [width] numbers, [labels] the class of each row. Takes as long as training does.
     *
     * Returns whether it was handed in: if not, the job was paused, and comes again, or the round no longer waits. Throws
     * `TributaryException.Update` if the examples do not fit the model, or the task names no ready model.
     */
    public fun train(features: FloatArray, labels: IntArray, width: Int): Boolean =
        inTime { native.train(bytes(features), labels.map { it.toUInt() }, width.toULong()) }

    /** Says that training failed. The reason stays on the device. Where the round no longer waits, nobody is told. */
    public fun fail(reason: String) {
        inTime { native.fail(reason) }
    }

    /** Says that this app does not do such jobs. The reason stays on the device. Where the round no longer waits, nobody is told. */
    public fun refuse(reason: String) {
        inTime { native.refuse(reason) }
    }

    /** Gives the job up without an answer, unless it has one. */
    override fun close(): Unit = native.destroy()

    /** Whether somebody still waited for it. */
    private inline fun inTime(answer: () -> Unit): Boolean = try {
        answer()
        true
    } catch (_: TributaryException.Overdue) {
        false
    }
}

/** How to train: the numbers that most training functions need, and [all] of the plan. */
public class Plan internal constructor(public val all: JsonObject) {
    /** Passes over the local data, unless [steps] says how many steps. */
    public val epochs: Int = all.getValue("epochs").jsonPrimitive.int

    /** Number of steps; null if [epochs] counts. */
    public val steps: Long? = (all["steps"] as? JsonPrimitive)?.content?.toLongOrNull()

    /** Examples in a mini-batch. */
    public val batchSize: Int = all.getValue("batch_size").jsonPrimitive.int

    /** Of the local optimizer. */
    public val learningRate: Double = all.getValue("learning_rate").jsonPrimitive.double
}
