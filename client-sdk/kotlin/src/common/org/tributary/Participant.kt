package org.tributary

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.NonCancellable
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.withContext
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.JsonObject
import kotlinx.serialization.json.jsonObject
import kotlinx.serialization.json.jsonPrimitive
import org.tributary.ffi.Callbacks
import org.tributary.ffi.DataUse
import org.tributary.ffi.DeviceConditions
import org.tributary.ffi.EventListener
import org.tributary.ffi.HeldUp
import org.tributary.ffi.HttpClient
import org.tributary.ffi.KeyStore
import org.tributary.ffi.Next
import org.tributary.ffi.TributaryException
import java.util.concurrent.ConcurrentLinkedQueue
import kotlin.time.Duration
import kotlin.time.Duration.Companion.seconds

/** Something that happened to a participant: its name in snake case, and its fields. */
public class Event(public val name: String, public val fields: JsonObject)

internal fun listener(tell: (Event) -> Unit): EventListener = object : EventListener {
    override fun onEvent(name: String, fields: String) = tell(Event(name, Json.parseToJsonElement(fields).jsonObject))
}

/** A coordinator's signed statement about the contributions of a participant: [json] is what to store. */
public class SignedStatement internal constructor(public val json: String) {
    private val fields = Json.parseToJsonElement(json).jsonObject

    /** The text that was signed. */
    public val text: String = fields.getValue("statement").jsonPrimitive.content

    /** What it states. */
    public val statement: JsonObject = Json.parseToJsonElement(text).jsonObject

    /** Ed25519, in hexadecimal. */
    public val signature: String = fields.getValue("signature").jsonPrimitive.content
}

/**
 * A participant on a thread of its own.
 *
 *     Participant.start(options).use { me ->
 *         me.jobs().collect { job ->
 *             val parameters = job.parameters()
 *             train(parameters, job.plan)
 *             job.finish(parameters, examples = data.size.toLong())
 *         }
 *     }
 *
 * All methods may be called from any thread, those that suspend from any dispatcher. [TributaryException] says what went
 * wrong; after [close] it is `TributaryException.Closed`, but from a second [close], which does nothing.
 */
public class Participant private constructor(private val native: org.tributary.ffi.Participant) : AutoCloseable {
    public companion object {
        /**
         * Starts a participant. At first [options] must have a token.
         *
         * [conditions], [keyStore], [httpClient] and [onEvent] may be called from any thread: the key store also from one of the app's that
         * saves a checkpoint, since it is called by the thread that writes the journal. They must return at once, and must not call what
         * suspends or closes here; the key store must not use a job either. What they throw counts as a device of which nothing is known, as a
         * failed store, as a request without an answer, and as nothing.
         * With [conditions] the policy is [ParticipantOptions.deviceConditions]: by default the device charges, nobody uses it, its network
         * is unmetered, and it is not hot. [httpClient] sends in the place of the library's own HTTPS.
         */
        public suspend fun start(
            options: ParticipantOptions,
            conditions: DeviceConditions? = null,
            keyStore: KeyStore? = null,
            httpClient: HttpClient? = null,
            onEvent: ((Event) -> Unit)? = null,
        ): Participant = withContext(Dispatchers.IO) {
            val callbacks = Callbacks(conditions, keyStore, onEvent?.let(::listener), httpClient)
            Participant(org.tributary.ffi.Participant.start(options.text(), callbacks))
        }

        /**
         * Withdraws this device's participant while it is stopped: the coordinator revokes it for good. Returns the coordinator's signed
         * statement about the rounds and versions that contain its updates, which has been verified: store it as evidence. [options],
         * [keyStore] and [httpClient] are those of [start].
         *
         * Waits for the coordinator, for some minutes at most. After an error, and for another statement, it may be repeated. The journal
         * stays as it is; delete it to delete the device's own models.
         */
        public suspend fun withdraw(
            options: ParticipantOptions,
            keyStore: KeyStore? = null,
            httpClient: HttpClient? = null,
        ): SignedStatement = withContext(Dispatchers.IO) {
            val callbacks = Callbacks(null, keyStore, null, httpClient)
            SignedStatement(org.tributary.ffi.withdraw(options.text(), callbacks))
        }

        private const val SLICE_MS = 250UL
    }

    /** Jobs that were taken for callers that were cancelled meanwhile: for whoever asks next. */
    private val kept = ConcurrentLinkedQueue<Job>()

    /**
     * The jobs that it is given, until its task is over or it is stopped. A collector that is cancelled while it waits loses no job, and
     * leaves the participant running; jobs go to one collector each.
     */
    public fun jobs(): Flow<Job> = flow {
        while (true) emit(next() ?: break)
    }

    /** The next job; null once the participant has ended. A caller that is cancelled while it waits loses no job: the next one gets it. */
    public suspend fun next(): Job? {
        while (true) {
            currentCoroutineContext().ensureActive()
            val found = kept.poll()
            if (found != null) {
                if (!found.isOverdue) return found
                found.close()
                continue
            }
            // A job is kept before the way back, on which the caller may be cancelled, and given out above.
            val next = withContext(NonCancellable + Dispatchers.IO) {
                native.unlessClosed { next(SLICE_MS) }.also { if (it is Next.Job) kept.add(Job(it.job)) }
            }
            if (next is Next.Ended) return null
        }
    }

    /**
     * Rests, and sends nothing until [resume]. A job under way should pause: once it has saved a checkpoint, or in ten seconds, it is taken
     * back, and comes again if its round still waits. If it has saved none by then, its round is given up, as is any other whose update is
     * not made.
     */
    public fun pause(): Unit = native.unlessClosed { pause() }

    /** Ends a pause. */
    public fun resume(): Unit = native.unlessClosed { resume() }

    /** Has the participant ask its [DeviceConditions] now. */
    public fun conditionsChanged(): Unit = native.unlessClosed { conditionsChanged() }

    /** The number of training examples that the coordinator is told of; a finished job sets it, too. */
    public fun setExamples(examples: Long): Unit = native.unlessClosed { setExamples(examples.toULong()) }

    /** The participant's id, once it is enrolled. */
    public suspend fun id(): String? = withContext(Dispatchers.IO) { native.unlessClosed { id() } }

    /** What was spent on each private task, from the participant's own ledger. */
    public suspend fun privacySpent(): List<PrivacySpent> =
        withContext(Dispatchers.IO) { readPrivacySpent(native.unlessClosed { privacySpent() }) }

    /** What was spent on all tasks together, and the limit on it. */
    public suspend fun privacyLifetime(): PrivacyLifetime =
        withContext(Dispatchers.IO) { readPrivacyLifetime(native.unlessClosed { privacyLifetime() }) }

    /** What it refused so far, and why: the last fifty reasons, the latest last. From the journal, so earlier processes count. */
    public suspend fun refusals(): List<Refusal> =
        withContext(Dispatchers.IO) { readRefusals(native.unlessClosed { refusals() }) }

    /**
     * The model of a task for use on this device: its own where the task personalizes; otherwise the published version, verified, that the
     * device's last round began with, or the last version once the task is over; null if there is none yet. It is read from the journal, so
     * it needs no network; while no participant runs, [Model.load] reads it.
     */
    public suspend fun model(task: String): Model? = withContext(Dispatchers.IO) { native.unlessClosed { model(task) }?.let(::Model) }

    /** The tasks that there is a model of, the latest last. */
    public suspend fun models(): List<String> = withContext(Dispatchers.IO) { native.unlessClosed { models() } }

    /** The condition of the device that holds it up now, if one does. */
    public suspend fun heldUp(): HeldUp? = withContext(Dispatchers.IO) { native.unlessClosed { heldUp() } }

    /** What was sent and received. */
    public suspend fun dataUse(): DataUse = withContext(Dispatchers.IO) { native.unlessClosed { dataUse() } }

    /** Asks it to stop; [jobs] ends when it has. */
    public fun stop(): Unit = native.unlessClosed { stop() }

    /** Stops it, and suspends until it has ended or the time is up; returns which. The journal knows how to go on. */
    public suspend fun close(limit: Duration): Boolean =
        withContext(NonCancellable + Dispatchers.IO) {
            native.unlessClosed { close(limit.inWholeMilliseconds.toULong()) }.also { forget() }
        }

    /** Stops it and waits for its end, a few seconds at most; a second call does nothing. Not for a thread that draws. */
    override fun close() {
        try {
            native.unlessClosed { close(10.seconds.inWholeMilliseconds.toULong()) }
        } catch (_: TributaryException.Closed) {
            // By an earlier call, or by another thread.
        }
        forget()
    }

    private fun forget() {
        native.destroy()
        generateSequence { kept.poll() }.forEach(Job::close)
    }
}
