//! The attempt and session that messages refer to, and limits on lengths.

use tls_codec::{TlsByteVecU8, TlsDeserializeBytes, TlsSerialize, TlsSize};

use crate::codec::{DecodeError, bound};
use crate::crypto::aead::SEALED_BYTES;
use crate::crypto::transcript::Digest;
use crate::participants::MAX_COHORT;

/// Longest client id, in bytes.
pub const MAX_CLIENT_ID_BYTES: usize = 64;
/// Longest task id, in bytes.
pub const MAX_TASK_ID_BYTES: usize = 64;
/// Longest certificate, in bytes.
pub const MAX_CERTIFICATE_BYTES: usize = 2048;

/// [`MAX_COHORT`] as a length.
pub(super) const COHORT: usize = MAX_COHORT as usize;
/// The longest encoding of a set of participants.
pub(super) const SET_BYTES: usize = 3 + COHORT / 8;
/// Header, sid, sender and signature of a signed message of a session.
pub(super) const FRAME_BYTES: usize = 2 + 32 + 2 + 64;

/// Session id, which every key and signature of the session is bound to.
pub type Sid = Digest;
/// Two shares, sealed by a dealer for a holder.
pub type SealedShares = [u8; SEALED_BYTES];

/// An attempt at a round of a task.
#[derive(Debug, Clone, PartialEq, Eq, TlsSize, TlsSerialize, TlsDeserializeBytes)]
pub struct RoundId {
    /// The task, up to [`MAX_TASK_ID_BYTES`].
    pub task_id: TlsByteVecU8,
    /// The round's number within the task.
    pub round: u64,
    /// 0 for the first attempt at the round. A retry has fresh keys; see
    /// [`Client::retry`](crate::client::Client::retry).
    pub attempt: u32,
}

impl RoundId {
    #[must_use]
    pub fn new(task_id: &[u8], round: u64, attempt: u32) -> Self {
        Self { task_id: TlsByteVecU8::from_slice(task_id), round, attempt }
    }

    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        bound((1..=MAX_TASK_ID_BYTES).contains(&self.task_id.len()), "task_id")
    }
}
