//! Conditions that a task waits for.

use federation::round::RoundState;
use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a task waits for now, and until when, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TaskWaitingFor {
    /// Nothing: it is over.
    Nothing,
    /// An operator: no round opens while it has this status.
    Operator {
        status: TaskStatus,
        /// When it got that status.
        since: Timestamp,
    },
    /// Participants: the next round draws nobody before so many more have checked in.
    Participants {
        more: u32,
        /// When the attempt that selects them ends without them. Absent where none does: the next one opens when enough are enrolled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The present phase of a round.
    Phase {
        round: u32,
        attempt: u32,
        state: RoundState,
        /// Answers that are missing before it can succeed; 0 where it waits for more than it needs. Absent while it selects, for a divided
        /// cohort, whose groups need answers of their own, and where no participant is waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<u32>,
        /// When the phase ends at the latest.
        until: Timestamp,
    },
    /// Participants that train ahead of rounds: this round opens when so many more of their updates are ready.
    Updates { round: u32, more: u32 },
    /// The coordinator, which opens this round by itself: soon, or after a pause where an attempt has failed.
    Round {
        round: u32,
        /// When it opens at the earliest, where rounds have a period or an attempt has failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// Something that a newer coordinator says.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_coordinator_waits_for_is_read() {
        let newer = r#"{ "kind": "full_moon", "until": 3 }"#;
        assert_eq!(serde_json::from_str::<TaskWaitingFor>(newer).unwrap(), TaskWaitingFor::Other);
        let phase =
            TaskWaitingFor::Phase { round: 3, attempt: 1, state: RoundState::Sharing, more: None, until: Timestamp(7) };
        let text = r#"{"kind":"phase","round":3,"attempt":1,"state":"SHARING","until":7}"#;
        assert_eq!(serde_json::to_string(&phase).unwrap(), text);
        assert_eq!(serde_json::from_str::<TaskWaitingFor>(text).unwrap(), phase);
    }
}
