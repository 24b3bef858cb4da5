package org.tributary

import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.JsonPrimitive
import org.tributary.ffi.Thermal
import kotlin.time.Duration

/** A limit, or none where there is one by default. */
public sealed interface Limit<out T> {
    /** The highest that is allowed. */
    public data class AtMost<out T>(val value: T) : Limit<T>

    /** No limit. */
    public data object Unlimited : Limit<Nothing>
}

/**
 * The least that a participant requires of secure aggregation. What is null is as by default; every floor below its default is reported by
 * the event `lowered`.
 */
public data class SecurityPolicy(
    /** Refuses rounds without secure aggregation, in which the coordinator can read the update. Default: yes. */
    val required: Boolean? = null,
    /** Participants in the smallest cohort, or group of one; at least 3. Default: 10. */
    val minCohort: Int? = null,
    /** The least share of the cohort, 0 to 0.5, that must be able to collude with the coordinator and still learn nothing. Default: 0. */
    val minToleratedCorrupt: Double? = null,
    /**
     * The least number of participants that must be able to collude with the coordinator and still learn nothing, in the smallest cohort of
     * a session. Default: 1.
     */
    val minToleratedColluders: Int? = null,
    /** The fewest updates in an opened sum: from a sum of two, each member computes the other's update. Default: 3. */
    val minIncluded: Int? = null,
    /** The least size of the fixed batch that every member of a session must belong to. Default: 0, the task decides. */
    val minBatch: Int? = null,
    /** Id of the fixed batch that the app consents to leave for another one. Default: none. */
    val leaveBatch: String? = null,
    /** How many versions behind its round an update of any member may start, where a task trains ahead; 0 to 1000. Default: 0. */
    val maxStaleness: Int? = null,
    /** Tells the loss of the last training, coarsely, to tasks that select by it, although updates are hidden. Default: no. */
    val tellLoss: Boolean? = null,
) {
    internal fun toJson(): JsonObject = fields(
        "required" to json(required),
        "min_cohort" to json(minCohort),
        "min_tolerated_corrupt" to json(minToleratedCorrupt),
        "min_tolerated_colluders" to json(minToleratedColluders),
        "min_included" to json(minIncluded),
        "min_batch" to json(minBatch),
        "leave_batch" to json(leaveBatch),
        "max_staleness" to json(maxStaleness),
        "tell_loss" to json(tellLoss),
    )
}

/** A participant's limits beyond what a task promises of privacy. What is null is as by default. */
public data class PrivacyPolicy(
    /** Refuses tasks without a privacy mechanism. Default: no. */
    val required: Boolean? = null,
    /** The most ε spent on one task, at its δ, to those who know that this participant took part; above 0. Default: no limit. */
    val maxEpsilon: Double? = null,
    /** The largest δ that a task may promise by; between 0 and 1, both excluded. Default: no limit. */
    val maxDelta: Double? = null,
    /**
     * The limit on all tasks together, over the journal's life. [Limit.Unlimited] is for a device that serves a single task, whose own
     * promise is the limit. Default: [Lifetime] as it is when nothing in it is set.
     */
    val lifetime: Limit<Lifetime>? = null,
) {
    /** What all tasks together may cost. What is null is as by default. */
    public data class Lifetime(
        /** ε, to those who know of every round that this participant took part; above 0. Default: 10. */
        val epsilon: Double? = null,
        /** The probability that the bound fails; between 0 and 1, both excluded. Default: 0.00001. */
        val delta: Double? = null,
    ) {
        internal fun toJson(): JsonObject = fields(
            "epsilon" to json(epsilon),
            "delta" to json(delta),
        )
    }

    internal fun toJson(): JsonObject = fields(
        "required" to json(required),
        "max_epsilon" to json(maxEpsilon),
        "max_delta" to json(maxDelta),
        "lifetime" to lifetime?.let { limit -> json(limit) { it.toJson() } },
    )
}

/**
 * What must hold of the device for a participant to work. What is null is as by default. A condition on something that the app does not tell
 * counts as not met.
 */
public data class DevicePolicy(
    /** The device charges. Default: yes. */
    val charging: Boolean? = null,
    /** Its network costs nothing by the byte. Default: yes. */
    val unmetered: Boolean? = null,
    /** Nobody uses it. Default: yes. */
    val idle: Boolean? = null,
    /** The lowest level of its battery in percent, 0 to 100. Default: none. */
    val minBatteryPercent: Int? = null,
    /** How warm it may be. Default: `Thermal.FAIR`. */
    val maxThermal: Limit<Thermal>? = null,
    /**
     * The most bytes sent and received in a day of UTC, without those of TLS. What is under way when they are used up comes on top. Default:
     * no limit.
     */
    val maxBytesPerDay: Long? = null,
    /** Time until the conditions are checked again, unless the app says that they changed; in whole milliseconds. Default: 60 s. */
    val askAgain: Duration? = null,
) {
    internal fun toJson(): JsonObject = fields(
        "charging" to json(charging),
        "unmetered" to json(unmetered),
        "idle" to json(idle),
        "min_battery_percent" to json(minBatteryPercent),
        "max_thermal" to maxThermal?.let { limit -> json(limit) { JsonPrimitive(it.name.lowercase()) } },
        "max_bytes_per_day" to json(maxBytesPerDay),
        "ask_again_ms" to json(askAgain),
    )
}
