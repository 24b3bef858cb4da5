//! Privacy: what leaves the device, and the participant's own ledger.

mod account;
mod round;
