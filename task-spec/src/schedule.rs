//! `[schedule]` of a task: when rounds open, and whether participants train inside them or ahead of them.
//!
//! Ahead means: a participant trains on the newest version when it is told to, keeps the update, and a *round* is a buffer of
//! finished updates (FedBuff, Nguyen et al. 2022) that are aggregated by the very same phases. What an update that started
//! from an older version counts for is [`Staleness::weight`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::{Checks, Deployment};
use super::{Clip, Cohort, MAX_COHORT, MAX_DEADLINE_MS, Sampling, TaskSpec};

/// What the oldest update must still count for. Were it next to nothing, a sum of one fresh update and many old ones would be
/// the fresh one, and secure aggregation would hide nothing.
pub const LEAST_WEIGHT: f64 = 0.1;
/// Most versions that an update may be behind.
pub const MAX_STALENESS: u32 = 1000;

/// When rounds open and what is trained in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Mode {
    /// A cohort is drawn, all of it trains on the same version, and the round waits for it.
    #[default]
    Sync,
    /// Participants train ahead; each period what is ready is aggregated.
    SemiSync,
    /// Participants train ahead; as soon as a cohort's worth of updates is ready it is aggregated.
    Buffered,
}

impl Mode {
    /// The stable name, as in a task file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::SemiSync => "semi_sync",
            Self::Buffered => "buffered",
        }
    }
}

/// `[schedule]` as an operator writes it. All but the mode is for tasks whose participants train ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleSpec {
    /// When rounds open.
    pub mode: Mode,
    /// `semi_sync`: from the opening of one round to that of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Participants that train or wait with a finished update at the same time, at most. Default: twice those a round opens
    /// with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Versions that may have been published since an update's training began; an older update is thrown away. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_staleness: Option<u32>,
    /// a: an update that is s versions behind counts for 1/(1 + a s)^p. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_a: Option<f64>,
    /// p, likewise. Default: 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_p: Option<f64>,
    /// How long a participant may train; then its place among those who do is given to another. Default: ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_deadline_ms: Option<u64>,
}

/// `[schedule]` of a task whose participants train ahead, with what was left out filled in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// From one opening to the next; none where a full buffer is what opens a round.
    pub period: Option<Duration>,
    /// Participants that train or wait with a finished update at the same time, at most.
    pub concurrency: u32,
    /// How old an update may be and what it counts for then.
    pub staleness: Staleness,
    /// How long one training may take.
    pub training_deadline: Duration,
}

/// How old an update may be, and what it counts for then.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Staleness {
    /// a, at least 0.
    pub a: f64,
    /// p, at least 0.
    pub p: f64,
    /// Versions that it may be behind.
    pub max: u32,
}

impl Staleness {
    /// What an update counts for that is `staleness` versions behind: 1/(1 + a s)^p, above 0 and at most 1.
    #[must_use]
    pub fn weight(&self, staleness: u32) -> f64 {
        (1.0 + self.a * f64::from(staleness)).powf(-self.p)
    }

    /// Whether the numbers are some by which weights are at least [`LEAST_WEIGHT`] and at most 1.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (0.0..=1000.0).contains(&self.a)
            && (0.0..=10.0).contains(&self.p)
            && self.max <= MAX_STALENESS
            && self.weight(self.max) >= LEAST_WEIGHT
    }

    /// What participants agree on: a and p as 64-bit floats and the bound as 32-bit integer, largest byte first.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.a.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.p.to_be_bytes());
        bytes[16..].copy_from_slice(&self.max.to_be_bytes());
        bytes
    }
}

impl ScheduleSpec {
    /// Whether nothing at all was written.
    pub(super) fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}

impl TaskSpec {
    /// How participants train ahead of rounds; none if they train in them.
    #[must_use]
    pub fn ahead(&self) -> Option<Ahead> {
        let schedule = &self.schedule;
        let period = match schedule.mode {
            Mode::Sync => return None,
            Mode::Buffered => None,
            Mode::SemiSync => Some(Duration::from_millis(schedule.period_ms.unwrap_or_default())),
        };
        let concurrency = schedule.concurrency.unwrap_or_else(|| self.select_min().saturating_mul(2).min(MAX_COHORT));
        let staleness = Staleness {
            a: schedule.staleness_a.unwrap_or(1.0),
            p: schedule.staleness_p.unwrap_or(0.5),
            max: schedule.max_staleness.unwrap_or(10),
        };
        let training_deadline = Duration::from_millis(schedule.training_deadline_ms.unwrap_or(600_000));
        Some(Ahead { period, concurrency, staleness, training_deadline })
    }

    /// Numbers in range, and nothing whose mathematics needs everybody to start from the same version at the same time.
    pub(super) fn check_schedule(&self, checks: &mut Checks, deployment: &Deployment) {
        let schedule = &self.schedule;
        let Some(ahead) = self.ahead() else {
            for (field, given) in [
                ("period_ms", schedule.period_ms.is_some()),
                ("concurrency", schedule.concurrency.is_some()),
                ("max_staleness", schedule.max_staleness.is_some()),
                ("staleness_a", schedule.staleness_a.is_some()),
                ("staleness_p", schedule.staleness_p.is_some()),
                ("training_deadline_ms", schedule.training_deadline_ms.is_some()),
            ] {
                checks.require(
                    !given,
                    &format!("schedule.{field}"),
                    "is for schedule.mode \"semi_sync\" or \"buffered\": in \"sync\" participants train within the round",
                );
            }
            return;
        };
        self.check_numbers(&ahead, checks, deployment);
        self.check_fit(checks);
        self.check_private_fit(checks);
    }

    fn check_numbers(&self, ahead: &Ahead, checks: &mut Checks, deployment: &Deployment) {
        let mode = self.schedule.mode;
        let deadlines = deployment.poll_interval_ms..=MAX_DEADLINE_MS;
        let within = format!(
            "must be at least the poll interval of this coordinator ({} ms) and at most 30 days",
            deployment.poll_interval_ms
        );
        match self.schedule.period_ms {
            Some(period_ms) if mode == Mode::SemiSync => {
                let holds = (1..=MAX_DEADLINE_MS).contains(&period_ms);
                checks.require(holds, "schedule.period_ms", "must be between 1 ms and 30 days");
            }
            Some(_) => checks.require(
                false,
                "schedule.period_ms",
                "is for schedule.mode \"semi_sync\": in \"buffered\" a full buffer opens a round, whenever that is",
            ),
            None => checks.require(
                mode != Mode::SemiSync,
                "schedule.period_ms",
                "is needed with schedule.mode \"semi_sync\": how long from one round to the next",
            ),
        }
        let least = self.select_min();
        checks.require_with((least..=MAX_COHORT).contains(&ahead.concurrency), "schedule.concurrency", || {
            format!(
                "is {}; it must be at least {least}, as many updates as a round opens with, or none ever would, and at most \
                 {MAX_COHORT}",
                ahead.concurrency
            )
        });
        let Staleness { a, p, max } = ahead.staleness;
        let in_range = [(0.0..=1000.0).contains(&a), (0.0..=10.0).contains(&p), max <= MAX_STALENESS];
        checks.require(in_range[0], "schedule.staleness_a", "must be between 0 and 1000");
        checks.require(in_range[1], "schedule.staleness_p", "must be between 0 and 10");
        checks.require(in_range[2], "schedule.max_staleness", "must be at most 1000");
        let oldest = ahead.staleness.weight(max);
        checks.require_with(in_range.contains(&false) || oldest >= LEAST_WEIGHT, "schedule.max_staleness", || {
            format!(
                "lets an update count for {oldest:.2e}; the oldest must count for {LEAST_WEIGHT} at least, or a sum shows the fresh \
                 ones alone: lower it, or staleness_a or staleness_p"
            )
        });
        let deadline_ms = self.schedule.training_deadline_ms;
        checks.require_with(
            deadline_ms.is_none_or(|deadline_ms| deadlines.contains(&deadline_ms)),
            "schedule.training_deadline_ms",
            || within,
        );
        if mode == Mode::Buffered {
            checks.require(
                matches!(self.selection.cohort, Cohort::Count(_)),
                "selection.cohort",
                "must be { count = … } with schedule.mode \"buffered\": it is the size of the buffer",
            );
        }
    }

    /// What the rest of the task assumes of a cohort that these are not.
    fn check_fit(&self, checks: &mut Checks) {
        let mode = self.schedule.mode.as_str();
        let strategy = &self.selection.strategy;
        checks.require_with(!strategy.follows_the_loss(), "selection.strategy", || {
            format!(
                "{} goes by losses and durations of a cohort that trains one version together; with schedule.mode \"{mode}\" \
                 nobody does: choose uniform, round_robin or stratified",
                strategy.as_str()
            )
        });
        let require = &self.selection.require;
        for (field, given, why) in [
            (
                "selection.require",
                require.min_gap_ms > 0 || require.min_gap_rounds > 0 || require.max_participations > 0,
                "lets somebody with a finished update wait outside of rounds, and its place with it: min_gap_ms, min_gap_rounds and \
                 max_participations are for cohorts that are drawn anew",
            ),
            (
                "analytics",
                self.analytics.is_some(),
                "adds up rows as one state of the analysis asks for; sums of different states have no meaning",
            ),
            (
                "training.fairness",
                self.training.fairness.is_some(),
                "weighs by the loss of the version the round starts from, which nobody in a buffer has measured",
            ),
            (
                "aggregation.robust",
                self.aggregation.robust.is_some(),
                "compares updates that start from one version; those of a buffer differ honestly",
            ),
            (
                "aggregation.gate",
                self.aggregation.gate.is_some(),
                "judges the version a round starts from by what its cohort measured; a buffer has measured older ones",
            ),
        ] {
            checks.require_with(!given, field, || {
                format!("{why}: leave it out, or choose schedule.mode \"sync\" instead of \"{mode}\"")
            });
        }
    }

    /// An epsilon is promised only for what its proof covers.
    fn check_private_fit(&self, checks: &mut Checks) {
        let (mode, privacy) = (self.schedule.mode.as_str(), &self.privacy);
        if !privacy.is_private() {
            return;
        }
        let sampling = match privacy.sampling {
            Some(Sampling::Poisson(_)) => "poisson",
            Some(Sampling::FixedSize(_)) => "fixed_size",
            None => "",
        };
        checks.require_with(sampling.is_empty(), "privacy.sampling", || {
            format!(
                "{sampling} promises amplification by a draw that depends on nothing; with schedule.mode \"{mode}\" who is in a \
                 round depends on who has finished training: leave it out, and epsilon is computed without amplification"
            )
        });
        let adaptive = matches!(privacy.clip, Some(Clip::Adaptive(_)));
        checks.require_with(!adaptive, "privacy.clip", || {
            format!(
                "follows the norms of updates to the round's version; with schedule.mode \"{mode}\" updates are scaled by their \
                 age and started from others: give a fixed one"
            )
        });
    }
}
