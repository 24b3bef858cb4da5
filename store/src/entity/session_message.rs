//! Messages of secure aggregation: that each counts, once, and its bytes for as long as they are needed.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use federation::id::{Attempt, Digest, ParticipantId};
use federation::round::UnknownName;
use federation::time::Timestamp;

use crate::error::Result;

/// Which of its messages a participant sent. Of each kind it has one at most in an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// Answers SHARING.
    Shares,
    /// Comes with the input of COLLECTING.
    Input,
    /// Instead of an input.
    Complaint,
    /// Answers CONFIRMING.
    Consistency,
    /// Answers UNMASKING.
    Unmasking,
}

impl MessageKind {
    /// Every kind, in the order of a round's life.
    pub const ALL: [Self; 5] = [Self::Shares, Self::Input, Self::Complaint, Self::Consistency, Self::Unmasking];

    /// The stable name, as in rows.
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

/// A message that was accepted: from its commit on it counts, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMessage {
    /// The attempt.
    pub attempt: Attempt,
    /// Which message.
    pub kind: MessageKind,
    /// Who sent it.
    pub participant: ParticipantId,
    /// Of what was sent, which tells a repetition from another message even if `message` is sealed.
    pub sha256: Digest,
    /// Size of what was sent.
    pub bytes: u64,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// As it is to be kept. None if it is kept elsewhere, or was cleared.
    pub message: Option<Bytes>,
}

/// What came of storing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageInsertion {
    /// It counts from now on.
    Inserted,
    /// The same had been stored before.
    Same,
    /// Another had been stored before, by its digest; that one stays.
    Different,
}

/// Reads and changes messages of secure aggregation.
#[async_trait]
pub trait SessionMessages {
    /// Stores a message, unless this participant's message of that kind is there already.
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

    /// Forgets what the messages of these kinds said, but not that they were sent; says how many it were.
    ///
    /// What is forgotten is overwritten in the database file, not merely marked as free. The write-ahead log may hold it
    /// until it is used anew, so what must not outlive this call even there has to be stored sealed.
    async fn clear_messages(&mut self, attempt: Attempt, kinds: &[MessageKind]) -> Result<u32>;
}
