//! Enrolled participants and the certificates by which they are known.

use std::collections::BTreeMap;

use async_trait::async_trait;
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::Result;

/// A participant as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantRow {
    /// The row's key.
    pub id: ParticipantId,
    /// Given by its enrolment token; unique.
    pub name: String,
    /// Given by its enrolment token.
    pub labels: BTreeMap<String, String>,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// SHA-256 of the newest certificate (DER) issued to it.
    pub certificate_fingerprint: Digest,
    /// The certificate that it showed to get that one, for a renewal whose answer was lost. None from the first use of the
    /// newest on: then nobody needs it but a thief.
    pub previous_fingerprint: Option<Digest>,
    /// When the newest certificate expires.
    pub certificate_expires_at: Timestamp,
    /// When an operator revoked it, if one did.
    pub revoked_at: Option<Timestamp>,
    /// When it last asked for anything, as far as [`Participants::touch`] was told.
    pub last_seen_at: Timestamp,
}

/// Reads and changes participants.
#[async_trait]
pub trait Participants {
    /// Stores a new participant.
    ///
    /// # Errors
    /// `Conflict` if the id, the name or the certificate is known already.
    async fn insert_participant(&mut self, participant: &ParticipantRow) -> Result<()>;

    /// The participant with this id.
    async fn participant(&mut self, id: ParticipantId) -> Result<Option<ParticipantRow>>;

    /// The participant of this name.
    async fn participant_by_name(&mut self, name: &str) -> Result<Option<ParticipantRow>>;

    /// The participant whose newest or previous certificate this is, revoked or not.
    async fn participant_by_fingerprint(&mut self, fingerprint: Digest) -> Result<Option<ParticipantRow>>;

    /// Participants in the order of their ids.
    async fn participants(&mut self, cursor: Option<ParticipantId>, limit: u32) -> Result<Vec<ParticipantRow>>;

    /// Makes a certificate the newest, and the one that was shown to get it the previous one: that is the one which its
    /// holder is known to have, however many answers were lost. False if there is no such participant, it is revoked, or
    /// what was shown is neither its newest certificate nor the previous one.
    ///
    /// # Errors
    /// `Conflict` if the certificate is another participant's.
    async fn set_certificate(
        &mut self,
        id: ParticipantId,
        shown: Digest,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Makes a certificate the only one, for a participant that enrolled anew. False if there is no such participant, or it is
    /// revoked.
    ///
    /// # Errors
    /// `Conflict` if the certificate is another participant's.
    async fn replace_certificate(
        &mut self,
        id: ParticipantId,
        fingerprint: Digest,
        expires_at: Timestamp,
    ) -> Result<bool>;

    /// Ends the previous certificate, now that `newest` was used. False if there is no such participant, that is not its newest
    /// certificate, or there is no previous one.
    async fn end_previous_certificate(&mut self, id: ParticipantId, newest: Digest) -> Result<bool>;

    /// Revokes. False if there is no such participant, or it is revoked already.
    async fn revoke_participant(&mut self, id: ParticipantId, at: Timestamp) -> Result<bool>;

    /// Records that these were seen at `at`; ids that do not exist are passed over.
    async fn touch(&mut self, ids: &[ParticipantId], at: Timestamp) -> Result<()>;

    /// Assignments it has had, in all tasks.
    async fn participations(&mut self, id: ParticipantId) -> Result<u32>;
}
