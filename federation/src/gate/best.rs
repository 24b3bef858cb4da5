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
}
