package org.tributary

import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.contentOrNull
import kotlinx.serialization.json.double
import kotlinx.serialization.json.doubleOrNull
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonArray
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long

/** What was spent on one private task, from the participant's own ledger. */
public data class PrivacySpent(
    /** The task's id. */
    val task: String,
    /** The task's name. */
    val name: String,
    /** How noise gets into what is released, such as `distributed_discrete_gaussian`. */
    val mechanism: String,
    /** δ of the task's guarantee. */
    val delta: Double,
    /** ε spent, to those who see the models and know that this participant took part; null if there is no finite one. */
    val epsilon: Double?,
    /** ε spent, to the coordinator itself; null where the coordinator adds the noise and is trusted. */
    val server: Double?,
    /** Number of updates charged, also of those that were never summed. */
    val releases: Long,
    /** Limit on ε, if there is one besides the number of updates. */
    val limit: Double?,
    /** Why the ledger failed verification, if it did: nothing more is sent to this task, and the figures are those last written. */
    val damaged: String?,
)

/** What was spent on all tasks together, and the limit on it. */
public data class PrivacyLifetime(
    /** ε spent, to those who know all rounds that this participant took part in; null while a ledger fails verification. */
    val epsilon: Double?,
    /** δ of that ε. */
    val delta: Double,
    /** Limit on ε, if there is one. */
    val limit: Double?,
)

/** What was refused for one reason. */
public data class Refusal(
    /** The id of the task; with [round] and [attempt] the attempt that was refused last. */
    val task: String,
    val round: Int,
    val attempt: Int,
    /** What the coordinator was told; null where it was told nothing. */
    val code: String?,
    /** In words, which stay on the device. */
    val reason: String,
    /** When it was refused last, in milliseconds since 1970. */
    val atMs: Long,
    /** How often the task was refused for this reason. */
    val times: Long,
)

private fun JsonObject.primitive(name: String) = getValue(name).jsonPrimitive

private fun <T> readAll(json: String, read: (JsonObject) -> T): List<T> = Json.parseToJsonElement(json).jsonArray.map { read(it.jsonObject) }

internal fun readPrivacySpent(json: String): List<PrivacySpent> = readAll(json) { spent ->
    PrivacySpent(
        task = spent.primitive("task").content,
        name = spent.primitive("name").content,
        mechanism = spent.primitive("mechanism").content,
        delta = spent.primitive("delta").double,
        epsilon = spent.primitive("epsilon").doubleOrNull,
        server = spent.primitive("server").doubleOrNull,
        releases = spent.primitive("releases").long,
        limit = spent.primitive("limit").doubleOrNull,
        damaged = spent.primitive("damaged").contentOrNull,
    )
}

internal fun readPrivacyLifetime(json: String): PrivacyLifetime {
    val spent = Json.parseToJsonElement(json).jsonObject
    return PrivacyLifetime(spent.primitive("epsilon").doubleOrNull, spent.primitive("delta").double, spent.primitive("limit").doubleOrNull)
}

internal fun readRefusals(json: String): List<Refusal> = readAll(json) { refused ->
    Refusal(
        task = refused.primitive("task").content,
        round = refused.primitive("round").int,
        attempt = refused.primitive("attempt").int,
        code = refused.primitive("code").contentOrNull,
        reason = refused.primitive("reason").content,
        atMs = refused.primitive("at_ms").long,
        times = refused.primitive("times").long,
    )
}
