//! Privacy ledgers, sealed secrets, release keys, and rounding of metrics.

pub(crate) mod ledger;
pub(crate) mod ledger_end;
pub(crate) mod release_keys;
pub(crate) mod rounding;
pub mod seal;
pub(crate) mod secret_store;
