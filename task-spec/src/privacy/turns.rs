//! Checks whether a population is large enough for limits on each member's participations.

use std::fmt;

use super::{PrivacyMechanism, PrivacySpec};

/// Rounds with a limit on each participant's participations, and a minimum separation between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Participants drawn for each round, at least 1.
    pub cohort: u32,
    /// Participants that must be present before a cohort is drawn.
    pub present: u32,
    /// Number of rounds, at least 1.
    pub rounds: u32,
    /// Fewest rounds from one participation of a participant to its next, at least 1.
    pub separation: u32,
    /// Maximum number of rounds of one participant; `None`: as many as the separation allows.
    pub participations: Option<u32>,
}

/// A population that is too small for its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewTurns {
    pub turns: Turns,
    pub population: u32,
    /// The smallest population that suffices.
    pub needed: u64,
}

impl fmt::Display for TooFewTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turns, population, needed } = self;
        let (rounds, cohort, limits) = (turns.rounds, turns.cohort, turns.limits());
        write!(
            f,
            "{rounds} rounds of {cohort} participants, each in {limits}, need {needed} participants, not {population}: {}",
            turns.alternatives(*population)
        )
    }
}

impl std::error::Error for TooFewTurns {}

impl Turns {
    /// Turns of cohorts of this size under the limits of `spec`; `None` without limits.
    #[must_use]
    pub fn of(spec: &PrivacySpec, cohort: u32, rounds: u32) -> Option<Self> {
        let (separation, participations) = match spec.mechanism {
            PrivacyMechanism::Tree => (None, Some(1)),
            PrivacyMechanism::BandedMatrix => (spec.separation, spec.participations),
            // Independent noise needs no distance between participations.
            PrivacyMechanism::DistributedDiscreteGaussian | PrivacyMechanism::DistributedSkellam => {
                (spec.separation.or(Some(1)), Some(spec.participations?))
            }
            PrivacyMechanism::None | PrivacyMechanism::CentralGaussian | PrivacyMechanism::Local => return None,
        };
        let separation = separation.unwrap_or(rounds).max(1);
        Some(Self { cohort, present: cohort, rounds, separation, participations })
    }

    /// Largest separation for which `population` participants suffice, in cohorts of this size, if all of them take turns. At least 1.
    #[must_use]
    pub fn longest_separation(population: u32, cohort: u32) -> u32 {
        (population / cohort.max(1)).max(1)
    }

    /// The smallest population with enough participants for every round. If members take turns in a fixed order, it
    /// suffices.
    #[must_use]
    pub fn least_population(&self) -> u64 {
        let cohort = u64::from(self.cohort);
        let away = cohort * u64::from(self.window() - 1);
        let present = away + u64::from(self.present).max(cohort);
        let in_all = cohort * u64::from(self.rounds);
        present.max(self.participations.map_or(0, |most| in_all.div_ceil(most.max(1).into())))
    }

    /// Checks that `population` participants suffice.
    ///
    /// # Errors
    /// [`TooFewTurns`], with settings that suffice.
    pub fn check(self, population: u32) -> Result<(), TooFewTurns> {
        let needed = self.least_population();
        if needed > population.into() { Err(TooFewTurns { turns: self, population, needed }) } else { Ok(()) }
    }

    /// Number of consecutive rounds without a common participant.
    fn window(&self) -> u32 {
        let apart = if self.participations == Some(1) { self.rounds } else { self.separation };
        apart.min(self.rounds).max(1)
    }

    fn limits(&self) -> String {
        let apart = format!("one of any {} rounds", self.window());
        match self.participations {
            Some(1) => "one round at most".to_owned(),
            Some(most) if self.window() > 1 => format!("{apart} and in {most} at most"),
            Some(most) => format!("{most} rounds at most"),
            None => apart,
        }
    }

    /// Smaller settings for which this population suffices.
    fn alternatives(&self, population: u32) -> String {
        let smaller = |cohort: u32| Self { cohort, present: self.present.min(cohort), ..*self };
        let fits = |turns: &Self| turns.check(population).is_ok();
        let mut found = Vec::new();
        let cohort = largest(self.cohort, |cohort| fits(&smaller(cohort)));
        found.extend(cohort.map(|cohort| format!("cohorts of at most {cohort}")));
        if self.participations != Some(1) {
            let separation = largest(self.separation, |separation| fits(&Self { separation, ..*self }));
            found.extend(separation.map(|separation| format!("a separation of at most {separation}")));
        }
        // With a longer separation it decides, not the number of participations.
        let often = self.rounds.checked_mul(self.cohort).map(|places| places.div_ceil(population.max(1)));
        let often = often.filter(|_| self.separation == 1 && self.cohort <= population && self.present <= population);
        found.extend(often.map(|often| format!("{often} participations each")));
        let rounds = largest(self.rounds, |rounds| fits(&Self { rounds, ..*self }));
        found.extend(rounds.map(|rounds| format!("at most {rounds} rounds")));
        match found.is_empty() {
            true => "enrol more".to_owned(),
            false => format!("with these, {} would do", found.join(", or ")),
        }
    }
}

/// The largest number from 1 to below `end` for which `holds`, given that it holds for all smaller ones.
fn largest(end: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, end);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    (low > 0).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDED: Turns = Turns { cohort: 50, present: 50, rounds: 60, separation: 4, participations: None };

    #[test]
    fn least_population_covers_window_and_participations() {
        assert_eq!(BANDED.least_population(), 200);
        assert_eq!(Turns { rounds: 3, ..BANDED }.least_population(), 150);
        assert_eq!(Turns { present: 80, ..BANDED }.least_population(), 230);
        assert_eq!(Turns { participations: Some(15), ..BANDED }.least_population(), 200);
        assert_eq!(Turns { participations: Some(4), ..BANDED }.least_population(), 750);
        assert_eq!(Turns { participations: Some(1), ..BANDED }.least_population(), 3000);
        assert_eq!(Turns { separation: 1, ..BANDED }.least_population(), 50);
        for (population, longest) in [(200, 4), (199, 3), (20, 1), (0, 1)] {
            assert_eq!(Turns::longest_separation(population, BANDED.cohort), longest);
        }
        assert_eq!(Turns::longest_separation(7, 0), 7);
    }

    /// Members take turns in a fixed order: each takes part again only after every other member has taken part.
    #[test]
    fn least_population_suffices_in_fixed_order() {
        for (cohort, rounds, separation, participations) in
            [(3, 7, 2, None), (2, 9, 4, Some(2)), (5, 4, 9, Some(1)), (4, 10, 3, Some(3)), (1, 1, 1, None)]
        {
            let turns = Turns { cohort, present: cohort, rounds, separation, participations };
            let population = turns.least_population();
            let mut rounds_of = vec![Vec::new(); usize::try_from(population).unwrap()];
            for (place, round) in (0..rounds).flat_map(|round| (0..cohort).map(move |_| round)).enumerate() {
                let member = place % rounds_of.len();
                rounds_of[member].push(round);
            }
            for of in &rounds_of {
                assert!(of.windows(2).all(|pair| pair[1] - pair[0] >= separation.min(rounds)), "{turns:?} {of:?}");
                assert!(participations.is_none_or(|most| of.len() <= most as usize), "{turns:?} {of:?}");
            }
        }
    }

    #[test]
    fn error_names_settings_that_would_do() {
        let error = Turns { cohort: 200, present: 200, rounds: 15, ..BANDED }.check(200).unwrap_err();
        assert_eq!(
            error.to_string(),
            "15 rounds of 200 participants, each in one of any 4 rounds, need 800 participants, not 200: with these, cohorts of \
             at most 50, or a separation of at most 1, or at most 1 rounds would do"
        );
        let once = Turns { participations: Some(1), ..BANDED }.check(600).unwrap_err();
        assert!(once.to_string().contains("each in one round at most, need 3000 participants, not 600"), "{once}");
        assert!(once.to_string().ends_with("cohorts of at most 10, or at most 12 rounds would do"), "{once}");
        let alternatives = [Turns { cohort: 50, ..error.turns }, Turns { separation: 1, ..error.turns }];
        for turns in alternatives {
            assert_eq!(Turns { present: turns.present.min(turns.cohort), ..turns }.check(200), Ok(()));
        }
        assert_eq!(BANDED.check(200), Ok(()));
        assert!(BANDED.check(199).is_err());
        let spec = PrivacySpec {
            mechanism: PrivacyMechanism::DistributedSkellam,
            participations: Some(2),
            ..PrivacySpec::default()
        };
        let counted = Turns::of(&spec, 100, 10).unwrap();
        assert_eq!(counted.check(500), Ok(()));
        let error = counted.check(499).unwrap_err().to_string();
        assert_eq!(
            error,
            "10 rounds of 100 participants, each in 2 rounds at most, need 500 participants, not 499: with these, cohorts of at \
             most 99, or 3 participations each, or at most 9 rounds would do"
        );
        assert_eq!(Turns { participations: Some(3), ..counted }.check(499), Ok(()));
        assert_eq!(Turns::of(&PrivacySpec { participations: None, ..spec }, 100, 10), None);
    }
}
