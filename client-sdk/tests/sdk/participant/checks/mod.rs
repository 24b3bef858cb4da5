//! Limits that an app sets.

mod size;
