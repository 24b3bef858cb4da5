//! Enrolled participants and their certificates.

use std::collections::BTreeMap;

use federation::event::{EventKind, Fact, Subject};
use federation::id::{Digest, ParticipantId};
use federation::time::Timestamp;

use crate::driver::After;
use crate::error::Result;
use crate::transaction::Transaction;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParticipantRow {
    pub id: ParticipantId,
    /// From its enrolment; unique. Fixed, until it is revoked and [`Transaction::release_name`] gives it to another.
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
    /// Time of its last request, as reported to [`Transaction::touch`].
    pub last_seen_at: Timestamp,
}

/// Which certificates of a participant count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificates {
    pub participant: ParticipantId,
    /// See [`ParticipantRow::certificate_fingerprint`].
    pub newest: Digest,
    /// See [`ParticipantRow::previous_fingerprint`].
    pub previous: Option<Digest>,
    pub revoked_at: Option<Timestamp>,
}

/// Which participants to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParticipantFilter {
    /// Only those that carry all of these.
    pub labels: BTreeMap<String, String>,
    /// Only those that are revoked, or only those that are not.
    pub is_revoked: Option<bool>,
    /// Only those that enrolled then or later.
    pub since: Option<Timestamp>,
}

/// Whether a participant carries all the labels of an argument.
macro_rules! carries {
    ($labels:literal) => {
        concat!("{carries participant.labels ", $labels, "}")
    };
}

/// A page of participants, and filters.
macro_rules! listed {
    ($condition:literal) => {
        concat!(
            "SELECT * FROM participant WHERE id > ?1 AND enrolled_at >= ?4 AND ",
            carries!("?3"),
            $condition,
            " ORDER BY id LIMIT ?2"
        )
    };
}

/// The columns of [`Certificates`].
macro_rules! certificates {
    () => {
        "participant.id AS holder, participant.certificate_fingerprint, participant.previous_fingerprint,
         participant.revoked_at"
    };
}

columns!(Certificates {
    participant: holder,
    newest: certificate_fingerprint,
    previous: previous_fingerprint,
    revoked_at,
});

record!(
    "participant",
    ParticipantRow {
        id,
        name,
        labels,
        enrolled_at,
        certificate_fingerprint,
        previous_fingerprint,
        certificate_expires_at,
        revoked_at,
        last_seen_at,
    }
);

impl Transaction<'_> {
    /// Stores a new participant, and an event.
    ///
    /// # Errors
    /// `Conflict` if the id, the name or the certificate already exists.
    pub async fn insert_participant(&mut self, participant: &ParticipantRow) -> Result<()> {
        self.insert(participant).await?;
        let expires_at = participant.certificate_expires_at;
        self.note_of_participant(participant.enrolled_at, EventKind::ParticipantEnrolled, participant.id, expires_at);
        Ok(())
    }

    /// Notes that a participant has a new certificate. Its name and labels are omitted, because the log is permanent.
    fn note_of_participant(&mut self, at: Timestamp, kind: EventKind, id: ParticipantId, expires_at: Timestamp) {
        let facts = [("participant", id.to_string().into()), ("certificate_expires_at", expires_at.into())];
        self.note_event(at, kind, Subject::Service, facts);
    }

    pub async fn participant(&mut self, id: ParticipantId) -> Result<Option<ParticipantRow>> {
        self.find("SELECT * FROM participant WHERE id = ?1", id).await
    }

    pub async fn participant_by_name(&mut self, name: &str) -> Result<Option<ParticipantRow>> {
        self.find("SELECT * FROM participant WHERE name = ?1", name).await
    }

    /// The participant's, revoked or not.
    pub async fn certificates(&mut self, id: ParticipantId) -> Result<Option<Certificates>> {
        self.find(concat!("SELECT ", certificates!(), " FROM participant WHERE id = ?1"), id).await
    }

    /// The participants that a filter takes, in the order of their ids.
    pub async fn participants(
        &mut self,
        filter: &ParticipantFilter,
        cursor: Option<ParticipantId>,
        limit: u32,
    ) -> Result<Vec<ParticipantRow>> {
        let since = filter.since.unwrap_or(Timestamp(i64::MIN));
        let arguments = (After(cursor), limit, &filter.labels, since);
        match filter.is_revoked {
            None => self.list(listed!(""), arguments).await,
            Some(false) => self.list(listed!(" AND revoked_at IS NULL"), arguments).await,
            Some(true) => self.list(listed!(" AND revoked_at IS NOT NULL"), arguments).await,
        }
    }

    /// Makes a certificate the newest, with an event. The certificate shown to request it becomes the previous one,
    /// which its holder still has even if answers were lost. Returns false if the participant is unknown or revoked, or
    /// the certificate shown differs from its newest and its previous one.
    ///
    /// # Errors
    /// `Conflict` if the certificate belongs to another participant.
    pub async fn set_certificate(
        &mut self,
        id: ParticipantId,
        shown: Digest,
        fingerprint: Digest,
        expires_at: Timestamp,
        at: Timestamp,
    ) -> Result<bool> {
        let changed = self
            .change_one(
                "UPDATE participant
             SET previous_fingerprint = ?2, certificate_fingerprint = ?3, certificate_expires_at = ?4
             WHERE id = ?1 AND revoked_at IS NULL AND ?2 IN (certificate_fingerprint, previous_fingerprint)",
                (id, shown, fingerprint, expires_at),
            )
            .await?;
        if changed {
            self.note_of_participant(at, EventKind::ParticipantRenewed, id, expires_at);
        }
        Ok(changed)
    }

    /// Makes a certificate the only one, for a participant that enrolled again, with an event. Returns false if the
    /// participant is unknown or revoked.
    ///
    /// # Errors
    /// `Conflict` if the certificate belongs to another participant.
    pub async fn replace_certificate(
        &mut self,
        id: ParticipantId,
        fingerprint: Digest,
        expires_at: Timestamp,
        at: Timestamp,
    ) -> Result<bool> {
        let changed = self
            .change_one(
                "UPDATE participant
             SET previous_fingerprint = NULL, certificate_fingerprint = ?2, certificate_expires_at = ?3
             WHERE id = ?1 AND revoked_at IS NULL",
                (id, fingerprint, expires_at),
            )
            .await?;
        if changed {
            self.note_of_participant(at, EventKind::ParticipantEnrolled, id, expires_at);
        }
        Ok(changed)
    }

    /// Ends the previous certificate after the first use of `newest`. Returns false if the participant is unknown,
    /// `newest` is not its newest certificate, or its previous one has ended already.
    pub async fn end_previous_certificate(&mut self, id: ParticipantId, newest: Digest) -> Result<bool> {
        self.change_one(
            "UPDATE participant SET previous_fingerprint = NULL
             WHERE id = ?1 AND certificate_fingerprint = ?2 AND previous_fingerprint IS NOT NULL",
            (id, newest),
        )
        .await
    }

    /// Frees the name of a revoked participant for a new one. From then on the revoked one has its id in its name, and
    /// parentheses, which chosen names cannot have. Returns false if the participant is unknown or still active.
    pub async fn release_name(&mut self, participant: &ParticipantRow) -> Result<bool> {
        let name = format!("{} (revoked {})", participant.name, participant.id);
        let release = "UPDATE participant SET name = ?2 WHERE id = ?1 AND revoked_at IS NOT NULL";
        self.change_one(release, (participant.id, name)).await
    }

    /// Revokes a participant, with an event. Returns false if the participant is unknown or already revoked.
    pub async fn revoke_participant(&mut self, id: ParticipantId, at: Timestamp) -> Result<bool> {
        let revoke = "UPDATE participant SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
        let changed = self.change_one(revoke, (id, at)).await?;
        if changed {
            let facts = [("participant", Fact::from(id.to_string()))];
            self.note_event(at, EventKind::ParticipantRevoked, Subject::Service, facts);
        }
        Ok(changed)
    }

    /// Records that these were seen at `at`; unknown ids are ignored.
    pub async fn touch(&mut self, ids: &[ParticipantId], at: Timestamp) -> Result<()> {
        self.change_all("UPDATE participant SET last_seen_at = ?2 WHERE id IN {?1 id:bytes}", (ids, at)).await
    }

    /// Number of its assignments, in all tasks.
    pub async fn participations(&mut self, id: ParticipantId) -> Result<u32> {
        self.get("SELECT CAST(coalesce(sum(count), 0) AS BIGINT) FROM participation WHERE participant = ?1", id).await
    }
}
