//! Settings incompatible with a local solver or an adaptive μ.

use crate::problem::Checks;
use crate::{MAX_METRICS, MAX_STEPS, Personalization, Solver, TaskSpec};

impl TaskSpec {
    pub(super) fn check_adaptive_mu(&self, checks: &mut Checks) {
        let Some(adaptive) = &self.training.adaptive_mu else { return };
        let step = adaptive.step;
        checks.require((1e-9..=1e9).contains(&step), "training.adaptive_mu.step", "must be between 1e-9 and 1e9");
        checks.within(adaptive.patience, 1..=10_000, "training.adaptive_mu.patience");
        checks.require_with(self.metrics.contains(&adaptive.metric), "metrics", || {
            format!("must name {:?} with training.adaptive_mu: μ follows it", adaptive.metric)
        });
        checks.require(
            !self.privacy.is_private(),
            "training.adaptive_mu",
            "does not go with [privacy]: there no metric leaves a device, and μ would have nothing to follow",
        );
        checks.require(
            self.ahead().is_none(),
            "training.adaptive_mu",
            "does not go with schedule.mode: who trains ahead of rounds does not know their losses",
        );
        checks.require(
            self.training.solver.is_none(),
            "training.adaptive_mu",
            "does not go with training.solver, whose unit is a length of steps that μ would change",
        );
    }

    /// Checks without a codec.
    pub(super) fn check_solver(&self, checks: &mut Checks) {
        let Some(solver) = self.training.solver() else { return };
        let field = "training.solver";
        let name = solver.as_str();
        checks.require_with(solver.steps().is_some_and(|steps| (1..=MAX_STEPS).contains(&steps)), field, || {
            format!(
                "{name} must say steps, 1 to {MAX_STEPS}, or training.steps must: epochs are as many steps as a participant has data"
            )
        });
        let reasons: [(bool, &str); 5] = [
            (
                self.ahead().is_some(),
                "schedule.mode: what was trained ahead of a round is of another version, and neither its steps nor a control variate are the round's",
            ),
            (
                self.privacy.is_private(),
                "[privacy]: a mechanism's mean has a fixed denominator and no metrics; and noise in control variates would add up over rounds",
            ),
            (
                self.aggregation.robust.is_some(),
                "aggregation.robust: what a participant says of its own steps would decide how far the others' go, and a control variate is a mean or nothing",
            ),
            (self.training.fairness.is_some(), "training.fairness: both say what an update counts for"),
            (self.analytics.is_some(), "[analytics], which trains nothing"),
        ];
        for (_, reason) in reasons.iter().filter(|(holds, _)| *holds) {
            checks.require_with(false, field, || format!("{name} does not go with {reason}"));
        }
        match solver {
            Solver::FedNova { .. } => self.check_fed_nova(checks),
            Solver::Scaffold { population, .. } => self.check_scaffold(population, checks),
        }
    }

    fn check_fed_nova(&self, checks: &mut Checks) {
        checks.require_with(self.metrics.len() < MAX_METRICS, "metrics", || {
            format!("must be at most {} with training.solver \"fed_nova\", whose own takes a place", MAX_METRICS - 1)
        });
        let method = self.personalization.as_ref();
        checks.require(
            !matches!(method, Some(Personalization::PFedMe { .. } | Personalization::Elastic { .. })),
            "training.solver",
            "fed_nova does not go with personalization.method \"pfedme\" or \"elastic\", whose updates are no sum of steps",
        );
    }

    fn check_scaffold(&self, population: u32, checks: &mut Checks) {
        let field = "training.solver";
        let least = self.select_min();
        checks.require_with(population >= least, "training.solver.population", || {
            format!("is {population}; rounds are drawn from at least {least} participants, so there are as many")
        });
        checks.require_with(self.aggregation.max_weight == 1, "aggregation.max_weight", || {
            format!(
                "is {}; it must be 1 with scaffold: its control variate is the plain mean over participants",
                self.aggregation.max_weight
            )
        });
        let training = &self.training;
        for (holds, reason) in [
            (training.proximal_mu != 0.0, "training.proximal_mu: control variates would learn the pull for a gradient"),
            (
                self.compression.is_some(),
                "[compression]: what a codec adds or leaves out would part the control variate from the mean of its participants' for good",
            ),
            (
                self.aggregation.gate.is_some(),
                "aggregation.gate: a version could be rolled back, and with it the control variate, but not what participants keep",
            ),
            (
                self.personalization.is_some() || !self.model.personal.is_empty(),
                "personalization: control variates are of the training of the one shared model",
            ),
        ] {
            checks.require_with(!holds, field, || format!("scaffold does not go with {reason}"));
        }
    }
}
