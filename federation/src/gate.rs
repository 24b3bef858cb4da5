//! Decides whether a published model version is kept.
//!
//! A round's metrics of the received model concern the version it started from. So a version is judged one round after its publication, by
//! the next cohort. If it is too much worse than the last kept version, the kept one is published again instead of the round's result.

pub mod best;

use task_spec::{Better, GateSpec};

/// A cohort's measurement of its base version.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub version: u32,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GateVerdict {
    /// The version is kept, and the round continues from it.
    Keep,
    /// The version is rejected.
    RollBack {
        /// The version to publish again.
        to: u32,
        /// By how much the metric worsened.
        fell: f64,
    },
}

/// Judges the version of `present`, given all earlier measurements, oldest first. A version is compared with the last kept one. The
/// measurement right after a rollback concerns a version known to be good, so it is kept with any value: the data have changed, not the
/// model.
#[must_use]
pub fn judge(gate: &GateSpec, past: &[Measured], present: Measured) -> GateVerdict {
    judge_all(gate, past.iter().copied().chain([present])).0
}

/// The reference version for the next measurement, which a rollback publishes again.
#[must_use]
pub fn last_kept(gate: &GateSpec, past: &[Measured]) -> Option<u32> {
    judge_all(gate, past.iter().copied()).1.map(|kept| kept.version)
}

/// The verdict on the last measurement, and the last kept version.
fn judge_all(gate: &GateSpec, measurements: impl Iterator<Item = Measured>) -> (GateVerdict, Option<Measured>) {
    let mut kept: Option<Measured> = None;
    let mut verdict = GateVerdict::Keep;
    for measured in measurements {
        let restored = matches!(verdict, GateVerdict::RollBack { .. });
        verdict = match kept {
            Some(kept) if !restored && fall(gate, kept, measured) > gate.max_fall => {
                GateVerdict::RollBack { to: kept.version, fell: fall(gate, kept, measured) }
            }
            _ => {
                kept = Some(measured);
                GateVerdict::Keep
            }
        };
    }
    (verdict, kept)
}

fn fall(gate: &GateSpec, from: Measured, to: Measured) -> f64 {
    match gate.better {
        Better::Higher => from.value - to.value,
        Better::Lower => to.value - from.value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(better: Better, values: &[f64]) -> Vec<Option<u32>> {
        let gate = GateSpec { metric: "m".into(), max_fall: 0.05, better };
        let measured: Vec<_> = (0..).zip(values).map(|(version, &value)| Measured { version, value }).collect();
        (0..values.len())
            .map(|now| match judge(&gate, &measured[..now], measured[now]) {
                GateVerdict::Keep => None,
                GateVerdict::RollBack { to, .. } => Some(to),
            })
            .collect()
    }

    #[test]
    fn whatever_comes_next_goes_back_to_the_version_that_was_kept_last() {
        let gate = GateSpec { metric: "m".into(), max_fall: 0.05, better: Better::Higher };
        let mut past = Vec::new();
        assert_eq!(last_kept(&gate, &past), None);
        for (version, value) in (0..).zip([0.5, 0.6, 0.3, 0.6, 0.1, 0.61, 0.2]) {
            let present = Measured { version, value };
            if let GateVerdict::RollBack { to, .. } = judge(&gate, &past, present) {
                assert_eq!(last_kept(&gate, &past), Some(to), "before version {version}");
            }
            past.push(present);
        }
    }

    #[test]
    fn a_fall_beyond_the_bound_goes_back_to_the_last_version_that_was_kept() {
        assert_eq!(verdicts(Better::Higher, &[0.5, 0.6, 0.56, 0.7]), [None; 4]);
        assert_eq!(verdicts(Better::Higher, &[0.5, 0.6, 0.3]), [None, None, Some(1)]);
        // Version 3 repeats version 1, and version 4 is trained from it; that one is bad, too.
        assert_eq!(verdicts(Better::Higher, &[0.5, 0.6, 0.3, 0.6, 0.1]), [None, None, Some(1), None, Some(3)]);
        assert_eq!(verdicts(Better::Lower, &[2.0, 1.0, 1.04, 3.0]), [None, None, None, Some(2)]);
        assert_eq!(verdicts(Better::Higher, &[2.0, 1.0]), [None, Some(0)]);
    }

    #[test]
    fn a_version_that_was_good_once_is_not_rolled_back_for_ever() {
        // The data changed: a model that scored 0.6 now scores 0.2.
        assert_eq!(verdicts(Better::Higher, &[0.6, 0.2, 0.2, 0.22, 0.1]), [None, Some(0), None, None, Some(3)]);
    }

    #[test]
    fn it_says_by_how_much() {
        let gate = GateSpec { metric: "m".into(), max_fall: 0.05, better: Better::Higher };
        let [kept, bad] = [(3, 0.5), (4, 0.25)].map(|(version, value)| Measured { version, value });
        assert_eq!(judge(&gate, &[kept], bad), GateVerdict::RollBack { to: 3, fell: 0.25 });
    }
}
