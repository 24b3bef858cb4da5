//! A clipping norm that follows a quantile of the updates' norms (Andrew, Thakkar, McMahan, Ramaswamy 2021).
//!
//! Each participant says in one more coordinate of the same sum whether its norm was within the bound; the noise of the
//! release covers that coordinate too. The bound then moves geometrically towards the quantile.

use serde::{Deserialize, Serialize};

/// How the norm adapts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveClip {
    /// The part of updates that should be within the norm, above 0 and below 1.
    #[serde(default = "half")]
    pub quantile: f64,
    /// The norm of the first round.
    pub initial: f64,
    /// How fast it moves; the paper's 0.2.
    #[serde(default = "fifth")]
    pub learning_rate: f64,
}

fn half() -> f64 {
    0.5
}

fn fifth() -> f64 {
    0.2
}

/// Factor by which the norm may leave its initial value, in all.
const RANGE: f64 = 1e6;

impl AdaptiveClip {
    /// What is wrong with it, if anything.
    #[must_use]
    pub fn problem(&self) -> Option<&'static str> {
        if !(self.quantile > 0.0 && self.quantile < 1.0) {
            Some("the quantile must be above 0 and below 1")
        } else if !(self.initial.is_normal() && self.initial > 0.0) {
            Some("the initial norm must be a normal number above 0")
        } else if !(self.learning_rate > 0.0 && self.learning_rate <= 1.0) {
            Some("the learning rate must be above 0 and at most 1")
        } else {
            None
        }
    }

    /// The norm of the next round. `within` estimates the part of updates whose norm was within `clip`; noise may carry it
    /// below 0 or above 1, and it counts as such an end then.
    #[must_use]
    pub fn next(&self, clip: f64, within: f64) -> f64 {
        let within = if within.is_nan() { self.quantile } else { within.clamp(0.0, 1.0) };
        let moved = clip * libm::exp(-self.learning_rate * (within - self.quantile));
        moved.clamp(self.initial / RANGE, self.initial * RANGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: AdaptiveClip = AdaptiveClip { quantile: 0.5, initial: 1.0, learning_rate: 0.2 };

    #[test]
    fn finds_the_median_of_norms() {
        // Norms 0.1, 0.2 … 10.0: the median is 5.
        let within = |clip: f64| (1..=100).filter(|&k| f64::from(k) / 10.0 <= clip).count() as f64 / 100.0;
        let clip = (0..200).fold(CLIP.initial, |clip, _| CLIP.next(clip, within(clip)));
        assert!((clip - 5.0).abs() < 0.3, "{clip}");
    }

    #[test]
    fn is_the_papers_rule_and_bounded() {
        assert_eq!(CLIP.next(3.0, 0.5), 3.0);
        assert!((CLIP.next(3.0, 1.0) - 3.0 * (-0.1_f64).exp()).abs() < 1e-15);
        assert_eq!(CLIP.next(3.0, 77.0), CLIP.next(3.0, 1.0));
        assert_eq!(CLIP.next(3.0, f64::NAN), 3.0);
        assert_eq!((0..10_000).fold(1.0, |clip, _| CLIP.next(clip, 0.0)), 1e6);
        assert_eq!((0..10_000).fold(1.0, |clip, _| CLIP.next(clip, 1.0)), 1e-6);
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(CLIP.problem(), None);
        for quantile in [0.0, 1.0, f64::NAN] {
            assert!(AdaptiveClip { quantile, ..CLIP }.problem().unwrap().contains("quantile"));
        }
        for initial in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(AdaptiveClip { initial, ..CLIP }.problem().unwrap().contains("norm"));
        }
        assert!(AdaptiveClip { learning_rate: 0.0, ..CLIP }.problem().unwrap().contains("rate"));
    }
}
