//! The status of a task.

task_spec::named_enum! {
    /// Where a task stands.
    #[derive(PartialOrd, Ord)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum TaskStatus: "task status" {
        /// Rounds run.
        Active = "ACTIVE",
        /// No new round opens; the present one runs on.
        Paused = "PAUSED",
        /// All rounds are done.
        Completed = "COMPLETED",
        /// Ended by an operator.
        Cancelled = "CANCELLED",
        /// Another round would spend more than the privacy budget: no new round opens. For an operator to look at.
        BudgetExhausted = "BUDGET_EXHAUSTED",
    }
}

impl TaskStatus {
    /// Whether the task is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }
}

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
