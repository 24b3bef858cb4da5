//! Differential privacy as a participant sees it: what it is promised, what it has spent, and when it refuses.
//!
//! A coordinator says what noise there is; what a participant derives from that by itself, it need not believe: the grid, its
//! own share of the noise, and what taking part costs. The cost is charged to a ledger of its own *before* an update is kept
//! or sent, and what was promised first holds, whatever is said later. Sampling counts for nothing here: a participant knows
//! that it took part. It cannot see the noise that a coordinator adds, nor how many others were in a sum without secure
//! aggregation: for those mechanisms the figures are what the coordinator owes.

mod account;
mod policy;
mod promise;

pub(crate) use account::{Account, AccountRecord, PrivacyRefusal};
pub use policy::{Lifetime, LifetimeSpent, PrivacyPolicy, PrivacySpent};
pub(crate) use promise::{Participations, Promise};
pub use recipe::codec::TermsError;
pub use recipe::device::PrivateRound;
