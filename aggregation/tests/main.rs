//! Tests of the public interface without a device of their own.

mod bad_input;
mod ptx;
mod robust;
