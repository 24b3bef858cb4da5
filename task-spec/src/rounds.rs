//! `[rounds]` of a task, and how many participants a round has.

use serde::{Deserialize, Serialize};

use super::selection::round_up;
use super::{Cohort, MAX_SECURE_COHORT, MIN_SECURE_COHORT, TaskSpec, USUAL_SECURE_COHORT};

/// How many rounds, and the limits of each phase. What is left out is derived from the cohort.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundsSpec {
    /// The task is complete after so many rounds.
    pub count: u32,
    /// The task is paused after so many failed attempts at one round; 0 to keep trying.
    pub max_attempts: u32,
    /// Eligible participants needed before a cohort is drawn. Default: the cohort's count, or 2 for a fraction.
    pub select_min: Option<u32>,
    /// Largest cohort, over-selection included.
    pub select_max: u32,
    /// How long to wait for participants.
    pub select_deadline_ms: u64,
    /// Masked inputs without which the round fails. Default: half of the smallest target.
    pub collect_min: Option<u32>,
    /// Masked inputs with which collection closes early. Default: the target, over-selection not counted.
    pub collect_max: Option<u32>,
    /// How long participants may train and upload.
    pub collect_deadline_ms: u64,
    /// How long summing and publishing may take.
    pub aggregate_deadline_ms: u64,
}

impl Default for RoundsSpec {
    fn default() -> Self {
        Self {
            count: 10,
            max_attempts: 0,
            select_min: None,
            select_max: 1024,
            select_deadline_ms: 600_000,
            collect_min: None,
            collect_max: None,
            collect_deadline_ms: 600_000,
            aggregate_deadline_ms: 600_000,
        }
    }
}

/// How a cohort is drawn from those eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Participants to assign, over-selection included.
    pub cohort: u32,
    /// Masked inputs with which collection closes early.
    pub collect_max: u32,
}

impl TaskSpec {
    /// How many to draw and how many inputs to aim at, given how many are eligible.
    #[must_use]
    pub fn draw(&self, eligible: u32) -> Draw {
        let target = self.selection.cohort.target(eligible).min(self.rounds.select_max);
        let wanted = round_up(f64::from(target) * (1.0 + self.selection.over_selection));
        let cohort = wanted.max(target).min(self.rounds.select_max).min(eligible);
        // Whole groups.
        let cohort = self.group_size().map_or(cohort, |size| cohort - cohort % size);
        Draw { cohort, collect_max: self.rounds.collect_max.unwrap_or(target) }
    }

    /// s: how many participants share a session of secure aggregation, where the cohort is divided into groups.
    #[must_use]
    pub fn group_size(&self) -> Option<u32> {
        let size = self.aggregation.robust.as_ref().and_then(|robust| robust.group_size);
        size.filter(|size| self.secure_aggregation.enabled && *size > 0)
    }

    /// Fewest participants that a session of secure aggregation starts with: what `secure_aggregation.min_cohort` says. Without it
    /// [`USUAL_SECURE_COHORT`] where every cohort that is drawn has so many, and 3 where not: then a member that turns out to be none
    /// may be missing from the roster.
    #[must_use]
    pub fn session_min(&self) -> u32 {
        if let Some(least) = self.group_size().or(self.secure_aggregation.min_cohort) {
            return least;
        }
        // How many a sample has depends on chance.
        let is_usual = self.privacy.sampling.is_none() && self.draw(self.select_min()).cohort >= USUAL_SECURE_COHORT;
        if is_usual { USUAL_SECURE_COHORT } else { MIN_SECURE_COHORT }
    }

    /// Eligible participants without which no cohort is drawn.
    #[must_use]
    pub fn select_min(&self) -> u32 {
        self.rounds.select_min.unwrap_or(match self.selection.cohort {
            Cohort::Count(count) => count,
            Cohort::Fraction(_) if self.secure_aggregation.enabled => self.smallest_drawing(),
            Cohort::Fraction(_) => 2,
        })
    }

    /// Masked inputs without which a round fails.
    #[must_use]
    pub fn collect_min(&self) -> u32 {
        self.rounds.collect_min.unwrap_or(self.smallest_target().div_ceil(2))
    }

    /// Masked inputs with which collection closes early, before a cohort is drawn.
    #[must_use]
    pub fn collect_max(&self) -> u32 {
        self.rounds.collect_max.unwrap_or(self.rounds.select_max)
    }

    /// How many must be eligible for a fraction of them to make a cohort of secure aggregation.
    fn smallest_drawing(&self) -> u32 {
        let wanted = self.secure_aggregation.min_cohort.unwrap_or(MIN_SECURE_COHORT).min(MAX_SECURE_COHORT);
        (wanted..=self.rounds.select_max.max(wanted))
            .find(|&eligible| self.draw(eligible).cohort >= wanted)
            .unwrap_or(wanted)
    }

    /// Inputs a round aims at when it opens with as few participants as it may.
    fn smallest_target(&self) -> u32 {
        self.selection.cohort.target(self.select_min())
    }
}
