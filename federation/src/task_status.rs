//! The status of a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::round::{UnknownName, names};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TaskStatus {
    /// Rounds run.
    Active,
    /// No new round opens; the current one continues.
    Paused,
    /// All rounds are done.
    Completed,
    /// Ended by an operator.
    Cancelled,
    /// Another round would exceed the privacy budget, so none opens. An operator must decide.
    BudgetExhausted,
}

impl TaskStatus {
    pub const ALL: [Self; 5] = [Self::Active, Self::Paused, Self::Completed, Self::Cancelled, Self::BudgetExhausted];

    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    /// Stable name, as in JSON and in rows.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Paused => "PAUSED",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
        }
    }
}

names!(TaskStatus, "task status");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_stable_names() {
        for status in TaskStatus::ALL {
            assert_eq!(status.as_str().parse::<TaskStatus>().unwrap(), status);
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        assert!(TaskStatus::Completed.is_terminal() && TaskStatus::Cancelled.is_terminal());
        assert!(!TaskStatus::Active.is_terminal() && !TaskStatus::Paused.is_terminal());
    }
}
