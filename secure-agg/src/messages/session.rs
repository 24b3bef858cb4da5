//! The attempt and session of messages, and limits on lengths.

use tls_codec::{DeserializeBytes, Error, Serialize, Size, TlsByteVecU8, TlsDeserializeBytes, TlsSerialize, TlsSize};

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

/// A participant's id, and its stated fixed batch ([`crate::batch`]).
///
/// Encoded as a length byte and the id. If a batch is stated, the length's top bit is set and the batch's 32 bytes follow the id, so a
/// message without a batch is encoded as in versions without batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientId {
    id: Vec<u8>,
    batch: Option<Digest>,
}

/// Top bit of the length: a batch follows the id.
const HAS_BATCH: u8 = 0x80;

impl ClientId {
    /// An id of 1 to [`MAX_CLIENT_ID_BYTES`] bytes.
    #[must_use]
    pub const fn new(id: Vec<u8>, batch: Option<Digest>) -> Self {
        Self { id, batch }
    }

    /// The id's bytes, without the length byte and the batch.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.id
    }

    /// Id of the participant's stated batch; `None` without a batch.
    #[must_use]
    pub const fn batch(&self) -> Option<&Digest> {
        self.batch.as_ref()
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        bound((1..=MAX_CLIENT_ID_BYTES).contains(&self.id.len()), "client_id")
    }
}

impl From<Vec<u8>> for ClientId {
    fn from(id: Vec<u8>) -> Self {
        Self { id, batch: None }
    }
}

impl Size for ClientId {
    fn tls_serialized_len(&self) -> usize {
        1 + self.id.len() + self.batch.map_or(0, |batch| batch.len())
    }
}

impl Serialize for ClientId {
    fn tls_serialize<W: std::io::Write>(&self, writer: &mut W) -> Result<usize, Error> {
        let length = u8::try_from(self.id.len()).ok().filter(|length| length & HAS_BATCH == 0);
        let length = length.ok_or(Error::InvalidVectorLength)?;
        writer.write_all(&[length | if self.batch.is_some() { HAS_BATCH } else { 0 }])?;
        writer.write_all(&self.id)?;
        writer.write_all(self.batch.as_ref().map_or(&[][..], |batch| batch))?;
        Ok(self.tls_serialized_len())
    }
}

impl DeserializeBytes for ClientId {
    fn tls_deserialize_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (length, rest) = bytes.split_first().ok_or(Error::EndOfStream)?;
        let (id, rest) = rest.split_at_checked(usize::from(length & !HAS_BATCH)).ok_or(Error::EndOfStream)?;
        let id = id.to_vec();
        if length & HAS_BATCH == 0 {
            return Ok((Self { id, batch: None }, rest));
        }
        let (batch, rest) = rest.split_first_chunk().ok_or(Error::EndOfStream)?;
        Ok((Self { id, batch: Some(*batch) }, rest))
    }
}

/// Session id, to which every key and signature of the session is bound.
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
