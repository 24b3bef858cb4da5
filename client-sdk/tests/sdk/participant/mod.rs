//! The participant's state machine, part by part.

mod asked;
mod renew;
mod size;
mod snapshot;
mod train_ahead;
