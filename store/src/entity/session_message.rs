//! Secure aggregation messages: each counts once, and its bytes are kept as long as needed.

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::time::Timestamp;

use crate::error::Result;

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

/// Reads and changes messages of secure aggregation.
#[async_trait]
pub trait SessionMessages {
    /// Stores a message, unless this participant's message of that kind is already there.
    ///
    /// # Errors
    /// `Conflict` if the participant has no assignment in that attempt.
    async fn insert_message(&mut self, message: &SessionMessage) -> Result<MessageInsertion>;

    /// The message of one participant.
    async fn message(
        &mut self,
        attempt: Attempt,
        kind: MessageKind,
        participant: ParticipantId,
    ) -> Result<Option<SessionMessage>>;

    /// The messages of everybody, in the order of participants' ids: as many bytes as the cohort sent.
    async fn messages(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<SessionMessage>>;

    /// Who sent a message of this kind, in the order of ids.
    async fn message_senders(&mut self, attempt: Attempt, kind: MessageKind) -> Result<Vec<ParticipantId>>;

    /// Deletes the content of messages of these kinds, but not the record that they were sent; returns their number.
    ///
    /// What is forgotten is overwritten in the database file, not merely marked as free. The write-ahead log may hold it
    /// until it is used anew, so what must not outlive this call even there has to be stored sealed.
    async fn clear_messages(&mut self, attempt: Attempt, kinds: &[MessageKind]) -> Result<u32>;
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
