//! Draws of cohorts.

mod select;
