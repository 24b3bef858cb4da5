//! The C ABI.
//!
//! - **Handles are numbers**, not pointers: one that was closed, answered, freed or made up is found in no table, and the call
//!   returns `Closed`. Any thread may use any handle.
//! - **Panics stop here**: every function runs in [`guard()`](guard::guard), which turns one into `Defect`.
//! - **Errors** are a code, and a text that `tributary_last_error` gives the same thread.
//!
//! Every pointer that a caller passes is looked at in [`arguments`], the only file besides [`callbacks`] with `unsafe` blocks; that what
//! is not NULL points to what the header asks for is the caller's promise. No Rust can call these functions: the module is
//! private, so that only a C program makes that promise.
#![expect(unreachable_pub, reason = "cbindgen writes what is `pub` into the header")]

mod analysis;
mod arguments;
mod callbacks;
mod code;
mod exchange;
mod guard;
mod handles;
mod job;
mod machine;
mod manner;
mod model;
mod participant;
mod tensors;
#[cfg(test)]
mod tests;
