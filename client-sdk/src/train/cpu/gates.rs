//! The elementwise part of a gated recurrent unit, between its matrix products, one step of a sequence at a time (Cho
//! et al. 2014, in PyTorch's form):
//!
//! `r = σ(x_r + h_r)`, `z = σ(x_z + h_z)`, `c = tanh(x_c + r * h_c)`, `h' = (1 - z) * c + z * h`, where `x_*` and `h_*`
//! are the products of input and state with their weights, biases included.

use pulp::Arch;

/// Adjacent rows of one position of the sequences: `[rows, 3 * hidden]` at distance `step`, or `[rows, hidden]`.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) hidden: usize,
    pub(super) step: usize,
}

/// The next state, from the products of input (`gates`) and state (`own`). Afterwards `gates` holds `r`, `z`, `c`.
pub(super) fn advance(arch: Arch, shape: Shape, gates: &mut [f32], own: &[f32], before: &[f32], after: &mut [f32]) {
    let Shape { rows, hidden, step } = shape;
    for row in 0..rows {
        let (r, z, c) = thirds_mut(&mut gates[row * step..], hidden);
        let (own_r, own_z, own_c) = thirds(&own[row * step..], hidden);
        let before = &before[row * hidden..][..hidden];
        let after = &mut after[row * hidden..][..hidden];
        arch.dispatch(
            #[inline(always)]
            || {
                for i in 0..hidden {
                    r[i] = sigmoid(r[i] + own_r[i]);
                    z[i] = sigmoid(z[i] + own_z[i]);
                    c[i] = tanh(c[i] + r[i] * own_c[i]);
                    after[i] = c[i] + z[i] * (before[i] - c[i]);
                }
            },
        );
    }
}

/// The backward pass of [`advance`]. `delta` is the gradient of the next state and becomes the part of the previous
/// state's gradient that bypasses the products; `own` becomes the gradient of the state's product, `d_gates` that of
/// the input's.
pub(super) fn retreat(
    arch: Arch,
    shape: Shape,
    gates: &[f32],
    own: &mut [f32],
    before: &[f32],
    delta: &mut [f32],
    d_gates: &mut [f32],
) {
    let Shape { rows, hidden, step } = shape;
    for row in 0..rows {
        let (r, z, c) = thirds(&gates[row * step..], hidden);
        let (own_r, own_z, own_c) = thirds_mut(&mut own[row * step..], hidden);
        let (d_r, d_z, d_c) = thirds_mut(&mut d_gates[row * step..], hidden);
        let before = &before[row * hidden..][..hidden];
        let delta = &mut delta[row * hidden..][..hidden];
        arch.dispatch(
            #[inline(always)]
            || {
                for i in 0..hidden {
                    d_c[i] = delta[i] * (1.0 - z[i]) * (1.0 - c[i] * c[i]);
                    d_z[i] = delta[i] * (before[i] - c[i]) * z[i] * (1.0 - z[i]);
                    d_r[i] = d_c[i] * own_c[i] * r[i] * (1.0 - r[i]);
                    own_r[i] = d_r[i];
                    own_z[i] = d_z[i];
                    own_c[i] = d_c[i] * r[i];
                    delta[i] *= z[i];
                }
            },
        );
    }
}

fn thirds(row: &[f32], hidden: usize) -> (&[f32], &[f32], &[f32]) {
    (&row[..hidden], &row[hidden..2 * hidden], &row[2 * hidden..3 * hidden])
}

fn thirds_mut(row: &mut [f32], hidden: usize) -> (&mut [f32], &mut [f32], &mut [f32]) {
    let (first, rest) = row.split_at_mut(hidden);
    let (second, rest) = rest.split_at_mut(hidden);
    (first, second, &mut rest[..hidden])
}

#[inline(always)]
pub(in crate::train) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
pub(in crate::train) fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

/// `e^x` to about one unit in the last place, in arithmetic that compiles to vector instructions (the library's takes a
/// call per number). Constant beyond ±87, where a sigmoid is saturated. NaN stays NaN.
#[inline(always)]
pub(in crate::train) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 87.0);
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that n ln 2 is exact. Adding and subtracting 1.5 * 2^23
    // rounds to an integer, whose lowest bits are those of the sum.
    let sum = x * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = sum - 12_582_912.0;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    // Coefficients of Cephes' expf (Moshier).
    let mut p = 1.987_569_1e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p * r + coefficient;
    }
    let fraction = p * r * r + r + 1.0;
    // 2^n: n is from -126 to 126, and only its bits of an exponent stay.
    fraction * f32::from_bits((sum.to_bits() << 23).wrapping_add(127 << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_the_library() {
        for step in -9000..=9000 {
            let x = step as f32 / 100.0;
            if x.abs() <= 87.0 {
                assert!((exp(x) / x.exp() - 1.0).abs() < 3e-7, "{x}");
            }
            assert!((tanh(x) - x.tanh()).abs() < 3e-7, "{x}");
        }
        assert!(sigmoid(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
        assert_eq!((sigmoid(f32::INFINITY), tanh(f32::NEG_INFINITY)), (1.0, -1.0));
    }
}
