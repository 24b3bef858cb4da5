//! The character model `gru`: embedding, gated recurrent layers, scores at every position, and backpropagation through
//! the whole sequence.
//!
//! Rows are ordered by position, then by sequence, so that a step of the recurrence is one block of rows, and input
//! products and weight gradients are computed over all positions at once.

use task_spec::TrainingPlan;

use super::super::constraints::Flat;
use super::super::error::TrainError;
use super::super::examples::Examples;
use super::super::learner::{Learner, LearnerState, Score, StepResult};
use super::buffer::Buffer;
use super::core::{Core, TensorPosition};
use super::dense::{Batch, Dense, Scratch};
use super::gates::{Shape, advance, retreat};
use super::loss::cross_entropy;
use super::passes::{Passes, step};
use crate::models::Gru;

/// A recurrent layer, with the data that a backward pass needs.
struct Layer {
    /// Products of the input and of the state.
    input: Dense,
    state: Dense,
    /// Per row: the gates, the state's product, and states from the first (zero) to the last.
    gates: Buffer,
    own: Buffer,
    states: Buffer,
}

/// The character model on the CPU.
pub(super) struct Recurrent {
    core: Core,
    /// Maximum number of sequences in a chunk.
    batch: usize,
    embedding: usize,
    layers: Vec<Layer>,
    output: Dense,
    /// Characters of the batch, and their successors.
    characters: Vec<u32>,
    targets: Vec<u32>,
    embedded: Buffer,
    logits: Buffer,
    d_logits: Buffer,
    /// Gradients of a layer's states, then of the states of the layer below; of the gates' inputs; of one position's states.
    d_states: Buffer,
    d_gates: Buffer,
    carry: Buffer,
    through: Buffer,
    scratch: Scratch,
}

impl Recurrent {
    /// The model for at most `batch` sequences of `length` characters.
    pub(super) fn new(sizes: &Gru, start: &[f32], plan: &TrainingPlan, length: usize, batch: usize) -> Self {
        let (vocabulary, embedding) = (sizes.vocabulary as usize, sizes.embedding as usize);
        let (hidden, rows) = (sizes.hidden as usize, length * batch);
        let mut places = vec![TensorPosition::Plain { start: 0, length: vocabulary * embedding }];
        let mut end = vocabulary * embedding;
        let mut layers = Vec::new();
        for index in 0..sizes.layers {
            let input = Dense::new(if index == 0 { embedding } else { hidden }, 3 * hidden, end);
            let state = Dense::new(hidden, 3 * hidden, input.end());
            end = state.end();
            places.extend([input, state].map(|dense| TensorPosition::Weights { dense, channels: 1 }));
            places.extend([input, state].map(TensorPosition::Bias));
            layers.push(Layer {
                input,
                state,
                gates: Buffer::zeros(rows * input.padded()),
                own: Buffer::zeros(rows * state.padded()),
                states: Buffer::zeros((rows + batch) * hidden),
            });
        }
        let output = Dense::new(hidden, vocabulary, end);
        places.extend([TensorPosition::Weights { dense: output, channels: 1 }, TensorPosition::Bias(output)]);
        let widest = embedding.max(hidden);
        let dense = layers.iter().flat_map(|layer| [layer.input, layer.state]).chain([output]);
        Self {
            core: Core::new(places, output.end(), start, plan),
            batch,
            embedding,
            output,
            characters: Vec::with_capacity(rows),
            targets: Vec::with_capacity(rows),
            embedded: Buffer::zeros(rows * embedding),
            logits: Buffer::zeros(rows * output.padded()),
            d_logits: Buffer::zeros(rows * output.padded()),
            d_states: Buffer::zeros(rows * widest),
            d_gates: Buffer::zeros(rows * layers.first().map_or(0, |layer| layer.input.padded())),
            carry: Buffer::zeros(batch * hidden),
            through: Buffer::zeros(batch * hidden),
            scratch: Scratch::for_layers(dense),
            layers,
        }
    }

    /// Loads the chosen sequences and computes the scores at every position.
    fn forward(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(), TrainError> {
        let Examples::Text { inputs, targets, length } = *examples else {
            return Err(TrainError::WrongKind { kind: "gru", needs: "sequences of characters" });
        };
        let order = || (0..length).flat_map(|position| chosen.iter().map(move |example| example * length + position));
        self.characters.clear();
        self.characters.extend(order().map(|index| inputs[index]));
        self.targets.clear();
        self.targets.extend(order().map(|index| targets[index]));
        let (arch, parameters) = (self.core.arch, &self.core.parameters);
        let width = self.embedding;
        for (row, &character) in self.embedded.chunks_exact_mut(width).zip(&self.characters) {
            row.copy_from_slice(&parameters[character as usize * width..][..width]);
        }
        let (rows, batch) = (self.characters.len(), chosen.len());
        let mut x = Batch { rows: &self.embedded, step: width, count: rows };
        for layer in &mut self.layers {
            let Layer { input, state, gates, own, states } = layer;
            let (hidden, step) = (state.inputs, state.padded());
            input.forward(arch, parameters, x, gates);
            // The initial state; a batch of another size leaves other data there.
            states[..batch * hidden].fill(0.0);
            for position in 0..length {
                let (before, after) = states.split_at_mut((position + 1) * batch * hidden);
                let before = &before[position * batch * hidden..];
                let rows = position * batch * step..(position + 1) * batch * step;
                let own = &mut own[rows.clone()];
                state.forward(arch, parameters, Batch { rows: before, step: hidden, count: batch }, own);
                advance(arch, Shape { rows: batch, hidden, step }, &mut gates[rows], own, before, after);
            }
            x = Batch { rows: &states[batch * hidden..], step: hidden, count: rows };
        }
        self.output.forward(arch, parameters, x, &mut self.logits);
        Ok(())
    }

    fn loss(&mut self, with_gradient: bool) -> Score {
        let gradient: &mut [f32] = if with_gradient { &mut self.d_logits } else { &mut [] };
        cross_entropy(&self.logits, self.output.outputs, self.output.padded(), &self.targets, gradient)
    }
}

fn add(sum: &mut [f32], values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}

impl Passes for Recurrent {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    fn most(&self) -> usize {
        self.batch
    }

    fn backward(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen)?;
        let score = self.loss(true);
        let Core { arch, parameters, gradient, .. } = &mut self.core;
        let (arch, rows, batch) = (*arch, self.characters.len(), chosen.len());
        let Some(hidden) = self.layers.last().map(|layer| layer.state.inputs) else { return Ok(score) };
        if let Some(last) = self.layers.last() {
            let states = Batch { rows: &last.states[batch * hidden..], step: hidden, count: rows };
            self.output.gradient(arch, states, &self.d_logits, gradient);
        }
        let d_logits = Batch { rows: &self.d_logits, step: self.output.padded(), count: rows };
        self.output.input_gradient(arch, parameters, d_logits, &mut self.scratch, &mut self.d_states, hidden);
        for index in (0..self.layers.len()).rev() {
            let (below, layers) = self.layers.split_at_mut(index);
            let Layer { input, state, gates, own, states } = &mut layers[0];
            let step = state.padded();
            let carry = &mut self.carry[..batch * hidden];
            carry.fill(0.0);
            for position in (0..rows / batch).rev() {
                let numbers = position * batch * hidden..(position + 1) * batch * hidden;
                let products = position * batch * step..(position + 1) * batch * step;
                add(carry, &self.d_states[numbers.clone()]);
                let shape = Shape { rows: batch, hidden, step };
                let (gates, own) = (&gates[products.clone()], &mut own[products.clone()]);
                retreat(arch, shape, gates, own, &states[numbers], carry, &mut self.d_gates[products]);
                let through = &mut self.through[..batch * hidden];
                let own = Batch { rows: own, step, count: batch };
                state.input_gradient(arch, parameters, own, &mut self.scratch, through, hidden);
                add(carry, through);
            }
            state.gradient(arch, Batch { rows: states, step: hidden, count: rows }, own, gradient);
            let (x, step) = match below.last() {
                Some(layer) => (&layer.states[batch * hidden..], hidden),
                None => (&self.embedded[..], self.embedding),
            };
            input.gradient(arch, Batch { rows: x, step, count: rows }, &self.d_gates, gradient);
            let d_gates = Batch { rows: &self.d_gates, step: input.padded(), count: rows };
            input.input_gradient(arch, parameters, d_gates, &mut self.scratch, &mut self.d_states, step);
        }
        let width = self.embedding;
        gradient[..self.layers[0].input.weights].fill(0.0);
        for (&character, row) in self.characters.iter().zip(self.d_states.chunks_exact(width)) {
            add(&mut gradient[character as usize * width..][..width], row);
        }
        Ok(score)
    }
}

impl Learner for Recurrent {
    fn step(
        &mut self,
        examples: &Examples<'_>,
        chosen: &[usize],
        rate: f32,
    ) -> Result<(Score, StepResult), TrainError> {
        step(self, examples, chosen, rate)
    }

    fn gradient(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<(Score, Vec<f32>), TrainError> {
        let score = self.backward(examples, chosen)?;
        Ok((score, self.core.flat_gradient()))
    }

    fn score(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Score, TrainError> {
        self.forward(examples, chosen)?;
        Ok(self.loss(false))
    }

    fn logits(&mut self, examples: &Examples<'_>, chosen: &[usize]) -> Result<Vec<f32>, TrainError> {
        self.forward(examples, chosen)?;
        let (count, length) = (chosen.len(), examples.length());
        let (classes, step) = (self.output.outputs, self.output.padded());
        let order = (0..count).flat_map(|sequence| (0..length).map(move |position| position * count + sequence));
        Ok(order.flat_map(|row| &self.logits[row * step..][..classes]).copied().collect())
    }

    fn constrain(&mut self, constraints: &Flat<'_>) -> Result<(), TrainError> {
        self.core.constrain(constraints);
        Ok(())
    }

    fn values(&self) -> Result<Vec<f32>, TrainError> {
        Ok(self.core.flat_parameters())
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        Ok(self.core.state())
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.core.restore(state);
        Ok(())
    }
}
