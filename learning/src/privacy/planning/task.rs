//! Derives plan and budget from a task's privacy settings.

use task_spec::{Clip, PrivacyMechanism, PrivacySpec, Sampling, SpecError, Turns};

use super::plan::{Goal, PlanRequest, PlanSampling};
use crate::privacy::SamplingRate;
use crate::privacy::ledger::Budget;

/// Properties of the task used by privacy planning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskFacts {
    /// Expected number of participants per round.
    pub cohort: u32,
    /// Shared parameters of the model.
    pub parameters: u64,
    /// Bits of the modulus, 16 to 32.
    pub modulus_bits: u8,
    /// Fewest survivors in a sum.
    pub smallest_cohort: u32,
    /// How many of them may collude with the coordinator.
    pub colluders: u32,
    /// Rounds of the task; used if the privacy settings give none.
    pub rounds: u32,
}

impl PlanRequest {
    /// The plan request of a task, from which grid, noise and releases are derived: the same on the coordinator and on
    /// every participant.
    ///
    /// # Errors
    /// Any [`SpecError`].
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
            // With a mechanism, `check` has rejected this; without one, planning fails.
            (None, None) => Goal::Noise(1.0),
        };
        let rounds = spec.rounds.unwrap_or(facts.rounds);
        // Without a declared population, a sufficiently large one is assumed.
        let least = Turns::of(spec, facts.cohort, rounds).map_or(facts.cohort.into(), |turns| turns.least_population());
        Ok(Self {
            mechanism: spec.mechanism,
            population: spec.population.unwrap_or(u32::try_from(least).unwrap_or(u32::MAX)),
            cohort: facts.cohort,
            rounds,
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
    /// The ledger's budget; `None` without a mechanism.
    #[must_use]
    pub fn of(spec: &PrivacySpec) -> Option<Self> {
        let delta = spec.delta.filter(|_| spec.mechanism != PrivacyMechanism::None)?;
        Some(Self { epsilon: spec.epsilon, delta, against: spec.against, accounting: spec.accounting })
    }
}

fn wrong(field: &str, problem: &dyn std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: format!("privacy.{field}"), problem: problem.to_string() }]
}
