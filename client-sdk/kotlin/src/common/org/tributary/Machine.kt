package org.tributary

import org.tributary.ffi.Callbacks
import org.tributary.ffi.Circumstances
import org.tributary.ffi.DataUse
import org.tributary.ffi.DeviceState
import org.tributary.ffi.HeldUp
import org.tributary.ffi.HttpClient
import org.tributary.ffi.KeyStore
import org.tributary.ffi.Todo
import org.tributary.ffi.Trainer
import kotlin.time.Duration

/**
 * A participant that the app drives: [tick] says what to do next, and [perform] does it on the thread that calls it. It has no thread of
 * its own, and nothing here suspends.
 *
 *     Machine.open(options).use { machine ->
 *         while (true) {
 *             when (val todo = machine.tick(device())) {
 *                 Todo.Send, Todo.Fetch, Todo.Train, Todo.Journal -> machine.perform { job -> train(job) }
 *                 is Todo.WaitUntil -> sleepUntil(todo.elapsedMs)
 *                 Todo.Busy -> error("no other thread performs anything")
 *                 is Todo.Ended -> break
 *             }
 *         }
 *     }
 *
 * Any thread may call, but [tick] and [perform] not from a callback. After [close] calls throw `TributaryException.Closed`.
 */
public class Machine private constructor(private val native: org.tributary.ffi.Machine) : AutoCloseable {
    public companion object {
        /**
         * Opens the journal; [options] are those of [Participant.start]. [onEvent] is called by the thread that ticks, and what it throws is
         * ignored. Sends nothing. An [httpClient] answers from another thread than the one that performs, or in `begin`.
         */
        public fun open(
            options: ParticipantOptions,
            keyStore: KeyStore? = null,
            httpClient: HttpClient? = null,
            onEvent: ((Event) -> Unit)? = null,
        ): Machine {
            val callbacks = Callbacks(null, keyStore, onEvent?.let(::listener), httpClient)
            return Machine(org.tributary.ffi.Machine.open(options.text(), callbacks))
        }
    }

    /**
     * Says what to do next; neither waits nor starts a thread. [device] is for [ParticipantOptions.deviceConditions]. [elapsed] is the time on
     * a clock of the app that never jumps, by default on the library's own; `Todo.WaitUntil` is on the same. [examples] is the number of
     * training examples, null if it is as before.
     *
     * Throws `TributaryException` if it ended early.
     */
    public fun tick(device: DeviceState = DeviceState(), examples: Long? = null, elapsed: Duration? = null): Todo =
        native.unlessClosed { tick(Circumstances(elapsed?.inWholeMilliseconds?.toULong(), device, examples?.toULong())) }

    /**
     * Does on this thread what the last tick said, and waits for it. [train] is called if it said `Todo.Train` and there is a job, and answers
     * the job before it returns; if `job.shouldPause`, it may save a checkpoint and return without an answer, and is called again. So it is
     * when `job.train` has paused. There is no job for the last version of a task, which only a trainer in Rust measures: here it has no
     * metrics. Returns whether there was something to do that no other thread does.
     */
    public fun perform(train: (Job) -> Unit): Boolean {
        val trainer = object : Trainer {
            override fun train(job: org.tributary.ffi.Job) = Job(job).use(train)
        }
        return native.unlessClosed { perform(trainer) }
    }

    /** Has it end from the next tick on; an update that waits to be sent stays in the journal. */
    public fun stop(): Unit = native.unlessClosed { stop() }

    /** The participant's id, once it is enrolled. */
    public fun id(): String? = native.unlessClosed { id() }

    /** The condition of the device that held it up at the last tick, if one did. */
    public fun heldUp(): HeldUp? = native.unlessClosed { heldUp() }

    /** The model of a task, as [Participant.model]; reads the journal on this thread. */
    public fun model(task: String): Model? = native.unlessClosed { model(task) }?.let(::Model)

    /** The tasks that there is a model of, the latest last; reads the journal on this thread. */
    public fun models(): List<String> = native.unlessClosed { models() }

    /** What was spent on each private task, from the participant's own ledger. */
    public fun privacySpent(): List<PrivacySpent> = readPrivacySpent(native.unlessClosed { privacySpent() })

    /** What was spent on all tasks together, and the limit on it. */
    public fun privacyLifetime(): PrivacyLifetime = readPrivacyLifetime(native.unlessClosed { privacyLifetime() })

    /** What it refused so far, and why, as [Participant.refusals]. */
    public fun refusals(): List<Refusal> = readRefusals(native.unlessClosed { refusals() })

    /** What was sent and received, as of the last tick. */
    public fun dataUse(): DataUse = native.unlessClosed { dataUse() }

    /** Forgets it at once; the journal knows how to go on. */
    override fun close(): Unit = native.destroy()
}
