package org.tributary

import kotlinx.serialization.json.JsonArray
import kotlinx.serialization.json.JsonElement
import kotlinx.serialization.json.JsonNull
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.buildJsonObject
import kotlinx.serialization.json.doubleOrNull
import org.tributary.ffi.TributaryException
import java.io.File
import kotlin.time.Duration

/** An object of the fields that have a value. */
internal fun fields(vararg all: Pair<String, JsonElement?>): JsonObject = buildJsonObject {
    for ((name, value) in all) {
        if (value != null) put(name, value)
    }
}

internal fun json(value: String?): JsonPrimitive? = value?.let { JsonPrimitive(it) }

internal fun json(value: Number?): JsonPrimitive? = value?.let { JsonPrimitive(it) }

internal fun json(value: Boolean?): JsonPrimitive? = value?.let { JsonPrimitive(it) }

internal fun json(value: File?): JsonPrimitive? = value?.let { JsonPrimitive(it.path) }

/** In milliseconds. */
internal fun json(value: Duration?): JsonPrimitive? = value?.let { JsonPrimitive(it.inWholeMilliseconds) }

internal fun json(value: ULong?): JsonPrimitive? = value?.let { JsonPrimitive(it.toString().toBigInteger()) }

internal fun <T> json(limit: Limit<T>, write: (T) -> JsonElement): JsonElement = when (limit) {
    is Limit.AtMost -> write(limit.value)
    is Limit.Unlimited -> JsonNull
}

/** As the library reads them. Throws `TributaryException.Configuration` if a number is none: JSON has no word for that. */
internal fun ParticipantOptions.text(): String {
    val json = toJson()
    refuseNoNumbers(null, json)
    return json.toString()
}

private fun refuseNoNumbers(name: String?, value: JsonElement) {
    when (value) {
        is JsonObject -> for ((key, inner) in value) refuseNoNumbers(if (name == null) key else "$name.$key", inner)
        is JsonPrimitive -> if (!value.isString && value.doubleOrNull?.isFinite() == false) {
            throw TributaryException.Configuration("`$name` cannot be used: ${value.content}")
        }
        is JsonArray -> Unit
    }
}
