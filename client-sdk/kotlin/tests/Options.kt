package org.tributary.tests

import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import kotlinx.serialization.json.boolean
import kotlinx.serialization.json.double
import kotlinx.serialization.json.int
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import kotlinx.serialization.json.long
import org.tributary.DevicePolicy
import org.tributary.Limit
import org.tributary.Model
import org.tributary.ParticipantOptions
import org.tributary.ParticipantOptions.Attribute
import org.tributary.PrivacyPolicy
import org.tributary.SecurityPolicy
import org.tributary.ffi.Thermal
import org.tributary.ffi.TributaryException
import java.io.File
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

private fun JsonObject.value(name: String): JsonPrimitive? = get(name)?.jsonPrimitive

private fun security(given: JsonObject) = SecurityPolicy(
    required = given.value("required")?.boolean,
    minCohort = given.value("min_cohort")?.int,
    minToleratedColluders = given.value("min_tolerated_colluders")?.int,
)

private fun privacy(given: JsonObject) = PrivacyPolicy(
    maxEpsilon = given.value("max_epsilon")?.double,
    lifetime = given["lifetime"]?.let { Limit.AtMost(PrivacyPolicy.Lifetime(epsilon = it.jsonObject.value("epsilon")?.double)) },
)

private fun device(given: JsonObject) = DevicePolicy(
    charging = given.value("charging")?.boolean,
    unmetered = given.value("unmetered")?.boolean,
    idle = given.value("idle")?.boolean,
    maxThermal = if ("max_thermal" in given) Limit.Unlimited else null,
    maxBytesPerDay = given.value("max_bytes_per_day")?.long,
)

/** The options in a file of `.ci/sdks/participants.sh`, of which it reads no more than these programs are given; others are refused. */
fun readOptions(path: String): ParticipantOptions {
    val given = Json.parseToJsonElement(File(path).readText()).jsonObject
    val read = ParticipantOptions(
        server = given.getValue("server").jsonPrimitive.content,
        journal = File(given.getValue("journal").jsonPrimitive.content),
        caPem = given.value("ca_pem")?.content,
        token = given.value("token")?.content,
        task = given.value("task")?.content,
        trainsWithin = given.value("trains_within")?.boolean,
        answersAnalyses = given.value("answers_analyses")?.boolean,
        maxModelBytes = given.value("max_model_bytes")?.long,
        checkpointEvery = given.value("checkpoint_every_ms")?.long?.milliseconds,
        trainingSlice = given.value("training_slice_ms")?.long?.milliseconds,
        seed = given.value("seed")?.content?.toULong(),
        secureAggregation = given["secure_aggregation"]?.let { security(it.jsonObject) },
        privacy = given["privacy"]?.let { privacy(it.jsonObject) },
        deviceConditions = given["device_conditions"]?.let { device(it.jsonObject) },
    )
    check(read.toJson() == given) { "not all of ${given.keys} was read" }
    return read
}

/** Each option, and none as it is by default. */
private val every = ParticipantOptions(
    server = "https://localhost:1",
    journal = File("/data/journal"),
    caPem = "the coordinator's authority",
    token = "the token",
    task = "digits",
    name = "phone",
    examples = 200,
    trainsWithin = true,
    trainsAdapters = true,
    answersAnalyses = true,
    baseModel = File("/data/base.safetensors"),
    labels = mapOf("region" to "eu"),
    attributes = mapOf("memory_gb" to Attribute.Number(4.5), "language" to Attribute.Text("Deutsch")),
    journalKey = File("/keys/journal.key"),
    journalGeneration = File("/keys/journal.generation"),
    membersCaPem = "the members' authority",
    coordinatorKeys = listOf("ab".repeat(32)),
    signedRequests = true,
    balancerCaPem = "the balancer's authority",
    proxy = "http://ward:secret@proxy.example:3128",
    maxModelBytes = 1_000_000,
    acceptedGraphs = listOf("cd".repeat(32)),
    keepModels = false,
    checkpointEvery = 1.5.seconds,
    trainingSlice = 250.milliseconds,
    seed = ULong.MAX_VALUE,
    secureAggregation = SecurityPolicy(
        required = false,
        minCohort = 50,
        minToleratedCorrupt = 0.25,
        minToleratedColluders = 2,
        minIncluded = 30,
        minBatch = 4,
        leaveBatch = "9f2c8e51d0a7b3461f0e7c25a98d6b304e1f8a27c5d09b63a84e7120fd56c39b",
        maxStaleness = 3,
        tellLoss = true,
    ),
    privacy = PrivacyPolicy(
        required = true,
        maxEpsilon = 2.5,
        maxDelta = 0.01,
        lifetime = Limit.AtMost(PrivacyPolicy.Lifetime(epsilon = 7.5, delta = 0.02)),
    ),
    deviceConditions = DevicePolicy(
        charging = false,
        unmetered = false,
        idle = false,
        minBatteryPercent = 30,
        maxThermal = Limit.AtMost(Thermal.SERIOUS),
        maxBytesPerDay = 5_000_000,
        askAgain = 10.seconds,
    ),
)

private fun writesWhatIsSet(expected: JsonObject) {
    check(every.toJson() == expected) { "$every" }
    check(ParticipantOptions("https://localhost:1", File("journal")).toJson().keys == setOf("server", "journal"))
    val empty = listOf(SecurityPolicy().toJson(), PrivacyPolicy().toJson(), PrivacyPolicy.Lifetime().toJson(), DevicePolicy().toJson())
    check(empty.all { it.isEmpty() }) { "$empty" }
    check("${PrivacyPolicy(lifetime = Limit.Unlimited).toJson()}" == """{"lifetime":null}""")
    check("${DevicePolicy(maxThermal = Limit.Unlimited).toJson()}" == """{"max_thermal":null}""")
}

private fun keepsSecrets() {
    check("digits" in "$every" && "token" in "$every" && "language" in "$every") { "$every" }
    check("the token" !in "$every" && "secret" !in "$every" && "Deutsch" !in "$every" && "4.5" !in "$every") { "a secret can be read" }
}

/** The library takes each option, and what no JSON can say is told by its name. */
private suspend fun areTaken(folder: File) {
    val here = every.copy(
        journal = File(folder, "journal"),
        journalKey = File(folder, "key"),
        journalGeneration = File(folder, "generation"),
    )
    check(Model.load(here, "absent") == null)
    val noNumber = here.copy(attributes = mapOf("memory_gb" to Attribute.Number(Double.POSITIVE_INFINITY)))
    expect<TributaryException.Configuration>("`attributes.memory_gb` cannot be used: Infinity") { Model.load(noNumber, "absent") }
    check("memory_gb" in "$noNumber")
}

/**
 * Options of each kind are written as the library reads them. EVERY.json is `client-sdk/ffi/tests/options.json`, and FOLDER is new.
 *
 *     Options EVERY.json FOLDER
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    writesWhatIsSet(Json.parseToJsonElement(File(arguments[0]).readText()).jsonObject)
    keepsSecrets()
    val folder = File(arguments[1])
    check(folder.mkdirs()) { "there is a $folder" }
    areTaken(folder)
    println("options in Kotlin: each is written as the library reads it")
}
