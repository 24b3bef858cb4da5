package org.tributary

import org.tributary.ffi.TributaryException

/**
 * Calls an object of the library. The bindings say of one that was closed that its state is illegal; here that has the type that the library
 * gives it.
 */
internal inline fun <N, T> N.unlessClosed(call: N.() -> T): T = try {
    call()
} catch (_: IllegalStateException) {
    throw TributaryException.Closed("this object was closed")
}
