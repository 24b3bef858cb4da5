//! Messages of secure aggregation in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, ParticipantId};

use super::SqliteTransaction;
use super::row::{Bind as _, Columns as _, each, integer, json_names};
use super::statement::{SqliteRow, query};
use crate::entity::session_message::{MessageInsertion, MessageKind, SessionMessage, SessionMessages};
use crate::error::{Result, StoreError};

#[async_trait]
impl SessionMessages for SqliteTransaction {
    async fn insert_message(&mut self, message: &SessionMessage) -> Result<MessageInsertion> {
        let SessionMessage { attempt, kind, participant, .. } = *message;
        let inserted = self
            .change_one(
                query(
                    "INSERT INTO session_message (task, number, attempt, kind, participant, sha256, bytes, received_at,
                                                  message)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                     ON CONFLICT (task, number, attempt, kind, participant) DO NOTHING",
                )
                .attempt(attempt)
                .bind(kind.as_str())
                .bind(participant.0)
                .digest(message.sha256)
                .bind(integer(message.bytes)?)
                .time(message.received_at)
                .bind(message.message.as_deref()),
            )
            .await?;
        if inserted {
            return Ok(MessageInsertion::Inserted);
        }
        let found = self
            .find(
                query(
                    "SELECT sha256 FROM session_message
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 AND participant = ?5",
                )
                .attempt(attempt)
                .bind(kind.as_str())
                .bind(participant.0),
            )
            .await?;
        let found = found.ok_or_else(|| StoreError::corrupt("a message exists and does not"))?;
        let same = found.digest("sha256")? == message.sha256;
        Ok(if same { MessageInsertion::Same } else { MessageInsertion::Different })
    }

    async fn message(
        &mut self,
        attempt: Attempt,
        kind: MessageKind,
        participant: ParticipantId,
    ) -> Result<Option<SessionMessage>> {
        let row = self
            .find(
                query(
                    "SELECT * FROM session_message
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 AND participant = ?5",
                )
                .attempt(attempt)
                .bind(kind.as_str())
                .bind(participant.0),
            )
            .await?;
        row.as_ref().map(read).transpose()
    }

    async fn messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<SessionMessage>> {
        let messages = query(
            "SELECT * FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
        );
        self.collect(messages.attempt(attempt).bind(kind.as_str()), read).await
    }

    async fn message_senders(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<ParticipantId>> {
        let rows = self
            .list(
                query(
                    "SELECT participant FROM session_message
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
                )
                .attempt(attempt)
                .bind(kind.as_str()),
            )
            .await?;
        each(&rows, |row| Ok(ParticipantId(row.uuid("participant")?)))
    }

    async fn clear_messages(&mut self, attempt: Attempt, kinds: &[MessageKind]) -> Result<u32> {
        self.count_changes(
            query(
                "UPDATE session_message SET message = NULL
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind IN (SELECT value FROM json_each(?4))
                   AND message IS NOT NULL",
            )
            .attempt(attempt)
            .bind(json_names(kinds)?),
        )
        .await
    }
}

impl SqliteTransaction {
    /// How many messages of this kind were sent.
    pub(super) async fn count_messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<u32> {
        let row = self
            .find(
                query(
                    "SELECT count(*) AS count FROM session_message
                     WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4",
                )
                .attempt(attempt)
                .bind(kind.as_str()),
            )
            .await?;
        row.map_or(Ok(0), |row| row.small("count"))
    }
}

fn read(row: &SqliteRow) -> Result<SessionMessage> {
    Ok(SessionMessage {
        attempt: row.attempt()?,
        kind: row.named("kind")?,
        participant: ParticipantId(row.uuid("participant")?),
        sha256: row.digest("sha256")?,
        bytes: row.large("bytes")?,
        received_at: row.time("received_at")?,
        message: row.optional_bytes("message")?.map(Into::into),
    })
}
