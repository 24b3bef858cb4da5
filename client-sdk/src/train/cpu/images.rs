//! The two convolutions before a CNN's dense layers, over a batch.

use pulp::Arch;

use super::buffer::Buffer;
use super::conv::Conv;

/// Two convolutions, with the data of each image that a backward pass needs.
pub(super) struct Images {
    first: Conv,
    second: Conv,
    /// Per image: bordered input, bordered input of the second convolution, features.
    inputs: Buffer,
    middles: Buffer,
    features: Buffer,
    /// Gradient of the features.
    deltas: Buffer,
    first_winners: Vec<u32>,
    second_winners: Vec<u32>,
    /// For a single image: convolution output, gradients of both outputs (bordered) and of the second's input.
    out: Buffer,
    first_delta: Buffer,
    second_delta: Buffer,
    middle_delta: Buffer,
    flipped: Buffer,
}

impl Images {
    pub(super) fn new(first: Conv, second: Conv, batch: usize) -> Self {
        let (channels, outputs) = (first.dense.outputs, second.dense.outputs);
        let area = |conv: &Conv| conv.height * conv.width * conv.dense.outputs;
        let pooled = |conv: &Conv| conv.pooled().0 * conv.pooled().1 * conv.dense.outputs;
        Self {
            inputs: Buffer::zeros(first.bordered(first.channels) * batch),
            middles: Buffer::zeros(second.bordered(channels) * batch),
            features: Buffer::zeros(pooled(&second) * batch),
            deltas: Buffer::zeros(pooled(&second) * batch),
            first_winners: vec![0; pooled(&first) * batch],
            second_winners: vec![0; pooled(&second) * batch],
            out: Buffer::zeros(area(&first).max(area(&second))),
            first_delta: Buffer::zeros(first.bordered(channels)),
            second_delta: Buffer::zeros(second.bordered(outputs)),
            middle_delta: Buffer::zeros(second.height * second.width * channels),
            flipped: Buffer::zeros(second.dense.inputs * outputs),
            first,
            second,
        }
    }

    /// The convolutions, first and second.
    pub(super) fn layers(&self) -> [&Conv; 2] {
        [&self.first, &self.second]
    }

    /// Number of features per image.
    pub(super) fn width(&self) -> usize {
        self.second.pooled().0 * self.second.pooled().1 * self.second.dense.outputs
    }

    /// Features of the last [`Self::forward`], dense rows.
    pub(super) fn features(&self) -> &[f32] {
        &self.features
    }

    /// The features and the buffer of their gradient.
    pub(super) fn features_and_delta(&mut self) -> (&[f32], &mut [f32]) {
        (&self.features, &mut self.deltas)
    }

    /// Stores an example (channel, row, column) at `index` of the batch.
    pub(super) fn load(&mut self, index: usize, example: &[f32]) {
        let Conv { height, width, channels, .. } = self.first;
        let size = self.first.bordered(channels);
        let image = &mut self.inputs[index * size..][..size];
        for (channel, plane) in example.chunks_exact(height * width).enumerate() {
            for (y, line) in plane.chunks_exact(width).enumerate() {
                let start = self.first.pixel(y, 0, channels) + channel;
                for (x, &value) in line.iter().enumerate() {
                    image[start + x * channels] = value;
                }
            }
        }
    }

    /// Computes the features of the first `count` images.
    pub(super) fn forward(&mut self, arch: Arch, parameters: &[f32], count: usize) {
        let (first, second, width) = (self.first, self.second, self.width());
        let (input, middle) = (first.bordered(first.channels), second.bordered(second.channels));
        let (_, features_per_line) = second.pooled();
        let (first_size, outputs) = (self.first_winners_size(), second.dense.outputs);
        for index in 0..count {
            first.forward(arch, parameters, &self.inputs[index * input..][..input], &mut self.out);
            let pooled = &mut self.middles[index * middle..][..middle];
            let winners = &mut self.first_winners[index * first_size..][..first_size];
            first.pool(arch, parameters, &self.out, pooled, winners, |y, x| second.pixel(y, x, second.channels));
            second.forward(arch, parameters, pooled, &mut self.out);
            let features = &mut self.features[index * width..][..width];
            let winners = &mut self.second_winners[index * width..][..width];
            let place = |y: usize, x: usize| (y * features_per_line + x) * outputs;
            second.pool(arch, parameters, &self.out, features, winners, place);
        }
    }

    fn first_winners_size(&self) -> usize {
        self.first.pooled().0 * self.first.pooled().1 * self.first.dense.outputs
    }

    /// Writes the gradients of both convolutions, given that of the features of `count` images.
    pub(super) fn backward(&mut self, arch: Arch, parameters: &[f32], count: usize, gradient: &mut [f32]) {
        let (first, second, width) = (self.first, self.second, self.width());
        let (input, middle) = (first.bordered(first.channels), second.bordered(second.channels));
        let first_size = self.first_winners_size();
        let (_, features_per_line) = second.pooled();
        let (channels, outputs) = (second.channels, second.dense.outputs);
        for conv in [first, second] {
            gradient[conv.dense.weights..conv.dense.end()].fill(0.0);
        }
        second.flip(parameters, &mut self.flipped);
        for index in 0..count {
            let delta = &self.deltas[index * width..][..width];
            let features = &self.features[index * width..][..width];
            let winners = &self.second_winners[index * width..][..width];
            let pixel = |y: usize, x: usize| {
                let start = (y * features_per_line + x) * outputs;
                (&delta[start..], &features[start..])
            };
            second.unpool(arch, pixel, winners, &mut self.second_delta);
            let image = &self.middles[index * middle..][..middle];
            second.gradient(arch, image, &self.second_delta, gradient);
            second.input_gradient(arch, &self.flipped, &self.second_delta, &mut self.middle_delta);
            let winners = &self.first_winners[index * first_size..][..first_size];
            let delta = &self.middle_delta;
            let pixel = |y: usize, x: usize| {
                (&delta[(y * second.width + x) * channels..], &image[second.pixel(y, x, channels)..])
            };
            first.unpool(arch, pixel, winners, &mut self.first_delta);
            first.gradient(arch, &self.inputs[index * input..][..input], &self.first_delta, gradient);
        }
    }
}
