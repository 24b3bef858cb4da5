//! Requirements of privacy on the rest of the task.

use crate::problem::Checks;
use crate::{Cohort, PrivacyMechanism, Sampling, TaskSpec, Turns};

impl TaskSpec {
    /// [`PrivacySpec::check`](super::PrivacySpec::check) validates the privacy settings themselves.
    pub(super) fn check_privacy(&self, checks: &mut Checks) {
        let privacy = &self.privacy;
        if privacy.mechanism.needs_secure_aggregation() {
            checks.require(
                self.secure_aggregation.enabled,
                "privacy.mechanism",
                "needs secure aggregation: a share of the noise does not hide the update it was added to",
            );
        }
        checks.require(
            self.aggregation.clip_norm.is_none(),
            "aggregation.clip_norm",
            "is given twice: under [privacy] updates are clipped to privacy.clip, so leave it out",
        );
        if privacy.mechanism == PrivacyMechanism::Tree {
            checks.require(
                self.selection.require.max_participations == 1,
                "selection.require.max_participations",
                "must be 1 with mechanism \"tree\", whose promise is for participants that take part once",
            );
        }
        if privacy.mechanism.counts_participations() {
            self.check_participations(checks);
        }
        if let Some(sampling) = &privacy.sampling {
            self.check_sampling(checks, sampling);
        }
        // `learning` computes the size of a Poisson draw and the size it needs.
        let is_counted = !matches!(privacy.sampling, Some(Sampling::Poisson(_)));
        if let Some(population) = privacy.population.filter(|_| is_counted) {
            let needed = self.select_min();
            let field = if self.rounds.select_min.is_some() { "rounds.select_min" } else { "selection.cohort" };
            checks.require_with(needed <= population, field, || {
                format!("needs {needed} participants at once, above privacy.population = {population}: no cohort could ever be drawn")
            });
            if let Some(problem) = self.turns().and_then(|turns| turns.check(population).err()) {
                checks.require_with(needed > population, "privacy.population", || problem.to_string());
            }
        }
    }

    /// The turns of the population's members under a mechanism's limits on participations, if it has any.
    fn turns(&self) -> Option<Turns> {
        let (privacy, needed) = (&self.privacy, self.select_min());
        let cohort = self.draw(privacy.population?.max(needed)).cohort.max(1);
        Some(Turns { present: needed, ..Turns::of(privacy, cohort, self.rounds.count.max(1))? })
    }

    /// The guarantee of counted participations needs selection to enforce the limits on them.
    fn check_participations(&self, checks: &mut Checks) {
        let require = &self.selection.require;
        if let Some(most) = self.privacy.participations.filter(|most| *most > 0) {
            // The matrix of a plan may have room for later rounds.
            let planned = self.privacy.rounds.unwrap_or(self.rounds.count).max(1);
            let fits = self.privacy.mechanism == PrivacyMechanism::BandedMatrix || most <= planned;
            checks.require_with(fits, "privacy.participations", || {
                format!("must be at most {planned}, the rounds that the noise is planned for, not {most}")
            });
            checks.require_with(
                (1..=most).contains(&require.max_participations),
                "selection.require.max_participations",
                || format!("must be {most} or less, and not 0: privacy.participations is {most}"),
            );
        }
        if let Some(separation) = self.privacy.separation.filter(|_| self.privacy.participations != Some(1)) {
            let gap = separation.saturating_sub(1);
            checks.require_with(require.min_gap_rounds >= gap, "selection.require.min_gap_rounds", || {
                format!("must be at least {gap}: privacy.separation is {separation}")
            });
        }
    }

    /// Amplification by sampling is valid only for the draw assumed by its proof.
    fn check_sampling(&self, checks: &mut Checks, sampling: &Sampling) {
        let selection = &self.selection;
        match (sampling, selection.cohort) {
            (Sampling::Poisson(rate), cohort) => {
                checks.require_with(cohort == Cohort::Fraction(*rate), "selection.cohort", || {
                    format!("must be {{ fraction = {rate} }}: privacy.sampling draws everybody with that probability")
                })
            }
            (Sampling::FixedSize(size), cohort) => {
                checks.require_with(cohort == Cohort::Count(*size), "selection.cohort", || {
                    format!("must be {{ count = {size} }}: privacy.sampling draws exactly so many")
                });
            }
        }
        let voids = "voids privacy.sampling, whose draw must not depend on anything: leave it out, or leave privacy.sampling out \
                     and do without amplification";
        let require = &selection.require;
        checks.require(selection.over_selection == 0.0, "selection.over_selection", voids);
        checks.require(selection.strategy.allows_amplification(), "selection.strategy", voids);
        checks.require(selection.seed.is_none(), "selection.seed", voids);
        checks.require(require.min_gap_ms == 0, "selection.require.min_gap_ms", voids);
        checks.require(require.min_gap_rounds == 0, "selection.require.min_gap_rounds", voids);
        checks.require(require.max_participations == 0, "selection.require.max_participations", voids);
        for (field, given) in [
            ("rounds.select_min", self.rounds.select_min.is_some()),
            ("rounds.collect_min", self.rounds.collect_min.is_some()),
            ("rounds.collect_max", self.rounds.collect_max.is_some()),
        ] {
            checks.require(!given, field, "follows from privacy.sampling: leave it out");
        }
    }
}
