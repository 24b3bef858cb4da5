package org.tributary.example

import java.nio.ByteBuffer

/** What a training has done when it pauses, as the bytes of its checkpoint: so many epochs, which made these parameters. */
class State(val epochs: Int, val parameters: FloatArray) {
    fun toBytes(): ByteArray {
        val bytes = ByteBuffer.allocate(Int.SIZE_BYTES + parameters.size * Float.SIZE_BYTES).putInt(epochs)
        bytes.asFloatBuffer().put(parameters)
        return bytes.array()
    }

    companion object {
        fun of(checkpoint: ByteArray): State {
            val bytes = ByteBuffer.wrap(checkpoint)
            val epochs = bytes.getInt()
            val floats = bytes.asFloatBuffer()
            return State(epochs, FloatArray(floats.remaining()).also { floats.get(it) })
        }
    }
}
