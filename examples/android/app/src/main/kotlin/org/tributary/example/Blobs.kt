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

    /** One pass over the data: a step of gradient descent after each [batchSize] examples. */
    fun trainEpoch(parameters: FloatArray, batchSize: Int, learningRate: Double) {
        for (begin in 0 until size step minOf(batchSize, size)) descend(parameters, begin until minOf(begin + batchSize, size), learningRate)
    }

    /** A step by the mean gradient of the examples in [batch]. */
    private fun descend(parameters: FloatArray, batch: IntRange, learningRate: Double) {
        val gradient = DoubleArray(parameters.size)
        for (example in batch) {
            val all = probabilities(parameters, features[example])
            for (kind in 0 until CLASSES) {
                val error = all[kind] - if (kind == labels[example]) 1 else 0
                for (feature in 0 until FEATURES) gradient[kind * FEATURES + feature] += error * features[example][feature]
                gradient[CLASSES * FEATURES + kind] += error
            }
        }
        val rate = learningRate / batch.count()
        for (index in parameters.indices) parameters[index] -= (rate * gradient[index]).toFloat()
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
