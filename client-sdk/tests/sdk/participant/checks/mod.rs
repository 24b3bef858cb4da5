//! Limits that an app sets.

mod graphs;
mod size;
