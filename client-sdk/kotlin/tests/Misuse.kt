package org.tributary.tests

import kotlinx.coroutines.TimeoutCancellationException
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withTimeout
import org.tributary.Event
import org.tributary.Job
import org.tributary.Machine
import org.tributary.Model
import org.tributary.Optimizer
import org.tributary.Participant
import org.tributary.ParticipantOptions
import org.tributary.PrivacyPolicy
import org.tributary.ffi.CallbackException
import org.tributary.ffi.Callbacks
import org.tributary.ffi.DeviceConditions
import org.tributary.ffi.DeviceState
import org.tributary.ffi.KeyStore
import org.tributary.ffi.Thermal
import org.tributary.ffi.TributaryException
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.atomic.AtomicInteger
import java.util.concurrent.atomic.AtomicReference
import kotlin.concurrent.thread
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** Throws unless [code] throws an [E] whose text has [words]. */
inline fun <reified E : Exception> expect(words: String, code: () -> Unit) {
    try {
        code()
    } catch (error: Exception) {
        check(error is E && words in error.message.orEmpty()) { "expected ${E::class.simpleName} with $words, got $error" }
        return
    }
    error("expected ${E::class.simpleName} with $words, nothing was thrown")
}

/** Runs [code] on a thread of its own, and throws what it throws. */
fun inThread(code: () -> Unit) {
    var failure: Throwable? = null
    thread { failure = runCatching(code).exceptionOrNull() }.join()
    failure?.let { throw it }
}

/** The secrets of a journal in memory. */
class MemoryKeys : KeyStore {
    val secrets = ConcurrentHashMap<String, ByteArray>()
    val saves = AtomicInteger()
    var isLocked = false

    override fun load(name: String): ByteArray? {
        if (isLocked) throw CallbackException.Failed("the screen is locked")
        return secrets[name]
    }

    override fun save(name: String, secret: ByteArray) {
        saves.incrementAndGet()
        secrets[name] = secret
    }
}

suspend fun wrongAnswers(job: Job) {
    val right = job.parameters()
    val plan = job.plan
    check(plan.optimizer == Optimizer.AdamW(0.9, 0.99, 1e-8) && !plan.isPlainSgd) { "optimizer: ${plan.optimizer}" }
    check(plan.weightDecay == 0.01 && plan.proximalMu == 0.5 && plan.gradientClip == 2.0 && plan.momentum == 0.0 && plan.accumulate == 2)
    check(right.size == 8 && job.tensors.map { it.name } == listOf("w", "b") && job.plan.learningRate == 0.05)
    expect<TributaryException.Update>("7 parameters") { job.finish(right.copyOf(7), 1) }
    expect<TributaryException.Update>("\"b\" has NaN at position 1") { job.finish(right.copyOf().also { it[7] = Float.NaN }, 1) }
    for (examples in listOf(0L, -1L)) expect<TributaryException.Update>("examples is 0") { job.finish(right, examples) }
    check(job.checkpoint() == null && !job.shouldPause && !job.isCheckpointDue)
    expect<TributaryException.Update>("its limit is 4000") { job.saveCheckpoint(ByteArray(5000)) }
    job.saveCheckpoint(byteArrayOf(1, 2))
    check(job.checkpoint()?.toList() == listOf<Byte>(1, 2))
    expect<TributaryException.Update>("accuracy") { job.finish(right, 1, mapOf("accuracy" to Double.NaN)) }
    expect<TributaryException.Update>("which model") { job.train(FloatArray(6), intArrayOf(0, 1), 3) }
    expect<TributaryException.Update>("at least one") { job.train(FloatArray(6), IntArray(0), 3) }
    for (index in right.indices) right[index] += 1f
    job.finish(right, 1)
    expect<TributaryException.Answered>("answered before") { job.finish(right, 1) }
    expect<TributaryException.Answered>("answered before") { job.fail("twice") }
    check(job.isOverdue)
    job.close()
    expect<TributaryException.Closed>("closed") { job.finish(right, 1) }
    expect<TributaryException.Closed>("closed") { job.isOverdue }
}

/** Options that cannot be used, with types and as the bindings take them. */
suspend fun wrongOptions(options: ParticipantOptions) {
    val noNumber = options.copy(privacy = PrivacyPolicy(maxEpsilon = Double.NaN))
    expect<TributaryException.Configuration>("`privacy.max_epsilon` cannot be used: NaN") { Participant.start(noNumber) }
    expect<TributaryException.Configuration>("`privacy.max_epsilon` cannot be used: NaN") { Machine.open(noNumber) }
    expect<TributaryException.Configuration>("-1") { Participant.start(options.copy(maxModelBytes = -1)) }
    val nobody = Callbacks()
    expect<TributaryException.Configuration>("missing field `server`") { org.tributary.ffi.Participant.start("{}", nobody) }
    expect<TributaryException.Configuration>("unknown field `cohort`") { org.tributary.ffi.Participant.start("""{"cohort": 3}""", nobody) }
}

/** Enrols, and leaves its journal. */
suspend fun leaveJournal(options: ParticipantOptions): Unit = Participant.start(options).use { me -> while (me.id() == null) delay(10) }

/** Whoever opens the journal is refused with these words. */
suspend fun damaged(options: ParticipantOptions, words: String, keys: KeyStore? = null) {
    expect<TributaryException.Journal>(words) { Participant.start(options, keyStore = keys) }
    expect<TributaryException.Journal>(words) { Machine.open(options, keys) }
    expect<TributaryException.Journal>(words) { Model.load(options, "absent", keys) }
}

/** It has its journal until its input ends. */
suspend fun holdJournal(options: ParticipantOptions): Unit = Participant.start(options).use {
    println("started")
    while (System.`in`.read() >= 0) continue
}

/** The key store of another device has another key, and a new one has none: the journal is not touched. */
suspend fun anotherDevice(options: ParticipantOptions, keys: MemoryKeys) {
    val saves = keys.saves.get()
    val key = keys.secrets.getValue("journal-key")
    keys.secrets["journal-key"] = key.copyOf().also { it[5] = (it[5].toInt() xor 1).toByte() }
    damaged(options, "does not open", keys)
    keys.secrets["journal-key"] = key
    check(keys.saves.get() == saves) { "it was written to" }
    damaged(options, "key store has no key", MemoryKeys())
}

/** What it sends when it enrols is more than the byte a day that its options allow: then it rests, whatever the device is like. */
suspend fun capped(options: ParticipantOptions): Unit = Participant.start(options).use { me ->
    while (me.heldUp() == null) delay(10)
    check(me.heldUp()?.condition == "data_cap") { "held up by ${me.heldUp()}" }
    check(me.dataUse().sentToday > 0UL) { "sent: ${me.dataUse()}" }
}

/**
 * What a careless app in Kotlin does: `Misuse OPTIONS.json OTHER.json | journal | damaged WORDS | holds | capped`, of a participant of a task
 * with a cohort of one and three rounds, whose tensors are w of shape [2, 3] and b of shape [2].
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = readOptions(arguments[0])
    if (arguments[1] == "journal") return@runBlocking leaveJournal(options)
    if (arguments[1] == "damaged") return@runBlocking damaged(options, arguments[2])
    if (arguments[1] == "holds") return@runBlocking holdJournal(options)
    if (arguments[1] == "capped") return@runBlocking capped(options)
    wrongOptions(options)
    val keys = MemoryKeys().apply { isLocked = true }
    expect<TributaryException.Journal>("the screen is locked") { Participant.start(options, keyStore = keys) }
    keys.isLocked = false

    val told = AtomicInteger()
    val asked = AtomicInteger()
    val isKnown = AtomicBoolean()
    val refused = AtomicReference<Throwable>()
    val started = AtomicReference<Participant>()
    val conditions = object : DeviceConditions {
        // At first there is no answer at all: nothing is known then.
        override fun state(): DeviceState {
            asked.incrementAndGet()
            if (!isKnown.get()) throw RuntimeException("no battery")
            return DeviceState(charging = true, unmetered = true, idle = true, thermal = Thermal.NOMINAL)
        }
    }
    val onEvent = { _: Event ->
        told.incrementAndGet()
        started.get()?.let { refused.compareAndSet(null, runCatching { it.close() }.exceptionOrNull()) }
        throw IllegalStateException("an app's own mistake")
    }
    val me = Participant.start(options, conditions, keys, onEvent = onEvent)
    started.set(me)
    expect<TributaryException.Journal>("in use") { Participant.start(options, keyStore = keys) }
    check(me.model("careless") == null && me.models().isEmpty())
    while (me.heldUp() == null) delay(10)
    check(me.heldUp()?.condition == "charging") { "held up by ${me.heldUp()}" }
    isKnown.set(true)
    me.conditionsChanged()
    wrongAnswers(me.jobs().first())
    check(me.id()?.length == 36)

    // Callers that give up, also in the very moment in which the job comes, do not lose it: the next one gets it.
    var found: Job? = null
    while (found == null) {
        found = try {
            withTimeout(5.milliseconds) { checkNotNull(me.next()) }
        } catch (_: TimeoutCancellationException) {
            null
        }
    }
    val job = checkNotNull(found)
    check(job.round == 2)
    check(me.models() == listOf("careless")) { "models of ${me.models()}" }
    check(me.model("careless")?.version == 1) { "version ${me.model("careless")?.version}" }
    check(me.dataUse().sent > 500UL) { "sent: ${me.dataUse()}" }
    check(me.refusals().isEmpty()) { "refused: ${me.refusals()}" }
    me.pause()
    while (!job.isOverdue) delay(10)
    check(!job.finish(job.parameters(), 1)) { "an overdue job was handed in" }
    expect<TributaryException.Answered>("answered before") { job.fail("it came too late") }
    // A loop outlives it: the next attempt at its round comes, and the last round.
    me.resume()
    val counted = mutableListOf<Int>()
    me.jobs().collect { next ->
        // Any thread may answer.
        inThread { if (next.finish(next.parameters(), 1)) counted += next.round }
    }
    check(counted == listOf(2, 3)) { "counted in rounds $counted" }
    check(me.close(10.seconds)) { "it did not end in time" }
    me.close()
    expect<TributaryException.Closed>("closed") { me.pause() }
    expect<TributaryException.Closed>("closed") { me.next() }
    expect<TributaryException.Closed>("closed") { me.model("careless") }
    expect<TributaryException.Closed>("closed") { me.close(1.seconds) }
    check(keys.secrets.keys == setOf("journal-key", "journal-generation") && told.get() > 3)
    // No callback comes any more, whatever else goes on.
    val last = listOf(told.get(), asked.get(), keys.saves.get())
    leaveJournal(readOptions(arguments[1]))
    check(listOf(told.get(), asked.get(), keys.saves.get()) == last) { "called after it was closed" }
    check(refused.get() is TributaryException.InCallback) { "in a callback: ${refused.get()}" }
    anotherDevice(options, keys)
    println("misuse in Kotlin: every call said what it must")
}
