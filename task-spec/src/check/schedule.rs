//! Settings incompatible with training ahead of rounds.

use crate::problem::Checks;
use crate::{
    Ahead, Clip, Cohort, Deployment, LEAST_WEIGHT, MAX_COHORT, MAX_DEADLINE_MS, MAX_STALENESS, Mode, Sampling,
    Staleness, TaskSpec,
};

impl TaskSpec {
    /// Checks ranges, and rejects settings that need all participants to start from the same version at the same time.
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

    /// Rejects settings that assume a cohort on a single version.
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
            (
                "rounds.keep_best",
                self.rounds.keep_best.is_some(),
                "compares versions by what the cohort of one round measured; a buffer has measured several",
            ),
        ] {
            checks.require_with(!given, field, || {
                format!("{why}: leave it out, or choose schedule.mode \"sync\" instead of \"{mode}\"")
            });
        }
    }

    /// Rejects privacy settings whose proof does not cover training ahead.
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
