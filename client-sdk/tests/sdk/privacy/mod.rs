//! Privacy: the participant's own ledger.

mod account;
mod promise;
