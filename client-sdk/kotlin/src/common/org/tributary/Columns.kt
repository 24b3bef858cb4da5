package org.tributary

import org.tributary.ffi.ColumnElements
import org.tributary.ffi.GraphExamples
import org.tributary.ffi.GraphTargets

/** An input of a graph by its name in [Job.architecture], for all examples: their elements one example after the other, each row-major. */
public class Column private constructor(private val name: String, private val elements: ColumnElements) {
    /** For an input of floats. */
    public constructor(name: String, floats: FloatArray) : this(name, ColumnElements.Floats(bytes(floats)))

    /** For an input of integers, such as ids from 0 on. */
    public constructor(name: String, integers: LongArray) : this(name, ColumnElements.Integers(bytes(integers)))

    /** For an input of truth values, such as a mask. */
    public constructor(name: String, truths: BooleanArray) : this(name, ColumnElements.Truths(bytes(truths)))

    internal fun native() = org.tributary.ffi.Column(name, elements)
}

/**
 * Examples of a graph: [count] of them, with a column for each input, in any order, and targets. [length] is that of their sequences, 1 for a
 * graph without.
 */
public class Examples private constructor(
    private val columns: List<Column>,
    private val targets: GraphTargets,
    private val count: Int,
    private val length: Int,
) {
    /** For `cross_entropy` and `next_token`: a class for each example, or a token for each position. */
    public constructor(columns: List<Column>, classes: IntArray, count: Int, length: Int = 1) :
        this(columns, GraphTargets.Classes(classes.map { it.toUInt() }), count, length)

    /** For the other losses: a number for each output. */
    public constructor(columns: List<Column>, numbers: FloatArray, count: Int, length: Int = 1) :
        this(columns, GraphTargets.Numbers(bytes(numbers)), count, length)

    internal fun native() = GraphExamples(columns.map(Column::native), targets, whole(count), whole(length))
}

/** A number of examples or positions; a negative one is as wrong as 0. */
internal fun whole(number: Int): ULong = maxOf(number, 0).toULong()
