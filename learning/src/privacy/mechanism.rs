//! What an operator writes about privacy, and what is wrong with it.

use serde::{Deserialize, Serialize};

use super::ledger::Budget;
use super::plan::{Goal, PlanRequest, PlanSampling};
use super::release::Accounting;
use super::{AdaptiveClip, SamplingRate};

/// How noise gets into what is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// No noise, no promise.
    #[default]
    None,
    /// The coordinator adds discrete Gaussian noise to each round's integer sum.
    CentralGaussian,
    /// Every participant adds a share of discrete Gaussian noise; nobody, the coordinator included, sees a sum without it.
    DistributedDiscreteGaussian,
    /// The same with Skellam noise, whose shares add up exactly and may be small.
    DistributedSkellam,
    /// The coordinator adds noise along a binary tree over rounds: no assumption on who is drawn when, but a participant
    /// takes part once in a tree.
    Tree,
    /// The coordinator adds noise that later noise takes back, along a banded matrix over rounds: no assumption on who is drawn
    /// when, but a participant takes part so often at most, and so many rounds apart at least.
    BandedMatrix,
    /// Every participant adds all the noise that its own update needs: nobody is trusted, and much more noise.
    Local,
}

impl Mechanism {
    /// Every mechanism.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::CentralGaussian,
        Self::DistributedDiscreteGaussian,
        Self::DistributedSkellam,
        Self::Tree,
        Self::BandedMatrix,
        Self::Local,
    ];

    /// The name in task files and ledgers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CentralGaussian => "central_gaussian",
            Self::DistributedDiscreteGaussian => "distributed_discrete_gaussian",
            Self::DistributedSkellam => "distributed_skellam",
            Self::Tree => "tree",
            Self::BandedMatrix => "banded_matrix",
            Self::Local => "local",
        }
    }

    /// Whether the coordinator adds noise that is correlated over rounds, whose promise is for any order of participants.
    #[must_use]
    pub fn is_correlated(self) -> bool {
        matches!(self, Self::Tree | Self::BandedMatrix)
    }

    /// Whether participants add noise to what they send.
    #[must_use]
    pub fn is_noised_by_participants(self) -> bool {
        matches!(self, Self::DistributedDiscreteGaussian | Self::DistributedSkellam | Self::Local)
    }

    /// Whether the promise rests on no single update being seen.
    #[must_use]
    pub fn needs_secure_aggregation(self) -> bool {
        matches!(self, Self::DistributedDiscreteGaussian | Self::DistributedSkellam)
    }
}

/// `[privacy]` of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrivacySpec {
    /// How noise gets in.
    pub mechanism: Mechanism,
    /// Noise over sensitivity. Left out: solved for, so that `rounds` rounds cost `epsilon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise_multiplier: Option<f64>,
    /// The budget: the task stops before its ledger says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f64>,
    /// The probability with which the promise may fail; below one over the population.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// Rounds that `epsilon` is to last for, where the noise is solved for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// What updates are clipped to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<ClipSpec>,
    /// How cohorts are drawn. Left out: nothing is assumed of it, and nothing is gained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingSpec>,
    /// Everybody enrolled, at least: what sampling draws from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub population: Option<u32>,
    /// With `banded_matrix`: in how many rounds one participant takes part at most. Left out: in as many as `separation` allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participations: Option<u32>,
    /// With `banded_matrix`: how many rounds are from one participation of a participant to its next, at least. As many bands
    /// has the matrix, and the more the less noise. Left out, where there is one participation: as many as rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separation: Option<u32>,
    /// More examples than these do not weigh more. Left out: everybody weighs the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_weight: Option<u32>,
    /// What a participant is expected to weigh, over `max_weight`: above 0, at most 1. The mean is over this fixed number,
    /// never over what participants really weighed. Left out: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_weight: Option<f64>,
    /// What the budget is held against.
    pub against: View,
    /// What the figures rest on.
    pub accounting: Accounting,
    /// Whose code draws the coordinator's noise.
    #[serde(skip_serializing_if = "Sampler::is_exact")]
    pub sampler: Sampler,
    /// What to do when the budget ends.
    pub on_budget_end: OnBudgetEnd,
}

/// The bound on an update's L2 norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClipSpec {
    /// The same in every round.
    Fixed(f64),
    /// Following a quantile.
    Adaptive(AdaptiveClip),
}

impl ClipSpec {
    /// The bound of the first round.
    #[must_use]
    pub fn initial(&self) -> f64 {
        match self {
            Self::Fixed(norm) => *norm,
            Self::Adaptive(adaptive) => adaptive.initial,
        }
    }
}

/// How cohorts are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SamplingSpec {
    /// Everybody enrolled with this probability, independently, before anybody's availability is looked at.
    Poisson(SamplingRate),
    /// So many of everybody enrolled, uniformly.
    FixedSize(u32),
}

/// Whose epsilon is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// Of those who see the published models and do not know who took part.
    #[default]
    Published,
    /// Of those who also see who took part, such as a viewer of the round API.
    CohortKnown,
    /// Of the coordinator itself.
    Server,
}

/// Whose code draws the coordinator's noise. The distribution is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampler {
    /// [`DiscreteGaussian`](super::DiscreteGaussian): exact, fast, and a function of a seed.
    #[default]
    Exact,
    /// [`OpenDpGaussian`](super::OpenDpGaussian), in programs that were built with it.
    #[serde(rename = "opendp")]
    OpenDp,
}

impl Sampler {
    /// Whether it is the one of tasks that name none.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

/// What a task does when its budget is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBudgetEnd {
    /// Waits for an operator.
    #[default]
    Pause,
    /// Is done, with the last model version.
    Complete,
}

/// One thing that is wrong with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{field}: {problem}")]
pub struct SpecProblem {
    /// Dotted path within `[privacy]`.
    pub field: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl PrivacySpec {
    /// Everything that is wrong in itself, whatever the task is.
    ///
    /// # Errors
    /// All [`SpecProblem`]s, at least one.
    pub fn check(&self) -> Result<(), Vec<SpecProblem>> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, field, problem: &str| {
            if !holds {
                problems.push(SpecProblem { field, problem: problem.to_owned() });
            }
        };
        if self.sampler == Sampler::OpenDp {
            let problem = no_opendp(self.mechanism);
            require(problem.is_none(), "sampler", problem.unwrap_or_default());
        }
        if self.mechanism == Mechanism::None {
            let nothing = self.noise_multiplier.is_none() && self.epsilon.is_none();
            require(
                nothing,
                "mechanism",
                "is \"none\", so no budget can be kept: choose a mechanism, or drop the budget",
            );
        } else {
            self.check_noise(&mut require);
            self.check_rest(&mut require);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn check_noise(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        let delta = self.delta.unwrap_or(f64::NAN);
        require(
            delta > 0.0 && delta < 1.0,
            "delta",
            "must be above 0 and below 1; below one over the population is usual",
        );
        if let Some(epsilon) = self.epsilon {
            require(epsilon > 0.0 && epsilon.is_finite(), "epsilon", "must be finite and above 0");
        }
        if let Some(z) = self.noise_multiplier {
            let some = z > 0.0 || self.epsilon.is_none();
            require(some, "noise_multiplier", "is 0: without noise every budget is exceeded at once");
            require(
                NOISE_RANGE.contains(&z) || z == 0.0 && self.epsilon.is_some(),
                "noise_multiplier",
                "must be between 0.01 and 10000",
            );
        } else {
            require(self.epsilon.is_some(), "noise_multiplier", "must be given, or an epsilon to solve it for");
            require(
                self.rounds.is_some_and(|rounds| rounds > 0),
                "rounds",
                "must say for how many rounds epsilon is to last",
            );
        }
        require(self.rounds.is_none_or(|n| (1..=1_000_000).contains(&n)), "rounds", "must be between 1 and 1000000");
    }

    fn check_rest(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        match &self.clip {
            None => require(false, "clip", "must be given: without a bound on updates noise hides nothing"),
            Some(ClipSpec::Fixed(norm)) => {
                require(norm.is_normal() && *norm > 0.0, "clip.fixed", "must be a normal number above 0");
            }
            Some(ClipSpec::Adaptive(adaptive)) => {
                require(adaptive.problem().is_none(), "clip.adaptive", adaptive.problem().unwrap_or_default());
                let possible = !matches!(self.mechanism, Mechanism::Local);
                require(possible, "clip.adaptive", "cannot adapt to a count that local noise drowns: use a fixed clip");
            }
        }
        if let Some(SamplingSpec::FixedSize(size)) = self.sampling {
            require(size > 0, "sampling.fixed_size", "must be at least 1");
        }
        require(
            self.sampling.is_none() || self.population.is_some_and(|population| population > 0),
            "population",
            "must say how many are enrolled, at least: sampling hides participants among them",
        );
        require(self.max_weight != Some(0), "max_weight", "must be at least 1");
        require(
            self.expected_weight.is_none_or(|weight| weight > 0.0 && weight <= 1.0),
            "expected_weight",
            "must be above 0 and at most 1: the mean weight of a participant over max_weight",
        );
        let trusted = self.mechanism == Mechanism::CentralGaussian || self.mechanism.is_correlated();
        require(
            self.against != View::Server || !trusted,
            "against",
            "cannot be \"server\": the coordinator adds the noise, so it sees the sum without it",
        );
        require(
            !self.mechanism.is_correlated() || self.sampling.is_none(),
            "sampling",
            "gains nothing with a tree or a banded matrix, whose promise holds for any order of participants: leave it out",
        );
        self.check_participations(require);
    }

    fn check_participations(&self, require: &mut impl FnMut(bool, &'static str, &str)) {
        if self.mechanism != Mechanism::BandedMatrix {
            let elsewhere = "is for mechanism \"banded_matrix\": leave it out";
            require(self.participations.is_none(), "participations", elsewhere);
            require(self.separation.is_none(), "separation", elsewhere);
            return;
        }
        require(self.participations != Some(0), "participations", "must be at least 1");
        require(self.separation != Some(0), "separation", "must be at least 1: the next round");
        require(
            self.separation.is_some() || self.participations == Some(1),
            "separation",
            "must say how many rounds are from one participation of a participant to its next, at least; or participations must be 1",
        );
    }
}

/// Why OpenDP's measurement does not draw the noise of a mechanism, if it does not.
fn no_opendp(mechanism: Mechanism) -> Option<&'static str> {
    match mechanism {
        Mechanism::CentralGaussian => None,
        Mechanism::None => Some("is \"opendp\", and there is no noise to draw: choose mechanism \"central_gaussian\""),
        Mechanism::Tree | Mechanism::BandedMatrix => Some(
            "cannot be \"opendp\" with a tree or a banded matrix, whose later releases take back noise that earlier ones added, \
             so that it is drawn again from a seed; OpenDP takes none: leave it out, or use central_gaussian",
        ),
        Mechanism::DistributedDiscreteGaussian | Mechanism::DistributedSkellam | Mechanism::Local => Some(
            "cannot be \"opendp\" where participants add the noise: it is about the coordinator's. Leave it out, or use \
             central_gaussian",
        ),
    }
}

/// What the rest of a task says, as far as privacy needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskFacts {
    /// Participants a round is expected to have.
    pub cohort: u32,
    /// Shared parameters of the model.
    pub parameters: u64,
    /// Bits of the modulus, 16 to 32.
    pub modulus_bits: u8,
    /// Fewest survivors a sum may have.
    pub smallest_cohort: u32,
    /// How many of those may collude with the coordinator.
    pub colluders: u32,
    /// Rounds of the task, where `rounds` is left out.
    pub rounds: u32,
}

impl PrivacySpec {
    /// What to plan, and to derive grid, noise and releases from: the same on the coordinator and on every participant.
    ///
    /// # Errors
    /// All [`SpecProblem`]s.
    pub fn request(&self, facts: &TaskFacts) -> Result<PlanRequest, Vec<SpecProblem>> {
        self.check()?;
        let sampling = match self.sampling {
            None => PlanSampling::Anyhow,
            Some(SamplingSpec::Poisson(rate)) => PlanSampling::Poisson(rate),
            Some(SamplingSpec::FixedSize(_)) => PlanSampling::FixedSize,
        };
        if let Some(SamplingSpec::FixedSize(size)) = self.sampling
            && size != facts.cohort
        {
            let problem = format!("is {size}, but rounds are expected to have {} participants", facts.cohort);
            return Err(vec![SpecProblem { field: "sampling.fixed_size", problem }]);
        }
        let goal = match (self.noise_multiplier, self.epsilon) {
            (Some(z), _) => Goal::Noise(z),
            (None, Some(epsilon)) => Goal::Epsilon(epsilon),
            // `check` has refused it where there is a mechanism; without one the plan refuses.
            (None, None) => Goal::Noise(1.0),
        };
        Ok(PlanRequest {
            mechanism: self.mechanism,
            population: self.population.unwrap_or(facts.cohort),
            cohort: facts.cohort,
            rounds: self.rounds.unwrap_or(facts.rounds),
            delta: self.delta.unwrap_or(f64::NAN),
            goal,
            sampling,
            parameters: facts.parameters,
            modulus_bits: facts.modulus_bits,
            smallest_cohort: facts.smallest_cohort,
            colluders: facts.colluders,
            participations: self.participations,
            separation: self.separation,
            adaptive: matches!(self.clip, Some(ClipSpec::Adaptive(_))),
            max_weight: self.max_weight.unwrap_or(1),
            expected_weight: self.expected_weight.unwrap_or(1.0),
            accounting: self.accounting,
        })
    }

    /// The budget that a ledger keeps; `None` where there is no mechanism to charge for.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        let delta = self.delta.filter(|_| self.mechanism != Mechanism::None)?;
        Some(Budget { epsilon: self.epsilon, delta, against: self.against, accounting: self.accounting })
    }
}

/// Noise multipliers that make sense.
pub const NOISE_RANGE: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> PrivacySpec {
        PrivacySpec {
            mechanism: Mechanism::CentralGaussian,
            epsilon: Some(8.0),
            delta: Some(1e-5),
            rounds: Some(60),
            clip: Some(ClipSpec::Fixed(1.0)),
            sampling: Some(SamplingSpec::Poisson(SamplingRate::new(0.25).unwrap())),
            population: Some(200),
            ..PrivacySpec::default()
        }
    }

    fn fields(spec: &PrivacySpec) -> Vec<&'static str> {
        spec.check().unwrap_err().into_iter().map(|problem| problem.field).collect()
    }

    #[test]
    fn is_written_as_people_write_it() {
        let json = r#"{"mechanism":"distributed_skellam","epsilon":8,"delta":1e-5,"rounds":60,
            "clip":{"adaptive":{"initial":0.5}},"sampling":{"poisson":0.25},"population":200,"on_budget_end":"complete"}"#;
        let spec: PrivacySpec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.check(), Ok(()));
        let ClipSpec::Adaptive(clip) = spec.clip.unwrap() else { panic!() };
        assert_eq!((clip.quantile, clip.learning_rate, clip.initial), (0.5, 0.2, 0.5));
        assert_eq!(spec.on_budget_end, OnBudgetEnd::Complete);
        let again = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<PrivacySpec>(&again).unwrap(), spec);
        assert!(!again.contains("sampler"), "whoever knows no samplers reads it: {again}");
        let drawn: PrivacySpec =
            serde_json::from_str(r#"{"mechanism":"central_gaussian","sampler":"opendp"}"#).unwrap();
        assert_eq!(drawn.sampler, Sampler::OpenDp);
        assert!(serde_json::from_str::<PrivacySpec>(r#"{"sampler":"other"}"#).is_err());
        assert!(serde_json::from_str::<PrivacySpec>(r#"{"epsilom":8}"#).is_err());
        assert!(serde_json::from_str::<PrivacySpec>(r#"{"sampling":{"poisson":1.5}}"#).is_err());
        for mechanism in Mechanism::ALL {
            assert_eq!(serde_json::to_string(&mechanism).unwrap(), format!("\"{}\"", mechanism.as_str()));
        }
    }

    #[test]
    fn finds_what_is_wrong() {
        assert_eq!(spec().check(), Ok(()));
        assert_eq!(PrivacySpec::default().check(), Ok(()));
        for delta in [None, Some(0.0), Some(1.0), Some(2.0), Some(f64::NAN)] {
            assert_eq!(fields(&PrivacySpec { delta, ..spec() }), ["delta"]);
        }
        for epsilon in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert_eq!(fields(&PrivacySpec { epsilon: Some(epsilon), ..spec() }), ["epsilon"]);
        }
        for norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fields(&PrivacySpec { clip: Some(ClipSpec::Fixed(norm)), ..spec() }), ["clip.fixed"]);
        }
        assert_eq!(fields(&PrivacySpec { clip: None, ..spec() }), ["clip"]);
        assert_eq!(fields(&PrivacySpec { rounds: None, ..spec() }), ["rounds"]);
        assert_eq!(fields(&PrivacySpec { epsilon: None, ..spec() }), ["noise_multiplier"]);
        let silent = PrivacySpec { noise_multiplier: Some(0.0), ..spec() }.check().unwrap_err();
        assert!(silent[0].to_string().contains("without noise every budget is exceeded"), "{silent:?}");
        assert_eq!(silent.len(), 1);
        assert_eq!(fields(&PrivacySpec { noise_multiplier: Some(f64::NAN), ..spec() }).len(), 2);
        assert_eq!(fields(&PrivacySpec { against: View::Server, ..spec() }), ["against"]);
        assert_eq!(fields(&PrivacySpec { mechanism: Mechanism::Tree, ..spec() }), ["sampling"]);
        let banded = PrivacySpec { mechanism: Mechanism::BandedMatrix, sampling: None, ..spec() };
        assert_eq!(fields(&banded), ["separation"]);
        let with = |participations, separation| PrivacySpec { participations, separation, ..banded.clone() };
        assert_eq!(fields(&with(Some(2), None)), ["separation"]);
        assert_eq!(fields(&with(Some(0), Some(0))), ["participations", "separation"]);
        for (participations, separation) in [(Some(2), Some(3)), (None, Some(3)), (Some(1), None)] {
            assert_eq!(with(participations, separation).check(), Ok(()));
        }
        let sampled = PrivacySpec { sampling: spec().sampling, ..with(Some(1), None) };
        assert_eq!(fields(&sampled), ["sampling"]);
        assert_eq!(fields(&PrivacySpec { participations: Some(1), ..spec() }), ["participations"]);
        assert_eq!(fields(&PrivacySpec { mechanism: Mechanism::None, ..spec() }), ["mechanism"]);
        assert_eq!(fields(&PrivacySpec { population: None, ..spec() }), ["population"]);
        assert_eq!(fields(&PrivacySpec { max_weight: Some(0), ..spec() }), ["max_weight"]);
        for weight in [0.0, 1.5, f64::NAN] {
            assert_eq!(fields(&PrivacySpec { expected_weight: Some(weight), ..spec() }), ["expected_weight"]);
        }
        for mechanism in Mechanism::ALL {
            let drawn = PrivacySpec { mechanism, sampler: Sampler::OpenDp, sampling: None, ..spec() };
            let is_refused = drawn.check().is_err_and(|problems| problems.iter().any(|it| it.field == "sampler"));
            assert_eq!(is_refused, mechanism != Mechanism::CentralGaussian, "{mechanism:?}");
        }
        let sampling = Some(SamplingSpec::FixedSize(0));
        assert_eq!(fields(&PrivacySpec { sampling, ..spec() }), ["sampling.fixed_size"]);
    }
}
