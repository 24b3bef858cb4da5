//! Parameters of a model on the CPU: where each tensor of the flat vector lies, its gradient, and the step.

use pulp::Arch;

use super::super::config::SgdConfig;
use super::super::constraints::Flat;
use super::buffer::Buffer;
use super::dense::Dense;
use super::elementwise::Optimizer;

/// Where a tensor of the flat vector lies among the model's parameters.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// PyTorch's `[outputs, inputs]`, whose inputs are numbered channel by channel there and position by position here.
    Weights { dense: Dense, channels: usize },
    /// The bias of a layer.
    Bias(Dense),
    /// The same order in both.
    Plain { start: usize, length: usize },
}

/// What every model on the CPU has.
pub(super) struct Core {
    pub(super) arch: Arch,
    pub(super) parameters: Buffer,
    /// Of the last batch's mean loss.
    pub(super) gradient: Buffer,
    /// Of the chunks of a step so far; empty until a step has several.
    sum: Buffer,
    places: Vec<Place>,
    optimizer: Optimizer,
}

impl Core {
    /// Parameters in a vector of `size`, taken from `start` as `places` say, in the flat vector's order.
    pub(super) fn new(places: Vec<Place>, size: usize, start: &[f32], config: &SgdConfig) -> Self {
        let mut parameters = Buffer::zeros(size);
        let internal_values = &mut *parameters;
        for_each_index(&places, |flat, internal| internal_values[internal] = start[flat]);
        let optimizer = Optimizer::new(config, &parameters);
        Self { arch: Arch::new(), parameters, gradient: Buffer::zeros(size), sum: Buffer::zeros(0), places, optimizer }
    }

    /// What the optimizer keeps to from now on.
    pub(super) fn constrain(&mut self, constraints: &Flat<'_>) {
        let size = self.parameters.len();
        let spread = |flat: &[f32]| {
            let mut spread = Buffer::zeros(size);
            let internal_values = &mut *spread;
            for_each_index(&self.places, |flat_index, internal| internal_values[internal] = flat[flat_index]);
            spread
        };
        let anchor = constraints.anchor.map(spread);
        let free = (!constraints.free.is_empty()).then(|| spread(&constraints.free));
        let correction = constraints.correction.map(spread);
        self.optimizer.constrain(anchor, free, correction);
    }

    /// Adds the gradient of a chunk, which is this part of its step, to those of the chunks before; the first begins anew.
    pub(super) fn accumulate(&mut self, part: f32, is_first: bool) {
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

    /// Takes what was accumulated for the gradient.
    pub(super) fn take_accumulated(&mut self) {
        self.gradient.copy_from_slice(&self.sum);
    }

    /// One step against the gradient.
    pub(super) fn step(&mut self, rate: f32) {
        self.optimizer.step(self.arch, rate, &mut self.parameters, &mut self.gradient);
    }

    /// The parameters as a flat vector.
    pub(super) fn flat_parameters(&self) -> Vec<f32> {
        self.flatten(&self.parameters)
    }

    /// The gradient as a flat vector.
    pub(super) fn flat_gradient(&self) -> Vec<f32> {
        self.flatten(&self.gradient)
    }

    fn flatten(&self, internal_values: &[f32]) -> Vec<f32> {
        let mut values = vec![0.0; self.places.iter().map(Place::length).sum()];
        for_each_index(&self.places, |flat, internal| values[flat] = internal_values[internal]);
        values
    }
}

impl Place {
    /// Parameters in the tensor.
    fn length(&self) -> usize {
        match *self {
            Self::Weights { dense, .. } => dense.inputs * dense.outputs,
            Self::Bias(dense) => dense.outputs,
            Self::Plain { length, .. } => length,
        }
    }
}

/// Elements of an output's row in the flat vector that are visited before those of the next output: a cache line.
const LINE: usize = 16;

/// Calls `visit(flat, internal)` for the two indices of each parameter, in an order that is kind to caches in both.
#[inline(always)]
fn for_each_index(places: &[Place], mut visit: impl FnMut(usize, usize)) {
    let mut first = 0;
    for &place in places {
        match place {
            Place::Weights { dense, channels } => for_each_weight(dense, channels, first, &mut visit),
            Place::Bias(dense) => (0..dense.outputs).for_each(|index| visit(first + index, dense.bias + index)),
            Place::Plain { start, length } => (0..length).for_each(|index| visit(first + index, start + index)),
        }
        first += place.length();
    }
}

/// The same for a weight matrix that begins at `first` in the flat vector.
#[inline(always)]
fn for_each_weight(dense: Dense, channels: usize, first: usize, visit: &mut impl FnMut(usize, usize)) {
    let positions = dense.inputs / channels;
    for output in (0..dense.outputs).step_by(dense.width) {
        let columns = dense.width.min(dense.outputs - output);
        for channel in 0..channels {
            for start in (0..positions).step_by(LINE) {
                for position in start..positions.min(start + LINE) {
                    let flat = first + output * dense.inputs + channel * positions + position;
                    let row = output * dense.inputs + (position * channels + channel) * dense.width;
                    (0..columns).for_each(|c| visit(flat + c * dense.inputs, dense.weights + row + c));
                }
            }
        }
    }
}
