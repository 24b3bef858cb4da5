//! Enrolled participants and their certificates.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::Result;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantRow {
    pub id: ParticipantId,
    /// From its enrolment; unique.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub enrolled_at: Timestamp,
    /// SHA-256 of its newest certificate (DER).
    pub certificate_fingerprint: Digest,
    /// The certificate with which it requested the newest one, for a renewal whose answer was lost. `None` after the
    /// first use of the newest: only a thief would need it then.
    pub previous_fingerprint: Option<Digest>,
    /// When the newest certificate expires.
    pub certificate_expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// Time of its last request, as reported to [`Participants::touch`].
    pub last_seen_at: Timestamp,
}

/// Reads and changes participants.
#[async_trait]
pub trait Participants {
    /// Stores a new participant.
    ///
    /// # Errors
    /// `Conflict` if the id, the name or the certificate already exists.
    async fn insert_participant(&mut self, participant: &ParticipantRow) -> Result<()>;

    async fn participant(&mut self, id: ParticipantId) -> Result<Option<ParticipantRow>>;

    async fn participant_by_name(&mut self, name: &str) -> Result<Option<ParticipantRow>>;

    /// The participant whose newest or previous certificate this is, revoked or not.
    async fn participant_by_fingerprint(&mut self, fingerprint: Digest) -> Result<Option<ParticipantRow>>;

    /// Participants in the order of their ids.
    async fn participants(&mut self, cursor: Option<ParticipantId>, limit: u32) -> Result<Vec<ParticipantRow>>;

    /// Makes a certificate the newest, and the one shown to request it the previous one, which its holder is known to
    /// have whatever answers were lost. False if there is no such participant, it is revoked, or the certificate shown
    /// is neither its newest nor its previous one.
    ///
    /// # Errors
    /// `Conflict` if the certificate belongs to another participant.
    async fn set_certificate(
        &mut self,
        id: ParticipantId,
        shown: Digest,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Makes a certificate the only one, for a participant that enrolled again. False if there is no such participant,
    /// or if it is revoked.
    ///
    /// # Errors
    /// `Conflict` if the certificate belongs to another participant.
    async fn replace_certificate(
        &mut self,
        id: ParticipantId,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Ends the previous certificate after the first use of `newest`. False if there is no such participant, `newest`
    /// is not its newest certificate, or there is no previous one.
    async fn end_previous_certificate(&mut self, id: ParticipantId, newest: Digest) -> Result<bool>;

    /// Revokes a participant. False if there is no such participant, or if it is already revoked.
    async fn revoke_participant(&mut self, id: ParticipantId, at: Timestamp) -> Result<bool>;

    /// Records that these were seen at `at`; unknown ids are ignored.
    async fn touch(&mut self, ids: &[ParticipantId], at: Timestamp) -> Result<()>;

    /// Number of its assignments, in all tasks.
    async fn participations(&mut self, id: ParticipantId) -> Result<u32>;
}
