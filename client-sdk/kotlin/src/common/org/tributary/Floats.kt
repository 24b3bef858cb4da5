package org.tributary

import java.nio.ByteBuffer
import java.nio.ByteOrder

/** Floats as the library takes them: little-endian. */
internal fun bytes(floats: FloatArray): ByteArray {
    val bytes = ByteBuffer.allocate(floats.size * Float.SIZE_BYTES).order(ByteOrder.LITTLE_ENDIAN)
    bytes.asFloatBuffer().put(floats)
    return bytes.array()
}

/** Numbers of 64 bits as the library takes them: little-endian. */
internal fun bytes(numbers: DoubleArray): ByteArray {
    val bytes = ByteBuffer.allocate(numbers.size * Double.SIZE_BYTES).order(ByteOrder.LITTLE_ENDIAN)
    bytes.asDoubleBuffer().put(numbers)
    return bytes.array()
}

/** Integers of 64 bits as the library takes them: little-endian. */
internal fun bytes(integers: LongArray): ByteArray {
    val bytes = ByteBuffer.allocate(integers.size * Long.SIZE_BYTES).order(ByteOrder.LITTLE_ENDIAN)
    bytes.asLongBuffer().put(integers)
    return bytes.array()
}

/** Truth values as the library takes them: a byte each. */
internal fun bytes(truths: BooleanArray): ByteArray = ByteArray(truths.size) { if (truths[it]) 1 else 0 }

/** Floats as the library gives them. */
internal fun floats(bytes: ByteArray): FloatArray {
    val floats = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer()
    return FloatArray(floats.remaining()).also { floats.get(it) }
}
