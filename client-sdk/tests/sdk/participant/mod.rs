//! The participant's state machine, part by part.

mod checks;
mod drivers;
mod journal;
mod states;
