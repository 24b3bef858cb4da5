package org.tributary.example

import kotlin.math.exp
import kotlin.random.Random

/** Softmax regression on a device's own examples, like `examples/c/train.c`: three classes, eight features. */
class Blobs(seed: Int, val size: Int = 200) {
    private val random = Random(seed)
    private val labels = IntArray(size) { random.nextInt(CLASSES) }
    private val features = Array(size) { example ->
        FloatArray(FEATURES) { feature ->
            val noise = random.nextFloat() + random.nextFloat() + random.nextFloat() - 1.5f
            noise + if (feature % CLASSES == labels[example]) 0.8f else 0f
        }
    }

    /** The fraction of its examples that the model gets right. */
    fun accuracy(parameters: FloatArray): Double =
        (0 until size).count { example ->
            val all = probabilities(parameters, features[example])
            all.indices.maxBy { all[it] } == labels[example]
        }.toDouble() / size

    /** One pass of stochastic gradient descent. */
    fun trainEpoch(parameters: FloatArray, learningRate: Double) {
        for (example in 0 until size) {
            val all = probabilities(parameters, features[example])
            for (kind in 0 until CLASSES) {
                val step = (learningRate * (all[kind] - if (kind == labels[example]) 1 else 0)).toFloat()
                for (feature in 0 until FEATURES) parameters[kind * FEATURES + feature] -= step * features[example][feature]
                parameters[CLASSES * FEATURES + kind] -= step
            }
        }
    }

    private fun probabilities(parameters: FloatArray, example: FloatArray): DoubleArray {
        val scores = DoubleArray(CLASSES) { kind ->
            (0 until FEATURES).sumOf { (parameters[kind * FEATURES + it] * example[it]).toDouble() } + parameters[CLASSES * FEATURES + kind]
        }
        val highest = scores.max()
        val all = DoubleArray(CLASSES) { exp(scores[it] - highest) }
        return DoubleArray(CLASSES) { all[it] / all.sum() }
    }

    private companion object {
        const val CLASSES = 3
        const val FEATURES = 8
    }
}
