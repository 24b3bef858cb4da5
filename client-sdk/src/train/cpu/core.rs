//! A model's parameters on the CPU: the position of each tensor of the flat vector, its gradient, and the step.

use pulp::Arch;
use task_spec::TrainingPlan;

use super::super::constraints::Flat;
use super::super::learner::LearnerState;
use super::buffer::Buffer;
use super::dense::Dense;
use super::elementwise::Optimizer;

/// The position of a tensor of the flat vector among the model's parameters.
#[derive(Clone, Copy)]
pub(in crate::train) enum TensorPosition {
    /// PyTorch's `[outputs, inputs]`, whose inputs are ordered by channel there and by position here.
    Weights {
        dense: Dense,
        channels: usize,
    },
    Bias(Dense),
    /// The same order in both.
    Plain {
        start: usize,
        length: usize,
    },
}

/// The common part of all models on the CPU.
pub(in crate::train) struct Core {
    pub(in crate::train) arch: Arch,
    pub(in crate::train) parameters: Buffer,
    /// Of the last batch's mean loss.
    pub(in crate::train) gradient: Buffer,
    /// Sum over a step's chunks so far; empty until a step has several.
    sum: Buffer,
    places: Vec<TensorPosition>,
    optimizer: Optimizer,
}

impl Core {
    /// Parameters in a vector of `size`, copied from `start` to their `places`, in the flat vector's order.
    pub(in crate::train) fn new(places: Vec<TensorPosition>, size: usize, start: &[f32], plan: &TrainingPlan) -> Self {
        let mut parameters = Buffer::zeros(size);
        for_each_tile(&places, |tile| tile.spread(start, &mut parameters));
        let optimizer = Optimizer::new(plan, &parameters);
        Self { arch: Arch::new(), parameters, gradient: Buffer::zeros(size), sum: Buffer::zeros(0), places, optimizer }
    }

    /// Constraints of the optimizer from now on.
    pub(in crate::train) fn constrain(&mut self, constraints: &Flat<'_>) {
        let size = self.parameters.len();
        let spread = |flat: &[f32]| {
            let mut spread = Buffer::zeros(size);
            for_each_tile(&self.places, |tile| tile.spread(flat, &mut spread));
            spread
        };
        let anchor = constraints.anchor.map(spread);
        let free = (!constraints.free.is_empty()).then(|| spread(&constraints.free));
        let correction = constraints.correction.map(spread);
        self.optimizer.constrain(anchor, free, correction);
    }

    /// Adds the gradient of a chunk, weighted by its `part` of the step; the first chunk starts over.
    pub(in crate::train) fn accumulate(&mut self, part: f32, is_first: bool) {
        if self.sum.is_empty() {
            self.sum = Buffer::zeros(self.gradient.len());
        }
        if is_first {
            self.sum.fill(0.0);
        }
        for (sum, &gradient) in self.sum.iter_mut().zip(&*self.gradient) {
            *sum += part * gradient;
        }
    }

    /// Replaces the gradient by the accumulated one.
    pub(in crate::train) fn take_accumulated(&mut self) {
        self.gradient.copy_from_slice(&self.sum);
    }

    /// One step against the gradient.
    pub(in crate::train) fn step(&mut self, rate: f32) {
        self.optimizer.step(self.arch, rate, &mut self.parameters, &mut self.gradient);
    }

    /// The parameters as a flat vector.
    pub(in crate::train) fn flat_parameters(&self) -> Vec<f32> {
        self.flatten(&self.parameters)
    }

    /// Number of steps taken.
    pub(in crate::train) fn steps(&self) -> u64 {
        self.optimizer.steps()
    }

    /// The state between two steps.
    pub(in crate::train) fn state(&self) -> LearnerState {
        let moments = self.optimizer.moments().map(|moment| self.flatten(moment)).collect();
        LearnerState { values: self.flat_parameters(), moments, steps: self.optimizer.steps(), scale: None }
    }

    /// Goes on from a state.
    pub(in crate::train) fn restore(&mut self, state: &LearnerState) {
        for_each_tile(&self.places, |tile| tile.spread(&state.values, &mut self.parameters));
        for (moment, values) in self.optimizer.moments_mut(state.steps).zip(&state.moments) {
            for_each_tile(&self.places, |tile| tile.spread(values, moment));
        }
    }

    /// The gradient as a flat vector.
    pub(in crate::train) fn flat_gradient(&self) -> Vec<f32> {
        self.flatten(&self.gradient)
    }

    fn flatten(&self, internal_values: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; self.places.iter().map(TensorPosition::length).sum()];
        for_each_tile(&self.places, |tile| tile.flatten(internal_values, &mut values));
        values
    }
}

impl TensorPosition {
    /// Number of parameters in the tensor.
    fn length(&self) -> usize {
        match *self {
            Self::Weights { dense, .. } => dense.inputs * dense.outputs,
            Self::Bias(dense) => dense.outputs,
            Self::Plain { length, .. } => length,
        }
    }
}

/// Number of `f32`s in a cache line: rows and columns of a full tile.
const LINE: usize = 16;

/// A block of a tensor that is copied at once: its rows are contiguous in the flat vector, its columns among the
/// parameters.
struct Tile {
    /// Start in the flat vector, and the distance between rows there.
    flat: (usize, usize),
    /// Start among the parameters, and the distance between columns there.
    internal: (usize, usize),
    rows: usize,
    columns: usize,
}

impl Tile {
    /// Copies it from the flat vector to the parameters.
    fn spread(&self, flat: &[f32], internal: &mut [f32]) {
        let ((from, from_step), (to, to_step)) = (self.flat, self.internal);
        transpose(&flat[from..], from_step, &mut internal[to..], to_step, self.rows, self.columns);
    }

    fn flatten(&self, internal: &[f32], flat: &mut [f32]) {
        let ((from, from_step), (to, to_step)) = (self.internal, self.flat);
        transpose(&internal[from..], from_step, &mut flat[to..], to_step, self.columns, self.rows);
    }
}

/// `to[column][row] = from[row][column]`, with the given distances between rows of `from` and of `to`.
fn transpose(from: &[f32], from_step: usize, to: &mut [f32], to_step: usize, rows: usize, columns: usize) {
    if (rows, columns) == (LINE, LINE) {
        // The same, by full lines and with indices that skip bounds checks.
        let mut lines = [[0.0; LINE]; LINE];
        for (line, row) in lines.iter_mut().zip(from.chunks(from_step)) {
            line.copy_from_slice(&row[..LINE]);
        }
        for (column, row) in to.chunks_mut(to_step).take(LINE).enumerate() {
            for (value, line) in row[..LINE].iter_mut().zip(&lines) {
                *value = line[column];
            }
        }
        return;
    }
    if (from_step, columns) == (1, 1) {
        return to[..rows].copy_from_slice(&from[..rows]);
    }
    if (to_step, rows) == (1, 1) {
        return to[..columns].copy_from_slice(&from[..columns]);
    }
    for row in 0..rows {
        for column in 0..columns {
            to[column * to_step + row] = from[row * from_step + column];
        }
    }
}

/// Calls `visit` for tiles that cover each parameter once, in an order that suits caches on both sides.
fn for_each_tile(places: &[TensorPosition], mut visit: impl FnMut(&Tile)) {
    let mut first = 0;
    for &place in places {
        let plain = |start, length| Tile { flat: (first, length), internal: (start, 1), rows: 1, columns: length };
        match place {
            TensorPosition::Weights { dense, channels } => for_each_tile_of(dense, channels, first, &mut visit),
            TensorPosition::Bias(dense) => visit(&plain(dense.bias, dense.outputs)),
            TensorPosition::Plain { start, length } => visit(&plain(start, length)),
        }
        first += place.length();
    }
}

/// The same for a weight matrix that starts at `first` in the flat vector: a row is an output, a column an input.
fn for_each_tile_of(dense: Dense, channels: usize, first: usize, visit: &mut impl FnMut(&Tile)) {
    let positions = dense.inputs / channels;
    for output in (0..dense.outputs).step_by(LINE) {
        // Panels hold a whole number of lines.
        let (panel, column) = (output / dense.width, output % dense.width);
        let panel = dense.weights + panel * dense.width * dense.inputs + column;
        for channel in 0..channels {
            for position in (0..positions).step_by(LINE) {
                visit(&Tile {
                    flat: (first + output * dense.inputs + channel * positions + position, dense.inputs),
                    internal: (panel + (position * channels + channel) * dense.width, channels * dense.width),
                    rows: LINE.min(dense.outputs - output),
                    columns: LINE.min(positions - position),
                });
            }
        }
    }
}
