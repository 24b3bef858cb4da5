//! Reasons why a participant waits for work.

use std::fmt;

use federation::task_status::TaskStatus;
use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of reasons in a reply, and of names in a reason.
pub const MAX_WAITING_FOR: usize = 8;

/// One reason why there is nothing to do. What it says of other participants is how many of them are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WaitingFor {
    /// No task has the name that the participant asked for.
    Task {
        named: String,
        /// Tasks that it could ask for instead, oldest first; at most [`MAX_WAITING_FOR`].
        there_are: Vec<String>,
    },
    /// It asked for any task, and none is open to it.
    AnyTask,
    /// The task does not go on before an operator has done something.
    Operator { task: String, status: TaskStatus },
    /// The task wants a label that the participant was not enrolled with.
    Label { task: String, label: String, value: String },
    /// The device has said that it does not meet the task's criteria.
    Device { task: String },
    /// The participant refuses the task ([`CheckInRequest::refusals`](super::CheckInRequest::refusals)).
    Refused { task: String },
    /// The next round draws nobody before that many more participants have checked in.
    Participants {
        task: String,
        more: u32,
        /// When the attempt that selects them ends without them, after which another one follows, unless the task is paused. Absent where
        /// none selects now, and from older coordinators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// A round that draws it: one is open without it, or the next one is about to open.
    Round {
        task: String,
        /// When the next one opens at the earliest, where rounds have a period or an attempt has failed. Absent where it may open at any
        /// time, and from older coordinators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// Something that a newer coordinator says.
    #[serde(other)]
    Other,
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task { named, there_are } => {
                write!(f, "there is no task called {named:?}")?;
                match there_are.as_slice() {
                    [] => write!(f, ", and no other that this participant could take part in"),
                    [one] => write!(f, "; there is {one}"),
                    several => write!(f, "; there are {}", several.join(", ")),
                }
            }
            Self::AnyTask => write!(f, "no task is open to this participant"),
            Self::Operator { task, status } => {
                write!(f, "task {task} is {status}: an operator has to let it go on")
            }
            Self::Label { task, label, value } => {
                write!(
                    f,
                    "task {task} takes participants with the label {label}={value}, which this one was not enrolled with"
                )
            }
            Self::Device { task } => write!(f, "this device does not meet the criteria of task {task}"),
            Self::Refused { task } => write!(f, "this participant refuses task {task}"),
            Self::Participants { task, more, until } => {
                let participants = if *more == 1 { "participant" } else { "participants" };
                write!(f, "task {task} waits for {more} more {participants}")?;
                until.map_or(Ok(()), |until| write!(f, "; this attempt waits until {until}"))
            }
            Self::Round { task, at } => {
                write!(f, "a round of task {task} that draws this participant")?;
                at.map_or(Ok(()), |at| write!(f, "; the next one opens at {at} at the earliest"))
            }
            Self::Other => write!(f, "something that only a newer SDK can name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_a_sentence_and_a_reason_of_a_newer_coordinator_is_read() {
        let task = || "digits".to_owned();
        let unknown = |there_are: &[&str]| WaitingFor::Task {
            named: "digitz".to_owned(),
            there_are: there_are.iter().map(|&name| name.to_owned()).collect(),
        };
        for (reason, words) in [
            (unknown(&["digits", "text"]), r#"there is no task called "digitz"; there are digits, text"#),
            (unknown(&["digits"]), r#"there is no task called "digitz"; there is digits"#),
            (
                unknown(&[]),
                r#"there is no task called "digitz", and no other that this participant could take part in"#,
            ),
            (
                WaitingFor::Operator { task: task(), status: TaskStatus::BudgetExhausted },
                "task digits is BUDGET_EXHAUSTED: an operator has to let it go on",
            ),
            (WaitingFor::Refused { task: task() }, "this participant refuses task digits"),
            (
                WaitingFor::Participants { task: task(), more: 9, until: None },
                "task digits waits for 9 more participants",
            ),
            (
                WaitingFor::Participants { task: task(), more: 1, until: Some(Timestamp(1_700_000_000_000)) },
                "task digits waits for 1 more participant; this attempt waits until 2023-11-14T22:13:20Z",
            ),
            (WaitingFor::Round { task: task(), at: None }, "a round of task digits that draws this participant"),
            (
                WaitingFor::Round { task: task(), at: Some(Timestamp(1_700_000_000_000)) },
                "a round of task digits that draws this participant; the next one opens at 2023-11-14T22:13:20Z at the earliest",
            ),
        ] {
            assert_eq!(reason.to_string(), words);
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(serde_json::from_str::<WaitingFor>(&text).unwrap(), reason, "{text}");
        }
        let newer = r#"{ "kind": "full_moon", "until": 3 }"#;
        assert_eq!(serde_json::from_str::<WaitingFor>(newer).unwrap(), WaitingFor::Other);
    }
}
