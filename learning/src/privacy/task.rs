//! From what a task says of privacy to what is planned and kept for it.

use task_spec::{Clip, PrivacyMechanism, PrivacySpec, Sampling, SpecError};

use super::SamplingRate;
use super::ledger::Budget;
use super::plan::{Goal, PlanRequest, PlanSampling};

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

impl PlanRequest {
    /// What to plan, and to derive grid, noise and releases from: the same on the coordinator and on every participant.
    ///
    /// # Errors
    /// All [`SpecError`]s.
    pub fn of(spec: &PrivacySpec, facts: &TaskFacts) -> Result<Self, Vec<SpecError>> {
        spec.check()?;
        let sampling = match spec.sampling {
            None => PlanSampling::Anyhow,
            Some(Sampling::Poisson(rate)) => {
                PlanSampling::Poisson(SamplingRate::new(rate).map_err(|error| wrong("sampling.poisson", &error))?)
            }
            Some(Sampling::FixedSize(_)) => PlanSampling::FixedSize,
        };
        if let Some(Sampling::FixedSize(size)) = spec.sampling
            && size != facts.cohort
        {
            let problem = format!("is {size}, but rounds are expected to have {} participants", facts.cohort);
            return Err(wrong("sampling.fixed_size", &problem));
        }
        let goal = match (spec.noise_multiplier, spec.epsilon) {
            (Some(z), _) => Goal::Noise(z),
            (None, Some(epsilon)) => Goal::Epsilon(epsilon),
            // `check` has refused it where there is a mechanism; without one the plan refuses.
            (None, None) => Goal::Noise(1.0),
        };
        Ok(Self {
            mechanism: spec.mechanism,
            population: spec.population.unwrap_or(facts.cohort),
            cohort: facts.cohort,
            rounds: spec.rounds.unwrap_or(facts.rounds),
            delta: spec.delta.unwrap_or(f64::NAN),
            goal,
            sampling,
            parameters: facts.parameters,
            modulus_bits: facts.modulus_bits,
            smallest_cohort: facts.smallest_cohort,
            colluders: facts.colluders,
            participations: spec.participations,
            separation: spec.separation,
            adaptive: matches!(spec.clip, Some(Clip::Adaptive(_))),
            max_weight: spec.max_weight.unwrap_or(1),
            expected_weight: spec.expected_weight.unwrap_or(1.0),
            accounting: spec.accounting,
        })
    }
}

impl Budget {
    /// The budget that a ledger keeps; `None` where there is no mechanism to charge for.
    #[must_use]
    pub fn of(spec: &PrivacySpec) -> Option<Self> {
        let delta = spec.delta.filter(|_| spec.mechanism != PrivacyMechanism::None)?;
        Some(Self { epsilon: spec.epsilon, delta, against: spec.against, accounting: spec.accounting })
    }
}

fn wrong(field: &str, problem: &dyn std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: format!("privacy.{field}"), problem: problem.to_string() }]
}
