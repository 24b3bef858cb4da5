//! Algorithms with contributions to the sum other than "examples times delta".
//!
//! Each rule has two halves: a participant changes its [`Update`](crate::Update) before encoding, and the coordinator, if necessary,
//! changes the decoded mean. In between is the usual sum of integers, so each rule works under secure aggregation and the coordinator
//! learns sums only.
//!
//! The rules for fairness, unequal steps and control variates cannot be combined with a privacy mechanism (`privacy::private_codec`): there
//! the denominator of the mean is fixed in advance and metrics are not sent, while q-FFL and FedNova need a measured denominator, and
//! SCAFFOLD would accumulate the noise of all rounds. Staleness can be combined: it only shortens an update.

pub mod fed_nova;
pub mod q_ffl;
pub mod scaffold;
pub mod staleness;

pub use fed_nova::{FedNova, FedNovaError};
pub use q_ffl::{Fairness, FairnessError, QFfl};
pub use scaffold::{Controls, Scaffold, ScaffoldError};
