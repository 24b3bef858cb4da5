//! Why a participant cannot be built.

use wire::certificate::BadChain;

use super::error::ParticipantError;
use crate::transport::TransportError;

/// Reasons a participant cannot be built.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A required setting is missing.
    #[error("`{0}` is not set")]
    Missing(&'static str),
    /// A name that a coordinator rejects.
    #[error("{what} {value:?} is not 1 to 64 letters, digits, '-', '_' or '.', or is of dots alone")]
    BadName { what: &'static str, value: String },
    /// A label that a coordinator rejects.
    #[error("label {label:?}: name and value must be 1 to 128 bytes each")]
    BadLabel { label: String },
    /// A policy that all sessions would violate.
    #[error("min_tolerated_corrupt is {0}: a fraction of the cohort between 0 and 0.5 can be tolerated")]
    BadPolicy(f64),
    /// The authorities of members cannot be read.
    #[error(
        "the authority of members cannot be used: {0}; name the certificates that sign members' own in `members_ca_pem`"
    )]
    BadMembers(#[from] BadChain),
    /// Privacy limits out of their range.
    #[error("a privacy policy needs epsilons above 0 and finite, and deltas above 0 and below 1")]
    BadPrivacyPolicy,
    /// The server's address or the CA cannot be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The journal cannot be read, or certificate and token are both missing.
    #[error(transparent)]
    Participant(#[from] ParticipantError),
    /// A [`Runner`](crate::runner::Runner) could not create its thread, or the thread's runtime.
    #[error("no thread can be had to run the participant on: {0}")]
    Thread(String),
    /// The journal's key and generation are in a key store, and the options name files for them.
    #[error(
        "the journal's key and generation are in the device's key store; leave out `journal_key` and `journal_generation`"
    )]
    TwoKeys,
    /// The operating system's random source failed.
    #[error("the system gives no randomness")]
    Randomness,
}
