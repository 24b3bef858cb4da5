//! Functions of one number in arithmetic that compiles to vector instructions.

pub(in crate::train::graph) use crate::train::cpu::gates::{exp, sigmoid, tanh};

/// The error function to a few units in the last place: the rational approximation of Eigen's `erf`.
#[inline(always)]
pub(in crate::train::graph) fn erf(x: f32) -> f32 {
    let x = x.clamp(-4.0, 4.0);
    let square = x * x;
    let mut p = -2.726_142_3e-10_f32;
    for coefficient in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2] {
        p = p * square + coefficient;
    }
    let mut q = -1.456_607_2e-5_f32;
    for coefficient in [-2.133_740_6e-4, -1.682_827_e-3, -7.373_329e-3, -1.426_473_9e-2] {
        q = q * square + coefficient;
    }
    x * p / q
}

/// `ln(1 + e^x)` without overflow.
#[inline(always)]
pub(in crate::train::graph) fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Lanes of sums over many numbers.
const LANES: usize = 16;

/// Combines numbers by `f`, whose neutral element is `start`: in several lanes, whose order is fixed.
#[inline(always)]
pub(in crate::train::graph) fn in_lanes(values: &[f32], start: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &value)| *lane = f(*lane, value));
    }
    lanes.iter().chain(rest).fold(start, |all, &value| f(all, value))
}

/// The sum of numbers.
#[inline(always)]
pub(in crate::train::graph) fn sum(values: &[f32]) -> f32 {
    in_lanes(values, 0.0, |sum, value| sum + value)
}

/// The sum of products.
#[inline(always)]
pub(in crate::train::graph) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((lane, a), b)| *lane += a * b);
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_equals_known_values() {
        // NIST, Digital Library of Mathematical Functions, 7.2; digits from an evaluation in 50 digits.
        for (x, expected) in [
            (0.0, 0.0),
            (0.1, 0.112_462_92),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (1.5, 0.966_105_15),
            (2.0, 0.995_322_3),
            (3.0, 0.999_977_9),
            (5.0, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 4e-7, "{x}: {}", erf(x));
            assert!((erf(-x) + expected).abs() < 4e-7, "{x}");
        }
        assert!(erf(f32::NAN).is_nan());
    }
}
