//! Finds the best model version by what the cohorts have measured.
//!
//! A round's metrics of the received model concern the version it started from. So a version is measured one round after its publication,
//! by the next cohort, and the last version of a task is never measured.

use task_spec::Better;

use super::Measured;

/// The best version so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    pub measured: Measured,
    /// Number of later completed rounds, none of which measured a better version.
    pub rounds_since: u32,
}

/// Compares the measurements of all completed rounds, oldest first; `None` for a round without one. Of equal versions the oldest is the
/// best.
#[must_use]
pub fn best(better: Better, rounds: impl IntoIterator<Item = Option<Measured>>) -> Option<Best> {
    let mut best: Option<Best> = None;
    for measured in rounds {
        let is_better = |best: &Best, measured: &Measured| match better {
            Better::Higher => measured.value > best.measured.value,
            Better::Lower => measured.value < best.measured.value,
        };
        match (&mut best, measured) {
            (Some(found), Some(measured)) if !is_better(found, &measured) => found.rounds_since += 1,
            (_, Some(measured)) => best = Some(Best { measured, rounds_since: 0 }),
            (Some(found), None) => found.rounds_since += 1,
            (None, None) => {}
        }
    }
    best
}

/// Whether the best of these measurements, oldest first, is promoted in place of `promoted`: if there is none, or it was the best before the
/// newest measurement. Any other was promoted by an operator, and stays.
#[must_use]
pub fn replaces(better: Better, promoted: Option<u32>, rounds: &[Option<Measured>]) -> bool {
    let version = |rounds: &[Option<Measured>]| best(better, rounds.iter().copied()).map(|best| best.measured.version);
    let before = rounds.split_last().and_then(|(_, before)| version(before));
    let now = version(rounds);
    now.is_some() && now != promoted && (promoted.is_none() || promoted == before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(better: Better, values: &[Option<f64>]) -> Option<(u32, f64, u32)> {
        let measured = (0..).zip(values).map(|(version, value)| value.map(|value| Measured { version, value }));
        best(better, measured).map(|best| (best.measured.version, best.measured.value, best.rounds_since))
    }

    #[test]
    fn best_version_is_the_oldest_with_the_best_value() {
        assert_eq!(found(Better::Higher, &[]), None);
        assert_eq!(found(Better::Higher, &[None, None]), None);
        assert_eq!(found(Better::Higher, &[Some(0.5)]), Some((0, 0.5, 0)));
        assert_eq!(found(Better::Higher, &[Some(0.5), Some(0.7), Some(0.6), Some(0.7)]), Some((1, 0.7, 2)));
        assert_eq!(found(Better::Lower, &[Some(2.0), Some(1.0), Some(1.5)]), Some((1, 1.0, 1)));
    }

    #[test]
    fn rounds_without_a_measurement_are_no_gain() {
        assert_eq!(found(Better::Higher, &[None, Some(0.5), None, None]), Some((1, 0.5, 2)));
        assert_eq!(found(Better::Higher, &[None, Some(0.5), None, Some(0.6)]), Some((3, 0.6, 0)));
    }

    #[test]
    fn version_that_was_not_the_best_stays() {
        let rounds = |values: &[f64]| -> Vec<_> {
            (0..).zip(values).map(|(version, &value)| Some(Measured { version, value })).collect()
        };
        let promotes = |promoted, values: &[f64]| replaces(Better::Higher, promoted, &rounds(values));
        assert!(!replaces(Better::Higher, None, &[]) && !replaces(Better::Higher, None, &[None]));
        assert!(promotes(None, &[0.5]) && !promotes(Some(0), &[0.5]), "version 0 is the first");
        assert!(promotes(Some(0), &[0.5, 0.6]) && !promotes(Some(0), &[0.5, 0.4]));
        assert!(!promotes(Some(1), &[0.5, 0.4, 0.6]), "version 1 was not the best");
        // The measurement of a promoted version counts, however old it is: versions 4 to 6 of a compared window are worse than version 1.
        let long_ago = |newest: f64| {
            let window = [(1, 0.9), (4, 0.5), (5, 0.6), (6, newest)];
            replaces(Better::Higher, Some(1), &window.map(|(version, value)| Some(Measured { version, value })))
        };
        assert!(long_ago(0.95) && !long_ago(0.8));
    }
}
