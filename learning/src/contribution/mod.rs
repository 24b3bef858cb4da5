//! How an update enters the sum where "examples times delta" is not what an algorithm asks for.
//!
//! Each rule here is two halves around the one road: a participant changes its [`Update`](crate::Update) before the codec
//! sees it, and the coordinator, where it has to, changes the mean that the codec decoded. In between is the same sum of
//! integers, so each works under secure aggregation as it is, and the coordinator learns nothing but sums.
//!
//! Those for fairness, unequal steps and control variates do not fit a privacy mechanism (`privacy::private_codec`): there the
//! denominator of the mean is fixed in advance and metrics do not travel, while q-FFL and FedNova need a measured one, and
//! SCAFFOLD would add up the noise of all rounds. The age of an update only shortens it.

pub mod fed_nova;
pub mod q_ffl;
pub mod scaffold;
pub mod staleness;

pub use fed_nova::{FedNova, FedNovaError};
pub use q_ffl::{Fairness, FairnessError, QFfl};
pub use scaffold::{Controls, Scaffold, ScaffoldError};
