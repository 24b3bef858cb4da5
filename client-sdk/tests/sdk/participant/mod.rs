//! The participant's state machine, part by part.

mod driven;
mod driver;
mod eligibility;
mod renew;
mod replaced;
mod size;
mod snapshot;
mod train_ahead;
