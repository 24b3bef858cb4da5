//! Differential privacy on the participant's side: what it was promised, what it has spent, and when it refuses.
//!
//! The coordinator states the noise; a participant derives the rest itself: the quantization, its own share of the
//! noise, and the cost of taking part. The cost is charged to its own ledger *before* an update is written or sent,
//! and the first promise holds whatever is stated later. Sampling does not amplify here: a participant knows that it
//! took part. It cannot verify the noise that a coordinator adds, nor the number of updates in a sum without secure
//! aggregation: for those mechanisms the figures hold only if the coordinator is honest.

mod account;
mod policy;
mod promise;

pub(crate) use account::{Account, AccountRecord, PrivacyRefusal};
pub use policy::{Lifetime, LifetimeSpent, PrivacyPolicy, PrivacySpent};
pub(crate) use promise::{Participations, Promise};
pub use recipe::codec::TermsError;
pub use recipe::device::PrivateRound;
