//! `training.solver`: what keeps participants together that take unequal steps on unlike data. The arithmetic is `learning`'s.

use serde::{Deserialize, Serialize};

use super::check::Checks;
use super::{MAX_METRICS, Personalization, TaskSpec, TrainingPlan};

/// Most steps that a task may refer to.
const MAX_STEPS: u32 = 10_000_000;

/// How local work enters the model where "mean of the differences" is not what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Solver {
    /// Wang et al. 2020: updates are divided by how far their steps go, and the mean is multiplied by the mean of that.
    FedNova {
        /// Steps that an update is of as it is. Default: `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
    /// Karimireddy et al. 2020: every gradient is corrected by control variates, which are learnt through the same sum.
    Scaffold {
        /// N: how many participants there are to learn from, drawn or not. It weighs a round's change of the control variate.
        population: u32,
        /// Steps whose length is the unit of control variates: about a usual plan's. Default: `training.steps`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u32>,
    },
}

impl Solver {
    /// The stable name, as in a task file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::FedNova { .. } => "fed_nova",
            Self::Scaffold { .. } => "scaffold",
        }
    }

    /// What it refers to.
    #[must_use]
    pub fn steps(&self) -> Option<u32> {
        match *self {
            Self::FedNova { steps } | Self::Scaffold { steps, .. } => steps,
        }
    }

    /// Metrics of an update beside the task's own.
    #[must_use]
    pub fn extra_metrics(&self) -> usize {
        match self {
            // How far its steps went.
            Self::FedNova { .. } => 1,
            Self::Scaffold { .. } => 0,
        }
    }

    /// Whether a control variate is published, sent and summed beside the model, and participants keep one.
    #[must_use]
    pub fn has_control(&self) -> bool {
        matches!(self, Self::Scaffold { .. })
    }

    /// What participants agree on: the name, a zero, the steps, and the population (0 where it has none), as 32-bit numbers,
    /// largest byte first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let population = match *self {
            Self::FedNova { .. } => 0,
            Self::Scaffold { population, .. } => population,
        };
        let mut bytes = self.as_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend(self.steps().unwrap_or_default().to_be_bytes());
        bytes.extend(population.to_be_bytes());
        bytes
    }
}

/// FedProx's rule for μ (Li et al. 2020, §5.3.2): up while a loss rises, down while it falls. `training.proximal_mu` is where it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AdaptiveMu {
    /// The metric that is followed: a loss, of which less is better.
    pub metric: String,
    /// How much μ rises or falls at once.
    pub step: f64,
    /// So many falls of the loss in a row lower μ.
    pub patience: u32,
}

impl Default for AdaptiveMu {
    fn default() -> Self {
        Self { metric: "loss".to_owned(), step: 0.1, patience: 5 }
    }
}

impl TrainingPlan {
    /// The solver with everything that follows from the rest of the plan.
    #[must_use]
    pub fn solver(&self) -> Option<Solver> {
        let known = |steps: Option<u32>| steps.or(self.steps);
        Some(match self.solver? {
            Solver::FedNova { steps } => Solver::FedNova { steps: known(steps) },
            Solver::Scaffold { population, steps } => Solver::Scaffold { population, steps: known(steps) },
        })
    }
}

impl TaskSpec {
    pub(super) fn check_adaptive_mu(&self, checks: &mut Checks) {
        let Some(adaptive) = &self.training.adaptive_mu else { return };
        let step = adaptive.step;
        checks.require((1e-9..=1e9).contains(&step), "training.adaptive_mu.step", "must be between 1e-9 and 1e9");
        checks.require(
            (1..=10_000).contains(&adaptive.patience),
            "training.adaptive_mu.patience",
            "must be between 1 and 10000",
        );
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

    /// What can be said without the codec.
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
