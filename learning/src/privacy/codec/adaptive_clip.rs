//! A clipping norm that tracks a quantile of the updates' norms (Andrew, Thakkar, McMahan, Ramaswamy 2021).
//!
//! Each participant reports in one more coordinate of the same sum whether its norm was within the bound; the release's
//! noise covers that coordinate too. The bound then moves geometrically towards the quantile.

use task_spec::AdaptiveClip;

/// Maximum factor between the norm and its initial value, in total.
const RANGE: f64 = 1e6;

/// The clipping norm of the next round. `within` estimates the share of updates whose norm was within `clip`; noise may
/// push it below 0 or above 1, where it is clamped.
#[must_use]
pub fn next_clip(adaptive: &AdaptiveClip, clip: f64, within: f64) -> f64 {
    let within = if within.is_nan() { adaptive.quantile } else { within.clamp(0.0, 1.0) };
    let moved = clip * libm::exp(-adaptive.learning_rate * (within - adaptive.quantile));
    moved.clamp(adaptive.initial / RANGE, adaptive.initial * RANGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: AdaptiveClip = AdaptiveClip { quantile: 0.5, initial: 1.0, learning_rate: 0.2 };

    #[test]
    fn finds_the_median_of_norms() {
        // Norms 0.1, 0.2 … 10.0: the median is 5.
        let within = |clip: f64| (1..=100).filter(|&k| f64::from(k) / 10.0 <= clip).count() as f64 / 100.0;
        let clip = (0..200).fold(CLIP.initial, |clip, _| next_clip(&CLIP, clip, within(clip)));
        assert!((clip - 5.0).abs() < 0.3, "{clip}");
    }

    #[test]
    fn is_the_papers_rule_and_bounded() {
        assert_eq!(next_clip(&CLIP, 3.0, 0.5), 3.0);
        assert!((next_clip(&CLIP, 3.0, 1.0) - 3.0 * (-0.1_f64).exp()).abs() < 1e-15);
        assert_eq!(next_clip(&CLIP, 3.0, 77.0), next_clip(&CLIP, 3.0, 1.0));
        assert_eq!(next_clip(&CLIP, 3.0, f64::NAN), 3.0);
        assert_eq!((0..10_000).fold(1.0, |clip, _| next_clip(&CLIP, clip, 0.0)), 1e6);
        assert_eq!((0..10_000).fold(1.0, |clip, _| next_clip(&CLIP, clip, 1.0)), 1e-6);
    }
}
