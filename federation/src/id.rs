//! One type per kind of id, so that a participant's id cannot be passed as a task's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use task_spec::{BadDigest, Digest};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

id! {
    /// A task: one model, trained over many rounds.
    TaskId
}
id! {
    /// A participant: one enrolled device or site.
    ParticipantId
}
id! {
    /// An operator token or enrolment token (the row, not the secret).
    TokenId
}
id! {
    /// An operator's sign-in with a browser (the row, not the cookie's secret).
    SignInId
}

/// A round of a task, across its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RoundKey {
    pub task: TaskId,
    /// From 1; round `n` publishes model version `n`.
    pub number: u32,
}

impl fmt::Display for RoundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.task, self.number)
    }
}

impl RoundKey {
    /// An attempt at this round.
    #[must_use]
    pub fn attempt(self, attempt: u32) -> Attempt {
        Attempt { task: self.task, round: self.number, attempt }
    }
}

/// One attempt at a round of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    pub task: TaskId,
    /// The round's number, from 1.
    pub round: u32,
    /// Counts from 1 within the round.
    pub attempt: u32,
}

impl Attempt {
    /// The round of the attempt.
    #[must_use]
    pub fn round_key(self) -> RoundKey {
        RoundKey { task: self.task, number: self.round }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.round, self.attempt)
    }
}
