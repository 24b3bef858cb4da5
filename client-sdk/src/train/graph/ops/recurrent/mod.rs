//! Recurrences: LSTM, GRU and RNN in ONNX's form.

mod rows;
mod sizes;

use graph::{Recurrence, RecurrentCell};

use self::rows::Position;
use self::sizes::Sizes;
use crate::train::graph::context::{Context, Gradients, Recurrent, vectorized};
use crate::train::graph::kernels::math::{sigmoid, tanh};
use crate::train::graph::kernels::packing::Matrix;
use crate::train::graph::kernels::product::{Into, product};
use crate::train::graph::tensor::{Operand, Tensor};

/// A part of a tensor that has an equal part for each direction.
fn part(values: &[f32], direction: usize, directions: usize) -> &[f32] {
    let size = values.len() / directions;
    &values[direction * size..][..size]
}

fn part_mut(values: &mut [f32], direction: usize, directions: usize) -> &mut [f32] {
    let size = values.len() / directions;
    &mut values[direction * size..][..size]
}

/// Adds a row to each row.
fn add_to_each(row: &[f32], rows: &mut [f32]) {
    for values in rows.chunks_exact_mut(row.len()) {
        values.iter_mut().zip(row).for_each(|(value, row)| *value += row);
    }
}

pub(super) fn forward(
    recurrence: Recurrence,
    inputs: &[Operand<'_>],
    results: &mut [Tensor],
    saved: &mut Vec<f32>,
    context: &mut Context,
) {
    let sizes = Sizes::of(recurrence, inputs[0].shape);
    saved.resize(sizes.directions * sizes.saved(), 0.0);
    let zeros = vec![0.0; sizes.state()];
    for direction in 0..sizes.directions {
        let of = |index: usize| part(inputs[index].f32(), direction, sizes.directions);
        let (w, r, b) = (of(1), of(2), of(3));
        let (w_bias, r_bias) = b.split_at(sizes.gates);
        let (gates, states) = part_mut(saved, direction, sizes.directions).split_at_mut(sizes.all_gates());
        let x = Matrix::dense(inputs[0].f32(), sizes.length * sizes.batch, sizes.inputs);
        let weights = Matrix::dense(w, sizes.gates, sizes.inputs).transposed();
        product(context.arch, &mut context.scratch, x, weights, Into::Replace, gates);
        add_to_each(w_bias, gates);
        let initial = |index: usize| if inputs.len() > index { of(index) } else { &zeros[..] };
        let (mut state, mut cell) = (initial(4).to_vec(), initial(5).to_vec());
        let mut own = vec![0.0; sizes.batch * sizes.gates];
        context.scratch.pack(Matrix::dense(r, sizes.gates, sizes.hidden).transposed());
        for step in 0..sizes.length {
            let position = sizes.position(direction, step);
            let before = Matrix::dense(&state, sizes.batch, sizes.hidden);
            context.scratch.times(context.arch, before, Into::Replace, &mut own);
            add_to_each(r_bias, &mut own);
            let gates = &mut gates[position * own.len()..][..own.len()];
            let kept = &mut states[position * sizes.state()..][..sizes.state()];
            vectorized(
                context.arch,
                kept,
                #[inline(always)]
                |kept| advance(sizes, gates, &own, &mut state, &mut cell, kept),
            );
            let y = sizes.y(direction, position);
            results[0].f32_mut()[y..y + sizes.state()].copy_from_slice(&state);
        }
        for (result, last) in results[1..].iter_mut().zip([&state, &cell]) {
            part_mut(result.f32_mut(), direction, sizes.directions).copy_from_slice(last);
        }
    }
}

/// One step of all examples. `gates` becomes the gates' values, `kept` what the way back needs: an LSTM's cell, or a GRU's
/// product of the state before the reset gate.
#[inline(always)]
fn advance(sizes: Sizes, gates: &mut [f32], own: &[f32], state: &mut [f32], cell: &mut [f32], kept: &mut [f32]) {
    let hidden = sizes.hidden;
    let rows = gates.chunks_exact_mut(sizes.gates).zip(own.chunks_exact(sizes.gates));
    let states = state.chunks_exact_mut(hidden).zip(cell.chunks_exact_mut(hidden)).zip(kept.chunks_exact_mut(hidden));
    for ((gates, own), ((state, cell), kept)) in rows.zip(states) {
        match sizes.cell {
            RecurrentCell::Lstm => {
                gates.iter_mut().zip(own).for_each(|(gate, own)| *gate += own);
                let (sigmoids, candidates) = gates.split_at_mut(3 * hidden);
                sigmoids.iter_mut().for_each(|gate| *gate = sigmoid(*gate));
                candidates.iter_mut().for_each(|gate| *gate = tanh(*gate));
                let (i, rest) = sigmoids.split_at(hidden);
                let (o, f) = rest.split_at(hidden);
                for index in 0..hidden {
                    cell[index] = f[index] * cell[index] + i[index] * candidates[index];
                    state[index] = o[index] * tanh(cell[index]);
                }
                kept.copy_from_slice(cell);
            }
            RecurrentCell::Gru => {
                let (both, candidates) = gates.split_at_mut(2 * hidden);
                both.iter_mut().zip(own).for_each(|(gate, own)| *gate = sigmoid(*gate + own));
                kept.copy_from_slice(&own[2 * hidden..]);
                for index in 0..hidden {
                    let (z, r) = (both[index], both[hidden + index]);
                    candidates[index] = tanh(candidates[index] + r * kept[index]);
                    state[index] = candidates[index] + z * (state[index] - candidates[index]);
                }
            }
            RecurrentCell::Rnn => {
                gates.iter_mut().zip(own).for_each(|(gate, own)| *gate = tanh(*gate + own));
                state.copy_from_slice(gates);
            }
        }
    }
}

/// The gradients of one direction's gates, and what its earlier states are.
struct Back<'a> {
    sizes: Sizes,
    /// Gradients of the gates before their functions, and the state before each position.
    memory: Recurrent,
    initial_cell: &'a [f32],
}

pub(super) fn backward(
    recurrence: Recurrence,
    inputs: &[Operand<'_>],
    results: &[Operand<'_>],
    d_results: &[&[f32]],
    saved: &[f32],
    gradients: &mut Gradients<'_>,
    context: &mut Context,
) {
    let sizes = Sizes::of(recurrence, inputs[0].shape);
    let zeros = vec![0.0; sizes.state()];
    let mut memory = std::mem::take(&mut context.recurrent);
    memory.d_gates.resize(sizes.all_gates(), 0.0);
    memory.d_own.resize(if sizes.has_own_gradient() { sizes.all_gates() } else { 0 }, 0.0);
    for direction in 0..sizes.directions {
        let of = |index: usize| part(inputs[index].f32(), direction, sizes.directions);
        let initial = |index: usize| if inputs.len() > index { of(index) } else { &zeros[..] };
        copy_before(sizes, direction, results[0].f32(), initial(4), &mut memory.before);
        let mut back = Back { sizes, memory, initial_cell: initial(5) };
        let carried = |index: usize| match d_results.get(index) {
            Some(values) if !values.is_empty() => part(values, direction, sizes.directions).to_vec(),
            Some(_) | None => zeros.clone(),
        };
        let carry = [carried(1), carried(2)];
        let saved = part(saved, direction, sizes.directions);
        let carry = back.retreat(direction, of(2), saved, d_results[0], carry, context);
        back.spread(direction, inputs, gradients, context);
        for (index, carry) in carry.iter().enumerate().take(inputs.len().saturating_sub(4)) {
            if let Some(d_initial) = gradients.of(4 + index) {
                let d_initial = part_mut(d_initial, direction, sizes.directions);
                d_initial.iter_mut().zip(carry).for_each(|(d, carry)| *d += carry);
            }
        }
        memory = back.memory;
    }
    context.recurrent = memory;
}

/// Copies the state before each position of a direction.
fn copy_before(sizes: Sizes, direction: usize, y: &[f32], initial: &[f32], before: &mut Vec<f32>) {
    before.resize(sizes.length * sizes.state(), 0.0);
    for step in 0..sizes.length {
        let state = match step.checked_sub(1) {
            None => initial,
            Some(earlier) => &y[sizes.y(direction, sizes.position(direction, earlier))..][..sizes.state()],
        };
        before[sizes.position(direction, step) * sizes.state()..][..sizes.state()].copy_from_slice(state);
    }
}

impl Back<'_> {
    /// The gradient of the gates as the state's product sees it.
    fn d_own(&self) -> &[f32] {
        if self.sizes.has_own_gradient() { &self.memory.d_own } else { &self.memory.d_gates }
    }

    /// Goes back through all positions; returns the gradients of the initial state and cell.
    fn retreat(
        &mut self,
        direction: usize,
        r: &[f32],
        saved: &[f32],
        d_y: &[f32],
        carry: [Vec<f32>; 2],
        context: &mut Context,
    ) -> [Vec<f32>; 2] {
        let sizes = self.sizes;
        let (gates, states) = saved.split_at(sizes.all_gates());
        let [mut d_state, mut d_cell] = carry;
        let size = sizes.batch * sizes.gates;
        context.scratch.pack(Matrix::dense(r, sizes.gates, sizes.hidden));
        for step in (0..sizes.length).rev() {
            let position = sizes.position(direction, step);
            if !d_y.is_empty() {
                let d_y = &d_y[sizes.y(direction, position)..][..sizes.state()];
                d_state.iter_mut().zip(d_y).for_each(|(d, d_y)| *d += d_y);
            }
            let earlier = step.checked_sub(1).map(|earlier| sizes.position(direction, earlier));
            let cell_before =
                earlier.map_or(self.initial_cell, |earlier| &states[earlier * sizes.state()..][..sizes.state()]);
            let part = position * size..(position + 1) * size;
            let own_states = position * sizes.state()..(position + 1) * sizes.state();
            let at = Position {
                gates: &gates[part.clone()],
                kept: &states[own_states.clone()],
                before: &self.memory.before[own_states],
                cell_before,
                d_gates: &mut self.memory.d_gates[part.clone()],
                d_own: self.memory.d_own.get_mut(part.clone()).unwrap_or_default(),
            };
            vectorized(
                context.arch,
                at,
                #[inline(always)]
                |at| at.retreat(sizes, &mut d_state, &mut d_cell),
            );
            let d_own = Matrix::dense(&self.d_own()[part], sizes.batch, sizes.gates);
            context.scratch.times(context.arch, d_own, Into::Add, &mut d_state);
        }
        [d_state, d_cell]
    }

    /// Adds the gradients of input, weights and biases.
    fn spread(&self, direction: usize, inputs: &[Operand<'_>], gradients: &mut Gradients<'_>, context: &mut Context) {
        let sizes = self.sizes;
        let (rows, directions) = (sizes.length * sizes.batch, sizes.directions);
        let d_gates = Matrix::dense(&self.memory.d_gates, rows, sizes.gates);
        let d_own = Matrix::dense(self.d_own(), rows, sizes.gates);
        let Context { arch, scratch, .. } = context;
        if let Some(dx) = gradients.of(0) {
            let w = part(inputs[1].f32(), direction, directions);
            product(*arch, scratch, d_gates, Matrix::dense(w, sizes.gates, sizes.inputs), Into::Add, dx);
        }
        if let Some(dw) = gradients.of(1) {
            let x = Matrix::dense(inputs[0].f32(), rows, sizes.inputs);
            product(*arch, scratch, d_gates.transposed(), x, Into::Add, part_mut(dw, direction, directions));
        }
        if let Some(dr) = gradients.of(2) {
            let before = Matrix::dense(&self.memory.before, rows, sizes.hidden);
            product(*arch, scratch, d_own.transposed(), before, Into::Add, part_mut(dr, direction, directions));
        }
        if let Some(db) = gradients.of(3) {
            let (of_input, of_state) = part_mut(db, direction, directions).split_at_mut(sizes.gates);
            for (sum, rows) in [(of_input, &self.memory.d_gates[..]), (of_state, self.d_own())] {
                for row in rows.chunks_exact(sizes.gates) {
                    sum.iter_mut().zip(row).for_each(|(sum, row)| *sum += row);
                }
            }
        }
    }
}
