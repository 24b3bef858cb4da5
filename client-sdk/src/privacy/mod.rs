//! Differential privacy on the participant's side: the promise, the spending, and refusals.
//!
//! The coordinator states the noise. A participant derives the rest itself: the quantization, its own share of the noise, and the cost of
//! taking part. It charges the cost to its own ledger *before* it writes or sends an update, and holds the task to its first promise.
//! Sampling does not amplify here: a participant knows its own participation. It cannot verify the noise added by a coordinator, or the
//! number of updates in a sum without secure aggregation: for those mechanisms the figures hold only if the coordinator is honest.

mod account;
mod policy;
mod promise;

pub(crate) use account::{Account, AccountRecord, PrivacyRefusal};
pub use policy::{Lifetime, LifetimeSpent, PrivacyPolicy, PrivacySpent};
pub(crate) use promise::{Participations, Promise};
pub use recipe::codec::TermsError;
pub use recipe::device::PrivateRound;
