//! Parameters of a model on the CPU: where each tensor of the flat vector lies, its gradient, and the step.

use pulp::Arch;

use super::super::config::SgdConfig;
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
    places: Vec<Place>,
    optimizer: Optimizer,
}

impl Core {
    /// Parameters in a vector of `size`, taken from `start` as `places` say, in the flat vector's order.
    pub(super) fn new(places: Vec<Place>, size: usize, start: &[f32], config: &SgdConfig) -> Self {
        let mut parameters = Buffer::zeros(size);
        for_each_index(&places, |flat, internal| parameters[internal] = start[flat]);
        let optimizer = Optimizer::new(config, &parameters);
        Self { arch: Arch::new(), parameters, gradient: Buffer::zeros(size), places, optimizer }
    }

    /// What the optimizer keeps to from now on: where it pulls to, and a factor for each gradient; nothing if empty.
    pub(super) fn constrain(&mut self, anchor: Option<&[f32]>, free: &[f32]) {
        let size = self.parameters.len();
        let spread = |flat: &[f32]| {
            let mut internal_values = Buffer::zeros(size);
            for_each_index(&self.places, |flat_index, internal| internal_values[internal] = flat[flat_index]);
            internal_values
        };
        let anchor = anchor.map(spread);
        let free = (!free.is_empty()).then(|| spread(free));
        self.optimizer.constrain(anchor, free);
    }

    /// One step against the gradient.
    pub(super) fn step(&mut self) {
        self.optimizer.step(self.arch, &mut self.parameters, &mut self.gradient);
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
        let mut values = Vec::new();
        for_each_index(&self.places, |_, internal| values.push(internal_values[internal]));
        values
    }
}

/// Calls `visit(flat, internal)` for the two indices of each parameter, in the flat vector's order.
fn for_each_index(places: &[Place], mut visit: impl FnMut(usize, usize)) {
    let mut flat = 0;
    let mut next = |internal: usize| {
        visit(flat, internal);
        flat += 1;
    };
    for &place in places {
        match place {
            Place::Weights { dense, channels } => {
                let positions = dense.inputs / channels;
                for output in 0..dense.outputs {
                    let (panel, column) = (output / dense.width, output % dense.width);
                    let start = dense.weights + panel * dense.inputs * dense.width + column;
                    for channel in 0..channels {
                        for position in 0..positions {
                            next(start + (position * channels + channel) * dense.width);
                        }
                    }
                }
            }
            Place::Bias(dense) => (dense.bias..dense.bias + dense.outputs).for_each(&mut next),
            Place::Plain { start, length } => (start..start + length).for_each(&mut next),
        }
    }
}
