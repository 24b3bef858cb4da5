//! Messages of secure aggregation in SQLite.

use async_trait::async_trait;
use federation::id::{Attempt, Digest, ParticipantId};

use super::SqliteTransaction;
use crate::entity::session_message::{MessageInsertion, MessageKind, SessionMessage, SessionMessages};
use crate::error::{Result, StoreError};

record!("session_message", SessionMessage { attempt, kind, participant, sha256, bytes, received_at, message });

#[async_trait]
impl SessionMessages for SqliteTransaction {
    async fn insert_message(&mut self, message: &SessionMessage) -> Result<MessageInsertion> {
        if self.insert_if_absent(message).await? {
            return Ok(MessageInsertion::Inserted);
        }
        let found: Option<Digest> = self
            .find(
                "SELECT sha256 FROM session_message
                 WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 AND participant = ?5",
                (message.attempt, message.kind, message.participant),
            )
            .await?;
        let found = found.ok_or_else(|| StoreError::corrupt("a message exists and does not"))?;
        Ok(if found == message.sha256 { MessageInsertion::Same } else { MessageInsertion::Different })
    }

    async fn message(
        &mut self,
        attempt: Attempt,
        kind: MessageKind,
        participant: ParticipantId,
    ) -> Result<Option<SessionMessage>> {
        self.find(
            "SELECT * FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 AND participant = ?5",
            (attempt, kind, participant),
        )
        .await
    }

    async fn messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<SessionMessage>> {
        self.list(
            "SELECT * FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
            (attempt, kind),
        )
        .await
    }

    async fn message_senders(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
            (attempt, kind),
        )
        .await
    }

    async fn clear_messages(&mut self, attempt: Attempt, kinds: &[MessageKind]) -> Result<u32> {
        self.change(
            "UPDATE session_message SET message = NULL
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind IN (SELECT value FROM json_each(?4))
               AND message IS NOT NULL",
            (attempt, kinds),
        )
        .await
    }
}

impl SqliteTransaction {
    /// How many messages of this kind were sent.
    pub(super) async fn count_messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<u32> {
        self.get(
            "SELECT count(*) FROM session_message WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4",
            (attempt, kind),
        )
        .await
    }
}
