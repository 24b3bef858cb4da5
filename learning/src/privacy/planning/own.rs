//! A participant's privacy cost by its own count: it knows its rounds, so sampling does not reduce its cost.

use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacySpec, Turns};

use super::plan::{PlanError, PlanRequest, PlanSampling};
use crate::privacy::release::{Cost, Release};

impl PlanRequest {
    /// The turns of participants, if the mechanism limits their participations; `None` otherwise.
    #[must_use]
    pub fn turns(&self) -> Option<Turns> {
        let limits = PrivacySpec {
            mechanism: self.mechanism,
            separation: self.separation,
            participations: self.participations,
            ..PrivacySpec::default()
        };
        Turns::of(&limits, self.cohort, self.rounds)
    }

    pub(super) fn check_turns(&self) -> Result<(), PlanError> {
        Ok(self.turns().map_or(Ok(()), |turns| turns.check(self.population))?)
    }

    /// Average number of rounds of a participant that is always present.
    #[must_use]
    pub fn expected_participations(&self) -> f64 {
        let rate = match self.sampling {
            PlanSampling::Poisson(rate) => rate.value(),
            PlanSampling::FixedSize | PlanSampling::Anyhow => f64::from(self.cohort) / f64::from(self.population),
        };
        (rate * f64::from(self.rounds)).min(self.most_participations().into())
    }

    /// Maximum number of rounds of a participant.
    #[must_use]
    pub fn most_participations(&self) -> u32 {
        let most = self.participations.unwrap_or(self.rounds);
        match self.mechanism {
            PrivacyMechanism::Tree => 1,
            PrivacyMechanism::BandedMatrix => most.min(self.rounds.div_ceil(self.bands())),
            PrivacyMechanism::None
            | PrivacyMechanism::CentralGaussian
            | PrivacyMechanism::DistributedDiscreteGaussian
            | PrivacyMechanism::DistributedSkellam
            | PrivacyMechanism::Local => most.min(self.rounds),
        }
    }

    /// Number of participations in this task, at most [`Self::most_participations`], that cost a participant at most
    /// `epsilon` at `delta` by its own count.
    ///
    /// # Errors
    /// Any [`PlanError`].
    pub fn participations_within(&self, noise_multiplier: f64, epsilon: f64, delta: f64) -> Result<u32, PlanError> {
        let release = self.release(&self.codec(noise_multiplier)?)?.without_sampling();
        let accounting = PrivacyAccounting::default();
        let one = self.own_cost(&release, accounting);
        let fits = |times: u32| one.times(times.into()).at(delta, None, accounting).cohort_known <= epsilon;
        let (mut low, mut high) = (0, self.most_participations() + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        Ok(low)
    }

    /// Cost of one participation to a participant: the levels of a tree, a column of a banded matrix, or one release.
    fn own_cost(&self, release: &Release, accounting: PrivacyAccounting) -> Cost {
        if let Some(bands) = release.bands {
            return Release { bands: Some(bands.one_participation()), ..*release }.cost(accounting);
        }
        release.whole(
            &release.cost(accounting),
            if release.tree_release.is_some() { self.rounds } else { 1 },
            accounting,
        )
    }
}
