//! Fully connected layers: `y = x W + b`, ReLU between them.
//!
//! Weights lie as panels of [`Dense::width`] outputs: panel, then input, then output within the panel. Outputs are
//! padded with zeros to whole panels, in weights and activations alike; padding stays zero through training because its
//! gradients are zero.

use pulp::Arch;

use super::buffer::Buffer;
use super::elementwise;
use super::gemm::{NARROW, OuterProduct, RowProduct, Rows, WIDE};

/// Sizes of a layer and the position of its parameters.
#[derive(Clone, Copy, Debug)]
pub(in crate::train) struct Dense {
    pub(in crate::train) inputs: usize,
    pub(in crate::train) outputs: usize,
    /// Outputs per panel.
    pub(in crate::train) width: usize,
    /// Start of the weights in the parameter vector.
    pub(in crate::train) weights: usize,
    /// Start of the bias.
    pub(in crate::train) bias: usize,
}

/// A batch of row vectors at distance `step`.
#[derive(Clone, Copy)]
pub(in crate::train) struct Batch<'a> {
    pub(in crate::train) rows: &'a [f32],
    pub(in crate::train) step: usize,
    pub(in crate::train) count: usize,
}

/// Panel width for this many columns.
pub(in crate::train) fn panel_width(columns: usize) -> usize {
    if columns <= NARROW { NARROW } else { WIDE }
}

impl Dense {
    /// A layer whose parameters start at `start`.
    pub(in crate::train) fn new(inputs: usize, outputs: usize, start: usize) -> Self {
        let width = panel_width(outputs);
        let padded = outputs.next_multiple_of(width);
        Self { inputs, outputs, width, weights: start, bias: start + inputs * padded }
    }

    /// Outputs including padding.
    pub(in crate::train) fn padded(&self) -> usize {
        self.outputs.next_multiple_of(self.width)
    }

    /// Where the next layer's parameters may start.
    pub(in crate::train) fn end(&self) -> usize {
        self.bias + self.padded()
    }

    fn panel(&self, index: usize) -> std::ops::Range<usize> {
        let size = self.inputs * self.width;
        self.weights + index * size..self.weights + (index + 1) * size
    }

    /// `y = x W + b`; rows of `y` are at distance [`Self::padded`].
    pub(in crate::train) fn forward(&self, arch: Arch, parameters: &[f32], x: Batch<'_>, y: &mut [f32]) {
        let padded = self.padded();
        for panel in 0..padded / self.width {
            RowProduct {
                a: x.rows,
                rows: Rows::even(x.step),
                segments: 1,
                segment_step: 0,
                length: self.inputs,
                b: &parameters[self.panel(panel)],
                width: self.width,
                c: &mut y[panel * self.width..],
                c_step: padded,
                m: x.count,
            }
            .run(arch);
        }
        elementwise::add_to_rows(arch, &parameters[self.bias..self.bias + padded], &mut y[..x.count * padded]);
    }

    /// Writes the gradients of weights and bias, given that of `y`.
    pub(in crate::train) fn gradient(&self, arch: Arch, x: Batch<'_>, dy: &[f32], gradient: &mut [f32]) {
        let padded = self.padded();
        for panel in 0..padded / self.width {
            OuterProduct {
                a: x.rows,
                a_start: 0,
                a_segment: 0,
                a_step: x.step,
                b: dy,
                b_start: panel * self.width,
                b_segment: 0,
                b_step: padded,
                segments: 1,
                length: x.count,
                m: self.inputs,
                width: self.width,
                c: &mut gradient[self.panel(panel)],
                accumulate: false,
            }
            .run(arch);
        }
        let bias = &mut gradient[self.bias..self.bias + padded];
        bias.fill(0.0);
        elementwise::add_rows(arch, &dy[..x.count * padded], bias);
    }

    /// `dx = dy W^T`, with rows of `dx` at distance `step`. Weights are read along their rows, so this computes `dx^T =
    /// W dy^T`.
    pub(in crate::train) fn input_gradient(
        &self,
        arch: Arch,
        parameters: &[f32],
        dy: Batch<'_>,
        scratch: &mut Scratch,
        dx: &mut [f32],
        step: usize,
    ) {
        let padded = self.padded();
        let width = panel_width(dy.count);
        for first in (0..dy.count).step_by(width) {
            let rows = width.min(dy.count - first);
            let transposed = &mut scratch.transposed[..padded * width];
            transposed.fill(0.0);
            for row in 0..rows {
                for (output, &value) in dy.rows[(first + row) * dy.step..][..padded].iter().enumerate() {
                    transposed[output * width + row] = value;
                }
            }
            let product = &mut scratch.product[..self.inputs * width];
            RowProduct {
                a: &parameters[self.weights..self.bias],
                rows: Rows::even(self.width),
                segments: padded / self.width,
                segment_step: self.inputs * self.width,
                length: self.width,
                b: transposed,
                width,
                c: product,
                c_step: width,
                m: self.inputs,
            }
            .run(arch);
            for row in 0..rows {
                let dx = &mut dx[(first + row) * step..][..self.inputs];
                for (value, products) in dx.iter_mut().zip(product.chunks_exact(width)) {
                    *value = products[row];
                }
            }
        }
    }
}

/// Working memory of [`Dense::input_gradient`].
pub(in crate::train) struct Scratch {
    transposed: Buffer,
    product: Buffer,
}

impl Scratch {
    /// Enough for each of these layers.
    pub(in crate::train) fn for_layers(layers: impl IntoIterator<Item = Dense>) -> Self {
        let (outputs, inputs) = layers
            .into_iter()
            .fold((0, 0), |(outputs, inputs), layer| (layer.padded().max(outputs), layer.inputs.max(inputs)));
        Self { transposed: Buffer::zeros(outputs * WIDE), product: Buffer::zeros(inputs * WIDE) }
    }
}

/// Consecutive layers, with the data that a backward pass needs.
pub(in crate::train) struct Chain {
    layers: Vec<Dense>,
    /// After ReLU, except for the last layer.
    outputs: Vec<Buffer>,
    /// Gradient of each layer's output before ReLU.
    deltas: Vec<Buffer>,
    scratch: Scratch,
}

impl Chain {
    /// Layers for batches of at most `batch` examples.
    pub(in crate::train) fn new(layers: Vec<Dense>, batch: usize) -> Self {
        let room = |layer: &Dense| Buffer::zeros(layer.padded() * batch);
        Self {
            outputs: layers.iter().map(room).collect(),
            deltas: layers.iter().map(room).collect(),
            scratch: Scratch::for_layers(layers.iter().copied()),
            layers,
        }
    }

    pub(in crate::train) fn layers(&self) -> &[Dense] {
        &self.layers
    }

    /// Runs the batch through all layers. The last outputs are then in [`Self::logits`].
    pub(in crate::train) fn forward(&mut self, arch: Arch, parameters: &[f32], x: Batch<'_>) {
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, after) = self.outputs.split_at_mut(index);
            let input = before.last().map_or(x, |rows| Batch { rows, step: self.layers[index - 1].padded(), ..x });
            layer.forward(arch, parameters, input, &mut after[0]);
            if index + 1 < self.layers.len() {
                elementwise::relu(arch, &mut after[0][..x.count * layer.padded()]);
            }
        }
    }

    /// Outputs of the last layer and the buffer of their gradient; rows are at distance [`Dense::padded`].
    pub(in crate::train) fn logits(&mut self) -> (&[f32], &mut [f32], usize, usize) {
        let last = self.layers.len() - 1;
        let layer = self.layers[last];
        (&self.outputs[last], &mut self.deltas[last], layer.outputs, layer.padded())
    }

    /// Writes the gradient of every layer, given that of the logits, and writes that of the chain's input into `dx`,
    /// with rows at distance `x.step`.
    pub(in crate::train) fn backward(
        &mut self,
        arch: Arch,
        parameters: &[f32],
        x: Batch<'_>,
        gradient: &mut [f32],
        dx: Option<&mut [f32]>,
    ) {
        for index in (1..self.layers.len()).rev() {
            let layer = self.layers[index];
            let step = self.layers[index - 1].padded();
            let input = &self.outputs[index - 1];
            let (before, after) = self.deltas.split_at_mut(index);
            layer.gradient(arch, Batch { rows: input, step, ..x }, &after[0], gradient);
            let delta = &mut before[index - 1];
            let dy = Batch { rows: &after[0], step: layer.padded(), ..x };
            layer.input_gradient(arch, parameters, dy, &mut self.scratch, delta, step);
            elementwise::mask(arch, &mut delta[..x.count * step], &input[..x.count * step]);
        }
        self.layers[0].gradient(arch, x, &self.deltas[0], gradient);
        if let Some(dx) = dx {
            let dy = Batch { rows: &self.deltas[0], step: self.layers[0].padded(), ..x };
            self.layers[0].input_gradient(arch, parameters, dy, &mut self.scratch, dx, x.step);
        }
    }
}
