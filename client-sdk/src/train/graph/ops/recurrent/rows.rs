//! The gradients of gates, between the products of a recurrence.

use graph::RecurrentCell;

use super::sizes::Sizes;
use crate::train::graph::kernels::math::tanh;

/// One position of all examples, on the way back.
pub(super) struct Position<'a> {
    pub(super) gates: &'a [f32],
    pub(super) kept: &'a [f32],
    pub(super) before: &'a [f32],
    pub(super) cell_before: &'a [f32],
    pub(super) d_gates: &'a mut [f32],
    pub(super) d_own: &'a mut [f32],
}

impl Position<'_> {
    /// From the gradient of the state to those of the gates. `d_state` becomes the part that bypasses the products.
    #[inline(always)]
    pub(super) fn retreat(self, sizes: Sizes, d_state: &mut [f32], d_cell: &mut [f32]) {
        let hidden = sizes.hidden;
        for example in 0..sizes.batch {
            let (gates, states) = (example * sizes.gates, example * hidden..(example + 1) * hidden);
            let row = Row {
                gates: &self.gates[gates..gates + sizes.gates],
                kept: &self.kept[states.clone()],
                before: &self.before[states.clone()],
                d_gates: &mut self.d_gates[gates..gates + sizes.gates],
                d_state: &mut d_state[states.clone()],
            };
            match sizes.cell {
                RecurrentCell::Lstm => row.lstm(&self.cell_before[states.clone()], &mut d_cell[states]),
                RecurrentCell::Gru => row.gru(&mut self.d_own[gates..gates + sizes.gates]),
                RecurrentCell::Rnn => row.rnn(),
            }
        }
    }
}

/// One position of one example, on the way back. Short loops over few slices compile to vector instructions.
struct Row<'a> {
    gates: &'a [f32],
    kept: &'a [f32],
    before: &'a [f32],
    d_gates: &'a mut [f32],
    d_state: &'a mut [f32],
}

/// Equal parts of a row.
#[inline(always)]
fn parts<const N: usize>(row: &[f32]) -> [&[f32]; N] {
    let size = row.len() / N;
    std::array::from_fn(|index| &row[index * size..][..size])
}

/// Replaces each element by a function of it and of the elements beside it.
#[inline(always)]
fn each<const N: usize>(y: &mut [f32], of: [&[f32]; N], f: impl Fn(f32, [f32; N]) -> f32) {
    let of = of.map(|values| &values[..y.len()]);
    for (index, y) in y.iter_mut().enumerate() {
        *y = f(*y, of.map(|values| values[index]));
    }
}

impl Row<'_> {
    #[inline(always)]
    fn lstm(self, cell_before: &[f32], d_cell: &mut [f32]) {
        let ([i, o, f, c], hidden) = (parts::<4>(self.gates), self.kept.len());
        let (d_i, rest) = self.d_gates.split_at_mut(hidden);
        let (d_o, rest) = rest.split_at_mut(hidden);
        let (d_f, d_c) = rest.split_at_mut(hidden);
        let d_state = self.d_state;
        each(d_o, [self.kept], |_, [cell]| tanh(cell));
        each(d_cell, [d_state, o, d_o], |d, [d_state, o, squashed]| d + d_state * o * (1.0 - squashed * squashed));
        each(d_o, [d_state, o], |squashed, [d_state, o]| d_state * squashed * o * (1.0 - o));
        each(d_i, [d_cell, c, i], |_, [d_cell, c, i]| d_cell * c * i * (1.0 - i));
        each(d_f, [d_cell, cell_before, f], |_, [d_cell, before, f]| d_cell * before * f * (1.0 - f));
        each(d_c, [d_cell, i, c], |_, [d_cell, i, c]| d_cell * i * (1.0 - c * c));
        each(d_cell, [f], |d_cell, [f]| d_cell * f);
        d_state.fill(0.0);
    }

    #[inline(always)]
    fn gru(self, d_own: &mut [f32]) {
        let ([z, r, c], hidden) = (parts::<3>(self.gates), self.kept.len());
        let (d_z, rest) = self.d_gates.split_at_mut(hidden);
        let (d_r, d_c) = rest.split_at_mut(hidden);
        let d_state = self.d_state;
        each(d_c, [d_state, z, c], |_, [d_state, z, c]| d_state * (1.0 - z) * (1.0 - c * c));
        each(d_z, [d_state, self.before, c, z], |_, [d_state, before, c, z]| d_state * (before - c) * z * (1.0 - z));
        each(d_r, [d_c, self.kept, r], |_, [d_c, kept, r]| d_c * kept * r * (1.0 - r));
        let (both, d_candidate) = d_own.split_at_mut(2 * hidden);
        both.copy_from_slice(&self.d_gates[..2 * hidden]);
        each(d_candidate, [&self.d_gates[2 * hidden..], r], |_, [d_c, r]| d_c * r);
        each(d_state, [z], |d_state, [z]| d_state * z);
    }

    #[inline(always)]
    fn rnn(self) {
        each(self.d_gates, [self.d_state, self.gates], |_, [d_state, gate]| d_state * (1.0 - gate * gate));
        self.d_state.fill(0.0);
    }
}
