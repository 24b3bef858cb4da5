//! What a report is made from.

use learning::analytics::AnalyticsState;
use wire::audit::AuditKeyView;
use wire::inspect::{ModelView, PrivacyReport, RoundView, TaskView};
use wire::{RoundState, Timestamp};

/// What the page is about.
pub(super) struct Facts {
    pub(super) task: TaskView,
    /// The latest attempt at each round, oldest first.
    pub(super) rounds: Vec<RoundView>,
    /// Oldest first.
    pub(super) versions: Vec<ModelView>,
    /// The ledger of a task with a privacy mechanism.
    pub(super) privacy: Option<PrivacyReport>,
    pub(super) audit: AuditKeyView,
    /// The newest state of an analysis.
    pub(super) analysis: Option<AnalyticsState>,
    pub(super) at: Timestamp,
}

impl Facts {
    pub(super) fn completed(&self) -> impl Iterator<Item = &RoundView> {
        self.rounds.iter().filter(|round| round.state == RoundState::Completed)
    }

    /// Whether the guarantee relies on the secrecy of cohort sizes, which the ledger then leaves out.
    pub(super) fn has_secret_sizes(&self) -> bool {
        let releases = self.privacy.iter().flat_map(|report| &report.releases);
        releases.into_iter().any(|release| release.participants.is_none())
    }
}
