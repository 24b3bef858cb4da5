//! All tests of the crate in one executable.

mod schedule;
mod task;
