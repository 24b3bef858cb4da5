//! Secure aggregation messages: each counts once, and its bytes are kept as long as needed.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Digest, ParticipantId, RoundKey};
use federation::round::UnknownName;
use federation::time::Timestamp;

use crate::error::Result;

/// The kind of a message. A participant sends at most one of each kind in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// Answers SHARING.
    Shares,
    /// Accompanies the input of COLLECTING.
    Input,
    /// Replaces the input.
    Complaint,
    /// Answers CONFIRMING.
    Consistency,
    /// Answers UNMASKING.
    Unmasking,
}

impl MessageKind {
    /// All kinds, in protocol order.
    pub const ALL: [Self; 5] = [Self::Shares, Self::Input, Self::Complaint, Self::Consistency, Self::Unmasking];

    /// Stable name, as in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shares => "SHARES",
            Self::Input => "INPUT",
            Self::Complaint => "COMPLAINT",
            Self::Consistency => "CONSISTENCY",
            Self::Unmasking => "UNMASKING",
        }
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MessageKind {
    type Err = UnknownName;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let unknown = || UnknownName { what: "kind of message", got: text.to_owned() };
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(unknown)
    }
}

/// An accepted message: once committed, it counts exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMessage {
    pub round: RoundKey,
    pub attempt: u32,
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
        key: RoundKey,
        attempt: u32,
        kind: MessageKind,
        participant: ParticipantId,
    ) -> Result<Option<SessionMessage>>;

    /// The messages of all participants, in the order of their ids: as many bytes as the cohort sent.
    async fn messages(&mut self, key: RoundKey, attempt: u32, kind: MessageKind) -> Result<Vec<SessionMessage>>;

    /// The senders of messages of this kind, in the order of ids.
    async fn message_senders(&mut self, key: RoundKey, attempt: u32, kind: MessageKind) -> Result<Vec<ParticipantId>>;

    /// Deletes the content of messages of these kinds, but not the record that they were sent; returns their number.
    ///
    /// Deleted bytes are overwritten in the database file, not merely marked as free. The write-ahead log may contain
    /// them until it is reused, so anything that must not outlive this call even there has to be stored sealed.
    async fn clear_messages(&mut self, key: RoundKey, attempt: u32, kinds: &[MessageKind]) -> Result<u32>;
}
