package org.tributary.tests

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.runBlocking
import org.tributary.Participant
import org.tributary.ParticipantOptions
import org.tributary.ffi.CallbackException
import org.tributary.ffi.DeviceConditions
import org.tributary.ffi.DeviceState
import org.tributary.ffi.Exchange
import org.tributary.ffi.HttpClient
import org.tributary.ffi.HttpRequest
import org.tributary.ffi.KeyStore
import org.tributary.ffi.TributaryException
import java.util.concurrent.CountDownLatch
import java.util.concurrent.atomic.AtomicBoolean
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds

/** A callback that does not return before it is let go. */
private class Gate {
    private val entered = CountDownLatch(1)
    private val opened = CountDownLatch(1)

    fun pass() {
        entered.countDown()
        opened.await()
    }

    fun awaitEntered(): Unit = entered.await()

    fun open(): Unit = opened.countDown()
}

/** [keys], where [broken] is called before a secret is saved: but on the thread that opened the journal, which loads its key first. */
private class LaterBroken(private val keys: MemoryKeys, private val broken: () -> Unit) : KeyStore {
    @Volatile
    private var opener: Thread? = null

    override fun load(name: String): ByteArray? {
        if (opener == null) opener = Thread.currentThread()
        return keys.load(name)
    }

    override fun save(name: String, secret: ByteArray) {
        if (Thread.currentThread() !== opener) broken()
        keys.save(name, secret)
    }
}

private fun full(): Nothing = throw CallbackException.Failed("it is full")

/** Enrols if it has not yet. */
private suspend fun works(options: ParticipantOptions, keys: KeyStore?): Unit =
    Participant.start(options, keyStore = keys).use { me -> while (me.id() == null) delay(10) }

/** Once the key store fails the journal takes nothing more; a participant that is started when it works again goes on. */
private suspend fun failsAfterTheStart(options: ParticipantOptions) {
    val keys = MemoryKeys()
    val me = Participant.start(options, keyStore = LaterBroken(keys) { full() })
    expect<TributaryException.Journal>("it is full") { me.next() }
    expect<TributaryException.Journal>("it is full") { me.jobs().first() }
    check(me.close(10.seconds)) { "it did not end in time" }
    works(options, keys)
}

private suspend fun failsInARound(options: ParticipantOptions) {
    val keys = MemoryKeys()
    val isFull = AtomicBoolean()
    val store = object : KeyStore {
        override fun load(name: String): ByteArray? = keys.load(name)

        override fun save(name: String, secret: ByteArray) {
            if (isFull.get()) full()
            keys.save(name, secret)
        }
    }
    Participant.start(options, keyStore = store).use { me ->
        val job = checkNotNull(me.next())
        isFull.set(true)
        // It is called by the thread that saves, which is this one.
        expect<TributaryException.Journal>("it is full") { job.saveCheckpoint(byteArrayOf(1)) }
        // The job takes its answer, and nothing of that is sent, since nothing can be kept.
        check(job.finish(job.parameters(), 1))
        expect<TributaryException.Journal>("open the journal again") { me.next() }
    }
    isFull.set(false)
    val rounds = mutableListOf<Int>()
    Participant.start(options, keyStore = store).use { me ->
        me.jobs().collect { job -> if (job.finish(job.parameters(), 1)) rounds += job.round }
    }
    check(rounds == listOf(1)) { "rounds $rounds" }
    withdraws(options, keys)
}

/** It is out for good, and may ask again. */
private suspend fun withdraws(options: ParticipantOptions, keys: KeyStore) {
    repeat(2) {
        val signed = Participant.withdraw(options, keyStore = keys)
        val statement = signed.statement["tasks"].toString()
        check(signed.signature.length == 128 && "\"name\":\"keyed\"" in statement) { statement }
    }
    Participant.start(options, keyStore = keys).use { me -> expect<TributaryException.Enrollment>("was revoked") { me.next() } }
}

/** Whoever closes a participant whose callback does not return is not held up; its journal is in use until it returns after all. */
private suspend fun blocks(
    options: ParticipantOptions,
    keys: KeyStore? = null,
    start: suspend (Gate) -> Participant,
): Unit = coroutineScope {
    val gate = Gate()
    val me = start(gate)
    val waiting = async(Dispatchers.Default) { runCatching { me.next() } }
    gate.awaitEntered()
    check(!me.close(300.milliseconds)) { "it ended though a callback does not return" }
    expect<TributaryException.Closed>("closed") { me.pause() }
    val told = waiting.await().exceptionOrNull()
    check(told is TributaryException.Closed) { "who waited was told $told" }
    damaged(options, "in use", keys)
    gate.open()
    var again: Participant? = null
    while (again == null) {
        again = try {
            Participant.start(options, keyStore = keys)
        } catch (_: TributaryException.Journal) {
            delay(10)
            null
        }
    }
    checkNotNull(again).close()
}

/**
 * What an app's callbacks may do wrong once a participant has started: fail, or never return. Like `client-sdk/ffi/tests/c/keys.c`.
 *
 *     Keys ROUND.json FULL.json STUCK.json SLOW.json ASIDE.json
 *
 * ROUND.json is of a participant of a task with a cohort of one and one round, and seals each checkpoint at once; the others are of participants
 * of no task. None of them has started before.
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val (round, full, stuck, slow, aside) = arguments.map(::readOptions)
    failsInARound(round)
    failsAfterTheStart(full)

    val keys = MemoryKeys()
    blocks(stuck, keys) { gate -> Participant.start(stuck, keyStore = LaterBroken(keys) { gate.pass() }) }
    works(stuck, keys)

    // The call that starts it waits for its key, and nobody else does.
    val gate = Gate()
    val given = MemoryKeys()
    val asked = object : KeyStore by given {
        override fun load(name: String): ByteArray? {
            gate.pass()
            return given.load(name)
        }
    }
    val starting = async(Dispatchers.Default) { works(slow, asked) }
    gate.awaitEntered()
    works(aside, null)
    gate.open()
    starting.await()

    blocks(aside) { told -> Participant.start(aside, onEvent = { told.pass() }) }
    blocks(aside) { told ->
        val conditions = object : DeviceConditions {
            override fun state(): DeviceState {
                told.pass()
                return DeviceState()
            }
        }
        Participant.start(aside, conditions)
    }
    blocks(aside) { told ->
        val client = object : HttpClient {
            override fun begin(request: HttpRequest, exchange: Exchange) {
                told.pass()
                exchange.use { it.fail("it comes too late") }
            }

            override fun identify(certificatePem: String, keyPkcs8: ByteArray): Unit = keyPkcs8.fill(0)
        }
        Participant.start(aside, httpClient = client)
    }
    println("keys in Kotlin: callbacks that fail or do not return stop their own participant alone")
}
