package org.tributary

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import java.io.File
import kotlin.time.Duration

/**
 * The settings of a participant. What is null or empty is left to the library, which has the defaults that are named here.
 *
 *     val options = ParticipantOptions(
 *         server = "https://federation.example:8443",
 *         journal = File(context.noBackupFilesDir, "journal"),
 *         caPem = authority,
 *         token = token,
 *         task = "digits",
 *         secureAggregation = SecurityPolicy(minCohort = 50),
 *     )
 *
 * One that cannot be used is refused where they are given ([Participant.start], [Machine.open], [Model.load]), with
 * `TributaryException.Configuration`.
 */
public data class ParticipantOptions(
    /** The coordinator, `https://host:port`. */
    val server: String,
    /**
     * Folder of the participant's state: its key, certificate and pending update; created if absent. Used by one participant at a time, and
     * never restored from a copy.
     */
    val journal: File,
    /**
     * The authority that the coordinator's certificate must come from, as PEM; no other is trusted. Required, but with [signedRequests] and
     * [membersCaPem].
     */
    val caPem: String? = null,
    /** The one-time token to enrol with. Default: none; not needed once the journal has a certificate. */
    val token: String? = null,
    /**
     * The task that it has data for; the participant ends when the task is over. Default: it takes any task, and then waits for the next
     * one.
     */
    val task: String? = null,
    /** Its name, unless the token says one. Default: the token's. */
    val name: String? = null,
    /**
     * Training examples that the coordinator is told of, until the first job is finished or [Participant.setExamples] says otherwise.
     * Default: 0.
     */
    val examples: Long? = null,
    /**
     * Whether the app's training heeds the anchor, the frozen tensors and the correction of a job, as [Job.train] does. Rounds whose jobs
     * have any are refused otherwise. Default: no.
     */
    val trainsWithin: Boolean? = null,
    /**
     * Whether the app's training trains adapters of [Job.base], as [Job.train] does. Rounds with such jobs are refused otherwise. Default:
     * no.
     */
    val trainsAdapters: Boolean? = null,
    /**
     * Whether the app gives its rows for analyses ([Job.analysis], [Job.answer]). Their rounds are refused otherwise. Default: no.
     */
    val answersAnalyses: Boolean? = null,
    /** File of the model, as safetensors, that apps bring to tasks with `base_sha256`; read for each such job. Default: none. */
    val baseModel: File? = null,
    /** What tasks may select by, such as the region. */
    val labels: Map<String, String> = emptyMap(),
    /** What the criteria of a task may ask the device about. The values never leave it. */
    val attributes: Map<String, Attribute> = emptyMap(),
    /** File of the key that seals the journal; not with a key store. Default: the journal's name with `.key`. */
    val journalKey: File? = null,
    /**
     * File that tells the journal's latest state, best on another disk than the journal; not with a key store. Default: the journal's name
     * with `.generation`.
     */
    val journalGeneration: File? = null,
    /**
     * The authorities that certify participants, as PEM, at most 8. A coordinator that holds their key can invent participants and so read
     * updates. Default: [caPem].
     */
    val membersCaPem: String? = null,
    /**
     * The keys that may sign the records of model versions, 64 hexadecimal digits each, as `tributary audit head` shows them. Default: the
     * first that signs, from then on.
     */
    val coordinatorKeys: List<String> = emptyList(),
    /**
     * For a coordinator behind a balancer that ends TLS: each request is signed. The balancer then reads the token, models, and updates that
     * are not masked. Default: no.
     */
    val signedRequests: Boolean? = null,
    /** With [signedRequests]: the authority of the balancer's certificate, as PEM; needed on Android. Default: what the device trusts. */
    val balancerCaPem: String? = null,
    /**
     * The HTTP proxy that leads to the coordinator, `http://[USER:PASSWORD@]HOST[:PORT]`, or `none`. Default: the environment variables
     * `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. An HTTP client of the app's own has a setting of its own.
     */
    val proxy: String? = null,
    /**
     * Bytes of the largest model (4 for each parameter), file, local state and encoded update that is accepted, each; a checkpoint may have
     * four times as many. Default: 256 000 000.
     */
    val maxModelBytes: Long? = null,
    /**
     * The SHA-256 digests of the graph files that are accepted, 64 hexadecimal digits each, as `sha256sum` shows them. Tasks with other
     * graphs are refused. Default: any graph.
     */
    val acceptedGraphs: List<String> = emptyList(),
    /**
     * Whether the journal keeps a model of each task for the app ([Participant.model]), and the participant fetches the last version once
     * the task is over. All of them take at most [maxModelBytes]; the oldest are dropped first. Default: yes.
     */
    val keepModels: Boolean? = null,
    /**
     * Shortest time between two checkpoints that a training writes to the journal, in whole milliseconds. A process that is killed while it
     * trains repeats what it had trained since the last one; before a training rests, the newest is written. Default: 30 s.
     */
    val checkpointEvery: Duration? = null,
    /**
     * Time after which the device's conditions are checked again during a training, and after which a [Machine] asks it to pause; in whole
     * milliseconds, at least 10. Default: 1 s.
     */
    val trainingSlice: Duration? = null,
    /** Makes training and rounding repeatable, for experiments; keys, masks and noise stay random. Default: none. */
    val seed: ULong? = null,
    /** The least that it requires of secure aggregation. Default: [SecurityPolicy] as it is when nothing in it is set. */
    val secureAggregation: SecurityPolicy? = null,
    /** Limits beyond what a task promises. Default: [PrivacyPolicy] as it is when nothing in it is set. */
    val privacy: PrivacyPolicy? = null,
    /**
     * What must hold of the device for it to work. Default: nothing; where the app tells what the device is like, [DevicePolicy] as it is
     * when nothing in it is set.
     */
    val deviceConditions: DevicePolicy? = null,
) {
    /** The value of one of the [attributes]. */
    public sealed interface Attribute {
        /** A number; finite. */
        public data class Number(val value: Double) : Attribute

        /** A text, such as a language. */
        public data class Text(val value: String) : Attribute
    }

    /** What was set, by the names that the library has for it. */
    internal fun toJson(): JsonObject = fields(
        "server" to json(server),
        "journal" to json(journal),
        "ca_pem" to json(caPem),
        "token" to json(token),
        "task" to json(task),
        "name" to json(name),
        "examples" to json(examples),
        "trains_within" to json(trainsWithin),
        "trains_adapters" to json(trainsAdapters),
        "answers_analyses" to json(answersAnalyses),
        "base_model" to json(baseModel),
        "labels" to labels.takeIf { it.isNotEmpty() }?.let { all -> JsonObject(all.mapValues { JsonPrimitive(it.value) }) },
        "attributes" to attributes.takeIf { it.isNotEmpty() }?.let { all -> JsonObject(all.mapValues { json(it.value) }) },
        "journal_key" to json(journalKey),
        "journal_generation" to json(journalGeneration),
        "members_ca_pem" to json(membersCaPem),
        "coordinator_keys" to coordinatorKeys.takeIf { it.isNotEmpty() }?.let { all -> JsonArray(all.map { JsonPrimitive(it) }) },
        "signed_requests" to json(signedRequests),
        "balancer_ca_pem" to json(balancerCaPem),
        "proxy" to json(proxy),
        "max_model_bytes" to json(maxModelBytes),
        "accepted_graphs" to acceptedGraphs.takeIf { it.isNotEmpty() }?.let { all -> JsonArray(all.map { JsonPrimitive(it) }) },
        "keep_models" to json(keepModels),
        "checkpoint_every_ms" to json(checkpointEvery),
        "training_slice_ms" to json(trainingSlice),
        "seed" to json(seed),
        "secure_aggregation" to secureAggregation?.toJson(),
        "privacy" to privacy?.toJson(),
        "device_conditions" to deviceConditions?.toJson(),
    )

    /** What was set, without token, proxy and the values of the attributes, which are to stay on the device. */
    override fun toString(): String {
        val hidden = attributes.mapValues { Attribute.Text("…") }
        val shown = copy(token = token?.let { "…" }, proxy = proxy?.let { "…" }, attributes = hidden)
        return "ParticipantOptions${shown.toJson()}"
    }
}

private fun json(attribute: ParticipantOptions.Attribute): JsonPrimitive = when (attribute) {
    is ParticipantOptions.Attribute.Number -> JsonPrimitive(attribute.value)
    is ParticipantOptions.Attribute.Text -> JsonPrimitive(attribute.value)
}
