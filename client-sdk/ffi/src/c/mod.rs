//! The C ABI.
//!
//! - **Handles are numbers**, not pointers: a closed, answered, freed or invented handle is missing from every table, and the call
//!   returns `Closed`. Any thread may use any handle.
//! - **Panics stop here**: every function runs in [`guard()`](guard::guard), which turns a panic into `Defect`.
//! - **Errors** are a code, and a text, which `tributary_last_error` returns to the same thread.
//!
//! All pointers from callers are checked in [`arguments`], the only file besides [`callbacks`] with `unsafe` blocks. The caller
//! promises that a pointer other than NULL points to memory as the header requires. The module is private, so only a C program can
//! call these functions and make that promise.
#![expect(unreachable_pub, reason = "cbindgen writes what is `pub` into the header")]

mod analysis;
mod arguments;
mod callbacks;
mod code;
mod columns;
mod constraints;
mod exchange;
mod guard;
mod handles;
mod job;
mod machine;
mod model;
mod participant;
mod tensors;
#[cfg(test)]
mod tests;
