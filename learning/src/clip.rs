//! L2 clipping of an update to a bound fixed by the task.
//!
//! The client scales the whole update so that its norm is at most the bound. The server only puts the bound into the task; clipping is
//! stateless between rounds.

use crate::vectorized::vectorized;

/// A fixed bound on the L2 norm; finite and above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FixedClip {
    bound: f32,
}

/// A bound that is not finite and positive.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the clipping norm must be finite and above 0, not {0}")]
pub struct BadClipNorm(pub f32);

impl FixedClip {
    /// # Errors
    /// [`BadClipNorm`] unless the bound is finite and above 0.
    pub fn new(bound: f32) -> Result<Self, BadClipNorm> {
        if bound.is_finite() && bound > 0.0 { Ok(Self { bound }) } else { Err(BadClipNorm(bound)) }
    }

    #[must_use]
    pub fn bound(self) -> f32 {
        self.bound
    }

    /// Factor that clips an update of this norm: 1 within the bound, `bound / norm` beyond. The product exceeds the
    /// bound by `f64` rounding at most.
    #[must_use]
    pub fn factor(self, norm: f64) -> f64 {
        let bound = f64::from(self.bound);
        if norm > bound { bound / norm } else { 1.0 }
    }
}

/// Effect of clipping on an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipping {
    /// L2 norm of the update before it is clipped.
    pub norm: f64,
    /// The bound on it, if the task has one.
    pub bound: Option<f32>,
    /// Coordinates outside of ± `range` once the norm is clipped.
    pub outside: usize,
    /// The bound on each coordinate, if the task's codec has one.
    pub range: Option<f32>,
}

impl Clipping {
    /// `None` if the update is within both limits.
    #[must_use]
    pub fn of(delta: &[f32], bound: Option<FixedClip>, range: Option<f32>) -> Option<Self> {
        let norm = norm(delta);
        let factor = bound.map_or(1.0, |bound| bound.factor(norm));
        let is_outside = |value: &&f32| range.is_some_and(|range| f64::from(value.abs()) * factor > f64::from(range));
        let outside = delta.iter().filter(is_outside).count();
        (factor < 1.0 || outside > 0).then_some(Self { norm, bound: bound.map(FixedClip::bound), outside, range })
    }
}

/// In words for people.
impl std::fmt::Display for Clipping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let norm = self.bound.filter(|&bound| self.norm > f64::from(bound));
        if let Some(bound) = norm {
            write!(f, "its norm of {:.3} was scaled to the task's {bound}", self.norm)?;
        }
        if let Some(range) = self.range.filter(|_| self.outside > 0) {
            let and = if norm.is_some() { ", and " } else { "" };
            let coordinates = if self.outside == 1 { "coordinate was" } else { "coordinates were" };
            write!(f, "{and}{} {coordinates} cut to the task's ±{range}", self.outside)?;
        }
        Ok(())
    }
}

/// Independent partial sums: fast, and the order of additions is the same on every device.
const LANES: usize = 8;

/// The L2 norm, computed in `f64`. Finite exactly when every value is: the square of an `f32` cannot overflow an `f64`.
#[must_use]
pub fn norm(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    vectorized(
        #[inline(always)]
        || {
            let mut lanes = [0.0_f64; LANES];
            for chunk in chunks {
                for (lane, &value) in lanes.iter_mut().zip(chunk) {
                    *lane += f64::from(value) * f64::from(value);
                }
            }
            for (lane, &value) in lanes.iter_mut().zip(rest) {
                *lane += f64::from(value) * f64::from(value);
            }
            lanes.iter().fold(0.0, |sum, lane| sum + lane).sqrt()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_small_updates_alone_and_shrinks_large_ones_to_the_bound() {
        let clip = FixedClip::new(1.0).unwrap();
        assert_eq!(clip.factor(0.0), 1.0);
        assert_eq!(clip.factor(1.0), 1.0);
        let values: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.0) / 7.0).collect();
        let factor = clip.factor(norm(&values));
        let clipped = values.iter().map(|&v| (f64::from(v) * factor).powi(2)).sum::<f64>().sqrt();
        assert!((clipped - 1.0).abs() < 1e-12, "{clipped}");
    }

    #[test]
    fn what_clipping_takes_is_told_and_nothing_if_it_takes_nothing() {
        let bound = FixedClip::new(5.0).ok();
        assert_eq!(Clipping::of(&[3.0, -4.0], bound, Some(4.0)), None);
        assert_eq!(Clipping::of(&[3e9, -4.0], None, None), None);
        let both = Clipping::of(&[6.0, -8.0], bound, Some(3.5)).unwrap();
        assert_eq!(both, Clipping { norm: 10.0, bound: Some(5.0), outside: 1, range: Some(3.5) });
        assert_eq!(
            both.to_string(),
            "its norm of 10.000 was scaled to the task's 5, and 1 coordinate was cut to the task's ±3.5"
        );
        let range = Clipping::of(&[3.0, -4.0], bound, Some(1.0)).unwrap();
        assert_eq!(range.to_string(), "2 coordinates were cut to the task's ±1");
    }

    #[test]
    fn norm_agrees_with_known_values() {
        assert_eq!(norm(&[]), 0.0);
        assert_eq!(norm(&[3.0, -4.0]), 5.0);
        assert_eq!(norm(&[1.0; 10_000]), 100.0);
        assert!(norm(&[f32::MAX; 100]).is_finite());
        assert!(!norm(&[0.0, f32::NAN]).is_finite());
        assert!(!norm(&[0.0, f32::INFINITY]).is_finite());
    }

    #[test]
    fn refuses_bounds_that_are_no_norm() {
        for bad in [0.0, -1.0, f32::INFINITY] {
            assert_eq!(FixedClip::new(bad), Err(BadClipNorm(bad)));
        }
        assert!(FixedClip::new(f32::NAN).is_err());
    }
}
