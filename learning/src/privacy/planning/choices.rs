//! Alternative cohort sizes and numbers of rounds for the same epsilon, with the total noise of each.

use serde::Serialize;

use super::plan::{Goal, ROUNDS_MAX, plan};
use crate::privacy::release::Epsilons;
use crate::privacy::{PlanError, PlanRequest};

/// Relative difference in total noise for equally good choices.
const ALIKE: f64 = 0.02;

/// A cohort size and a number of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Expected number of participants per round.
    pub cohort: u32,
    pub rounds: u32,
    /// With a banded matrix: fewest rounds from one participation of a participant to its next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub separation: Option<u32>,
    /// Total number of updates sent.
    pub uploads: u64,
    /// Smallest noise multiplier for the published epsilon.
    pub noise_multiplier: f64,
    /// Length of the noise on one mean over the clipping norm.
    pub noise_to_signal: f64,
    /// Length of the noise on the sum of all means, over the clipping norm times the number of rounds: relative noise
    /// on updates that all point the same way.
    pub noise_in_all: f64,
    /// Epsilons of this choice, for each observer.
    pub epsilon: Epsilons,
}

impl PlanRequest {
    /// The choices that keep this request's published epsilon with at most `uploads` updates in total, least total
    /// noise first; among equally good ones, most rounds first. Candidates are the same and larger cohorts up to the
    /// population, with half as many rounds, as many, twice as many, and as many as the uploads allow. Accuracy is not
    /// predicted: fewer rounds learn less. With a banded matrix, participants of larger cohorts take turns sooner.
    ///
    /// # Errors
    /// Any [`PlanError`] of the request itself; a choice without a plan is omitted.
    pub fn choices(&self, uploads: u64) -> Result<Vec<Choice>, PlanError> {
        let epsilon = match self.goal {
            Goal::Epsilon(epsilon) => epsilon,
            Goal::Noise(_) => plan(self)?.epsilon.published,
        };
        self.check()?;
        let multiples = [1, 2, 4].map(|factor| self.cohort.saturating_mul(factor).min(self.population));
        let mut cohorts = [&multiples[..], &[self.population]].concat();
        cohorts.dedup();
        let mut choices: Vec<Choice> = cohorts
            .into_iter()
            .filter_map(|cohort| self.with_cohort(cohort))
            .flat_map(|request| rounds(self.rounds, uploads / u64::from(request.cohort)).map(move |at| (request, at)))
            .filter_map(|(request, rounds)| request.choice(rounds, epsilon))
            .collect();
        // Steps of equal ratio, so that the order is total.
        let step = |choice: &Choice| (libm::log(choice.noise_in_all) / ALIKE).round();
        choices.sort_by(|a, b| step(a).total_cmp(&step(b)).then(b.rounds.cmp(&a.rounds)).then(a.cohort.cmp(&b.cohort)));
        Ok(choices)
    }

    /// This request with the least noise for this published epsilon.
    ///
    /// # Errors
    /// Any [`PlanError`].
    pub fn within(&self, epsilon: f64) -> Result<Choice, PlanError> {
        let request = Self { goal: Goal::Epsilon(epsilon), ..*self };
        let planned = plan(&request)?;
        Ok(Choice {
            cohort: self.cohort,
            rounds: self.rounds,
            separation: self.separation,
            uploads: u64::from(self.cohort) * u64::from(self.rounds),
            noise_multiplier: planned.noise_multiplier,
            noise_to_signal: planned.noise_to_signal,
            noise_in_all: request.noise_on_last_sum(planned.noise_to_signal) / f64::from(self.rounds),
            epsilon: planned.epsilon,
        })
    }

    fn choice(&self, rounds: u32, epsilon: f64) -> Option<Choice> {
        let participations = self.participations.map(|times| times.min(rounds));
        let longest = task_spec::Turns::longest_separation(self.population, self.cohort);
        let separation = self.separation.map(|rounds| rounds.min(longest));
        Self { rounds, participations, separation, ..*self }.within(epsilon).ok()
    }
}

/// Half of `planned`, all, twice as many, and `most`, without duplicates or values out of range.
fn rounds(planned: u32, most: u64) -> impl Iterator<Item = u32> {
    let most = u32::try_from(most).unwrap_or(ROUNDS_MAX).min(ROUNDS_MAX);
    let mut all = vec![planned / 2, planned, planned.saturating_mul(2), most.min(planned.saturating_mul(2))];
    all.retain(|rounds| (1..=most).contains(rounds));
    all.sort_unstable();
    all.dedup();
    all.into_iter()
}
