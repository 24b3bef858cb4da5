//! Secure aggregation messages: each counts once, and its bytes are kept as long as needed.

use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::{Result, StoreError};
use crate::transaction::Transaction;

task_spec::named_enum! {
    /// Which of its messages a participant sent. Of each kind it has one at most in an attempt.
    #[derive(PartialOrd, Ord)]
    pub enum MessageKind: "kind of message" {
        /// Answers SHARING.
        Shares = "SHARES",
        /// Comes with the input of COLLECTING.
        Input = "INPUT",
        /// Instead of an input.
        Complaint = "COMPLAINT",
        /// Answers CONFIRMING.
        Consistency = "CONSISTENCY",
        /// Answers UNMASKING.
        Unmasking = "UNMASKING",
    }
}

/// An accepted message: once committed, it counts exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMessage {
    pub attempt: Attempt,
    pub kind: MessageKind,
    pub participant: ParticipantId,
    /// Of the message as sent, to recognize a repetition even if `message` is sealed.
    pub sha256: Digest,
    /// Size of the message as sent, in bytes.
    pub bytes: u64,
    pub received_at: Timestamp,
    /// The message in its stored form. `None` if it is stored elsewhere, or was cleared.
    pub message: Option<Bytes>,
}

/// Result of storing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageInsertion {
    /// It counts from now on.
    Inserted,
    /// The same message was stored before.
    Same,
    /// Another message, by its digest, was stored before; that one stays.
    Different,
}

names!(MessageKind);
record!("session_message", SessionMessage { attempt, kind, participant, sha256, bytes, received_at, message });

impl Transaction<'_> {
    /// Stores a message, unless this participant's message of that kind is already there.
    ///
    /// # Errors
    /// `Conflict` if the participant lacks an assignment in that attempt.
    pub async fn insert_message(&mut self, message: &SessionMessage) -> Result<MessageInsertion> {
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

    /// Stores new messages, of a few hundred bytes each: a list of them is one statement.
    ///
    /// # Errors
    /// `Conflict` if a participant has sent one of that kind, or lacks an assignment in that attempt.
    pub async fn insert_messages(&mut self, messages: &[SessionMessage]) -> Result<()> {
        let row = |it: &SessionMessage| {
            (it.attempt, it.kind, it.participant, it.sha256, it.bytes, it.received_at, it.message.clone())
        };
        self.change_of(
            messages.len(),
            "INSERT INTO session_message (task, number, attempt, kind, participant, sha256, bytes, received_at, message)
             SELECT * FROM {?1 task:bytes number:integer attempt:integer kind:text participant:bytes sha256:bytes
                            bytes:integer received_at:integer message:bytes} AS new",
            messages.iter().map(row).collect::<Vec<_>>(),
        )
        .await
        .map(drop)
    }

    /// The message of one participant.
    pub async fn message(
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

    /// The messages of all participants, in the order of their ids: as many bytes as the cohort sent.
    pub async fn messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<SessionMessage>> {
        self.list(
            "SELECT * FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
            (attempt, kind),
        )
        .await
    }

    /// The senders of messages of this kind, in the order of ids.
    pub async fn message_senders(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<ParticipantId>> {
        self.list(
            "SELECT participant FROM session_message
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4 ORDER BY participant",
            (attempt, kind),
        )
        .await
    }

    /// Deletes the content of messages of these kinds, but not the record that they were sent; returns their number.
    ///
    /// The content is overwritten in the database file, not merely marked as free. The write-ahead log may hold it
    /// until it is used anew, so content that must not outlive this call even there has to be stored sealed.
    pub async fn clear_messages(&mut self, attempt: Attempt, kinds: &[MessageKind]) -> Result<u32> {
        self.change(
            "UPDATE session_message SET message = NULL
             WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind IN {?4 kind:text}
               AND message IS NOT NULL",
            (attempt, kinds),
        )
        .await
    }
}

impl Transaction<'_> {
    /// How many messages of this kind were sent.
    pub(super) async fn count_messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<u32> {
        self.get(
            "SELECT count(*) FROM session_message WHERE task = ?1 AND number = ?2 AND attempt = ?3 AND kind = ?4",
            (attempt, kind),
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_rows_are_pinned() {
        assert_eq!(
            MessageKind::ALL.map(MessageKind::as_str),
            ["SHARES", "INPUT", "COMPLAINT", "CONSISTENCY", "UNMASKING"]
        );
        for kind in MessageKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("shares".parse::<MessageKind>().unwrap_err().to_string(), "unknown kind of message \"shares\"");
    }
}
