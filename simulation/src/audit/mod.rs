//! An audit of a private task by made-up participants of a copy.
//!
//! The copy has the task's mechanism, noise multiplier, clip and secure aggregation, and a vector of zeros of the model's length. All
//! participants are in every round, so amplification by sampling is not audited. Two tests:
//!
//! * Participants send updates of zero in two rounds: the published models then differ by noise alone, whose variance must be at least
//!   the ledger's, and which must not repeat.
//! * Each participant is a canary: a fair coin decides whether it moves a coordinate of its own, far beyond the clip, or sends zero. The
//!   coins are guessed from the published model. Better guesses than the ledger's epsilon allows disprove it, whatever the cause.

mod canary;
mod federation;
mod plan;
mod report;
mod run;

pub use plan::{AuditDesign, PrivacyAudit};
pub use report::{AuditReport, AuditStage, Finding, NoiseCorrelation, NoiseRatio};
