//! Events: records of every change of a task, a round, a model version, a participant or a token, with time and actor.
//!
//! All fields of an event may be shown to every viewer and stored permanently. Events exclude secrets, names and labels of participants,
//! and cohort membership where the draw is secret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{Attempt, Digest, ParticipantId, TaskId, TokenId};
use crate::time::Timestamp;

task_spec::named_enum! {
    /// What happened.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum EventKind: "event kind" {
        TaskCreated = "task_created",
        TaskPaused = "task_paused",
        TaskResumed = "task_resumed",
        TaskCancelled = "task_cancelled",
        TaskCompleted = "task_completed",
        /// Another round would spend more than the task's privacy budget.
        TaskBudgetExhausted = "task_budget_exhausted",
        /// Numbers of rounds that participants have seen were skipped.
        TaskRebased = "task_rebased",
        RoundOpened = "round_opened",
        /// A round entered its next phase.
        RoundAdvanced = "round_advanced",
        RoundCompleted = "round_completed",
        RoundFailed = "round_failed",
        RoundCancelled = "round_cancelled",
        VersionPublished = "version_published",
        /// An earlier model version was published again as the newest.
        VersionRestored = "version_restored",
        /// A model version was chosen to be used.
        VersionPromoted = "version_promoted",
        VersionPinned = "version_pinned",
        VersionUnpinned = "version_unpinned",
        /// The file of a model version is kept no more.
        VersionRemoved = "version_removed",
        /// A server of models told of the task for the first time, or again after it was silent.
        ServerJoined = "server_joined",
        /// A server of models said that it stops.
        ServerLeft = "server_left",
        ParticipantEnrolled = "participant_enrolled",
        ParticipantRenewed = "participant_renewed",
        ParticipantRevoked = "participant_revoked",
        /// A round does not wait for a participant any more.
        ParticipantExcused = "participant_excused",
        EnrollmentTokenCreated = "enrollment_token_created",
        OperatorTokenCreated = "operator_token_created",
        OperatorTokenRevoked = "operator_token_revoked",
        /// An operator's token was exchanged for a cookie.
        SignedIn = "signed_in",
        SignedOut = "signed_out",
        /// A known token that has become invalid was not exchanged for a cookie.
        SignInRefused = "sign_in_refused",
        /// A task's privacy ledger was charged for a release.
        PrivacyCharged = "privacy_charged",
    }
}

/// Who made a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Actor {
    /// The coordinator itself, or whoever controls its machine.
    Coordinator,
    /// The bearer of an operator token.
    Operator {
        token: TokenId,
        /// The token's name.
        name: String,
    },
    /// An operator whom an identity provider knows. Whoever knows its `sub` recognizes it; the log, which stays for ever, does
    /// not have that, which may be an address.
    Identity {
        issuer: String,
        /// SHA-256 of the issuer, a line feed, and the `sub` of the tokens.
        subject_sha256: Digest,
    },
    Participant {
        participant: ParticipantId,
    },
}

/// A fact of an event. There are no fractions, whose text differs between programs: a figure such as an ε is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Fact {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl From<bool> for Fact {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u32> for Fact {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<Timestamp> for Fact {
    fn from(at: Timestamp) -> Self {
        Self::Number(at.0)
    }
}

impl From<&str> for Fact {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Fact {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The facts of an event by their names, in the order of the names.
pub type Facts = BTreeMap<String, Fact>;

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// When, in milliseconds since 1970 (UTC).
    pub at: Timestamp,
    pub kind: EventKind,
    /// The task that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The number of the round that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// The attempt at that round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub actor: Actor,
    /// What else there is to know, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Fact>))]
    pub body: Facts,
}

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The whole service: a participant or a token.
    Service,
    Task(TaskId),
    Round(Attempt),
}

impl Subject {
    /// Creates an event about this subject.
    pub fn event(
        self,
        at: Timestamp,
        kind: EventKind,
        actor: Actor,
        facts: impl IntoIterator<Item = (&'static str, Fact)>,
    ) -> Event {
        let (task, round, attempt) = match self {
            Self::Service => (None, None, None),
            Self::Task(task) => (Some(task), None, None),
            Self::Round(Attempt { task, round, attempt }) => (Some(task), Some(round), Some(attempt)),
        };
        let body = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
        Event { at, kind, task, round, attempt, actor, body }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_event_is_told_in_one_way_and_read_back() {
        let attempt = Attempt { task: TaskId(Uuid::from_u128(1)), round: 2, attempt: 3 };
        let actor = Actor::Operator { token: TokenId(Uuid::from_u128(4)), name: "ann".to_owned() };
        let facts = [("reason", "quorum_lost".into()), ("base", 7.into()), ("again", true.into())];
        let event = Subject::Round(attempt).event(Timestamp(5), EventKind::RoundFailed, actor, facts);
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            text,
            r#"{"at":5,"kind":"round_failed","task":"00000000-0000-0000-0000-000000000001","round":2,"attempt":3,"#
                .to_owned()
                + r#""actor":{"by":"operator","token":"00000000-0000-0000-0000-000000000004","name":"ann"},"#
                + r#""body":{"again":true,"base":7,"reason":"quorum_lost"}}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        let short = Subject::Service.event(Timestamp(5), EventKind::ParticipantRevoked, Actor::Coordinator, []);
        assert_eq!(
            serde_json::to_string(&short).unwrap(),
            r#"{"at":5,"kind":"participant_revoked","actor":{"by":"coordinator"}}"#
        );
        assert!(serde_json::from_str::<Event>(&text.replace("\"base\":7", "\"base\":7.5")).is_err());
    }
}
