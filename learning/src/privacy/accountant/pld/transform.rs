//! Fourier transforms of real vectors.
//!
//! The length is a power of two or three times one, so that one algorithm of `rustfft` does: its planner carries all the others,
//! a third of a megabyte of an app. A real vector is transformed as a complex one of half its length, with an element of even index
//! as a real part and the next as the imaginary one (Press et al., Numerical Recipes, §12.3).

use std::f64::consts::PI;
use std::sync::Arc;

use rustfft::algorithm::Radix4;
use rustfft::algorithm::butterflies::{Butterfly12, Butterfly16, Butterfly24, Butterfly32};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, Length as _};

pub(super) struct RealTransform {
    half: Radix4<f64>,
    /// `-i exp(-2πik / len)` for each pair of coefficients, `k` and `len / 2 - k`.
    roots: Vec<Complex<f64>>,
}

impl RealTransform {
    /// Of vectors whose length is the least possible one from `least` on.
    pub(super) fn at_least(least: usize) -> Self {
        let power = least.next_power_of_two().max(64);
        let (half, is_threefold) = if power / 4 * 3 >= least { (power / 8 * 3, true) } else { (power / 2, false) };
        let forward = FftDirection::Forward;
        let base: Arc<dyn Fft<f64>> = match (is_threefold, half.trailing_zeros() % 2 == 0) {
            (false, true) => Arc::new(Butterfly16::new(forward)),
            (false, false) => Arc::new(Butterfly32::new(forward)),
            (true, true) => Arc::new(Butterfly12::new(forward)),
            (true, false) => Arc::new(Butterfly24::new(forward)),
        };
        let levels = (half / base.len()).trailing_zeros() / 2;
        let root = |k: usize| {
            let (sin, cos) = libm::sincos(-PI * k as f64 / half as f64);
            Complex::new(sin, -cos)
        };
        Self { half: Radix4::new_with_base(levels, base), roots: (0..=half / 2).map(root).collect() }
    }

    /// Length of the vectors: at least 48.
    pub(super) fn len(&self) -> usize {
        2 * self.half.len()
    }

    /// The coefficients 0 to `len / 2` of a vector; the others are their conjugates.
    pub(super) fn forward(&self, vector: &[f64]) -> Vec<Complex<f64>> {
        debug_assert_eq!(vector.len(), self.len());
        let mut values: Vec<_> = vector.chunks_exact(2).map(|pair| Complex::new(pair[0], pair[1])).collect();
        self.half.process(&mut values);
        // Coefficients have the period `len / 2` here.
        values.push(values[0]);
        self.pair_up(&mut values, |root| root);
        values
    }

    /// The vector with these coefficients, of which the first and the last are real.
    pub(super) fn backward(&self, mut coefficients: Vec<Complex<f64>>) -> Vec<f64> {
        debug_assert_eq!(coefficients.len(), self.half.len() + 1);
        self.pair_up(&mut coefficients, |root| root.conj());
        coefficients.pop();
        // A transform backward is one forward between two conjugations.
        coefficients.iter_mut().for_each(|value| *value = value.conj());
        self.half.process(&mut coefficients);
        let scale = 1.0 / self.half.len() as f64;
        coefficients.iter().flat_map(|value| [value.re * scale, -value.im * scale]).collect()
    }

    /// From the coefficients of pairs to those of the vector or, with conjugate roots, back.
    fn pair_up(&self, values: &mut [Complex<f64>], root: impl Fn(Complex<f64>) -> Complex<f64>) {
        let half = self.half.len();
        for (k, factor) in self.roots.iter().enumerate() {
            let (one, other) = (values[k], values[half - k].conj());
            let (even, odd) = ((one + other) * 0.5, (one - other) * 0.5 * root(*factor));
            values[k] = even + odd;
            values[half - k] = (even - odd).conj();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudorandom numbers from -1 to 1.
    fn vector(len: usize) -> Vec<f64> {
        (0..len as u64)
            .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
            .collect()
    }

    #[test]
    fn lengths_are_powers_of_two_or_three_times_one() {
        let cases = [(0, 48), (48, 48), (49, 64), (65, 96), (97, 128), (129, 192), (193, 256), (3_145_728, 3_145_728)];
        for (least, len) in cases {
            assert_eq!(RealTransform::at_least(least).len(), len, "{least}");
        }
    }

    #[test]
    fn coefficients_are_those_of_the_definition() {
        for len in [48, 64, 96, 128, 192, 256, 384, 512] {
            let (transform, vector) = (RealTransform::at_least(len), vector(len));
            let coefficients = transform.forward(&vector);
            assert_eq!(coefficients.len(), len / 2 + 1);
            for (k, coefficient) in coefficients.iter().enumerate() {
                let angle = |j: usize| -2.0 * PI * (j * k % len) as f64 / len as f64;
                let expected: Complex<f64> =
                    vector.iter().enumerate().map(|(j, value)| Complex::cis(angle(j)) * value).sum();
                assert!((coefficient - expected).norm() < 1e-12, "{len}, {k}: {coefficient} for {expected}");
            }
        }
    }

    #[test]
    fn the_way_back_ends_at_the_beginning() {
        for len in [48, 64, 96, 128, 49_152, 65_536, 98_304, 131_072] {
            let (transform, vector) = (RealTransform::at_least(len), vector(len));
            let back = transform.backward(transform.forward(&vector));
            assert_eq!(back.len(), len);
            let worst = back.iter().zip(&vector).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-14, "{len}: {worst}");
        }
    }
}
