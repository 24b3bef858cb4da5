package org.tributary

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonElement
import org.tributary.ffi.KeyStore
import org.tributary.ffi.Tensor
import org.tributary.ffi.loadModel

/**
 * The model of a task on this device: the personalized one where there is one, else the published one that the last round began with,
 * or the last version once the task is over. It stays as it is while the participant goes on, and after it was closed.
 */
public class Model internal constructor(private val native: org.tributary.ffi.Model) : AutoCloseable {
    public companion object {
        /**
         * The model of a task while no participant runs: from the journal that [options] name, those of [Participant.start], without a
         * thread and without a network. Null if the journal has none.
         */
        public suspend fun load(options: ParticipantOptions, task: String, keyStore: KeyStore? = null): Model? =
            withContext(Dispatchers.IO) { loadModel(options.text(), keyStore, task)?.let(::Model) }
    }

    /** Of a published model, where 0 is what the task began with; null of a personalized one. */
    public val version: Int? = native.version()?.toInt()

    /** SHA-256 of the published file; null of a personalized model. */
    public val sha256: String? = native.sha256()

    /** The round that left a personalized model on the device; null of a published one. */
    public val round: Int? = native.round()?.toInt()

    /** Whether it was made on this device. */
    public val isPersonalized: Boolean get() = round != null

    /** The task's description of its model, if it has one. */
    public val architecture: JsonElement? = native.architecture()?.let(Json::parseToJsonElement)

    /**
     * What the app's answer said of it in the round that began with it, by name, without what is of the training (`train_…`). Empty before
     * that answer, after one that says nothing of it, as that of [Job.train] without held-out rows, and of the last version of a task that
     * is over.
     */
    public val metrics: Map<String, Double> = native.metrics().associate { it.name to it.value }

    /** Names, shapes and places of the tensors in the flat vector. */
    public val tensors: List<Tensor> = native.tensors()

    /** A copy of the parameters, flat and row-major. */
    public fun parameters(): FloatArray = floats(native.unlessClosed { parameters() })

    /**
     * The scores of each class for each row, before softmax, row after row, if the model is one of the SDK's own. Throws
     * `TributaryException.Argument` if it is none of them, or the rows do not fit.
     */
    public fun scores(rows: FloatArray): FloatArray = floats(native.unlessClosed { scores(bytes(rows)) })

    /**
     * The first output of a graph for [count] examples, one example after the other; [length] is that of their sequences, 1 for a graph
     * without. Throws `TributaryException.Argument` if the model is no graph, or the columns do not fit: the text lists the graph's inputs.
     */
    public fun predict(columns: List<Column>, count: Int, length: Int = 1): FloatArray =
        floats(native.unlessClosed { predict(columns.map(Column::native), whole(count), whole(length)) })

    /** Frees its memory; [parameters], [scores] and [predict] then throw `TributaryException.Closed`. */
    override fun close(): Unit = native.destroy()
}
