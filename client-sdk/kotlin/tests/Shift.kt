package org.tributary.tests

import kotlinx.coroutines.runBlocking
import kotlinx.serialization.json.Json
import kotlinx.serialization.json.jsonObject
import org.tributary.Participant
import java.io.File

/**
 * Adds a number to every parameter: the participant in Kotlin of `.ci/sdks.sh`, like `client-sdk/ffi/tests/c/shift.c`.
 *
 *     Shift OPTIONS.json NUMBER
 */
fun main(arguments: Array<String>): Unit = runBlocking {
    val options = Json.parseToJsonElement(File(arguments[0]).readText()).jsonObject
    val number = arguments[1].toFloat()
    Participant.start(options).use { me ->
        me.jobs().collect { job ->
            val parameters = job.parameters()
            for (index in parameters.indices) parameters[index] += number
            job.finish(parameters, examples = 10)
            System.err.println("kotlin: handed in")
        }
        println(me.privacySpent())
    }
}
