//! Convolutions as products with the windows of an image, one image and group at a time.

mod direct;
mod frames;
mod windows;

use graph::Convolution;

use self::direct::Direct;
use self::windows::Windows;
use crate::train::graph::context::{Context, Gradients, vectorized};
use crate::train::graph::kernels::packing::Matrix;
use crate::train::graph::kernels::product::{Into, Left};
use crate::train::graph::tensor::Operand;

/// The parts of a convolution's tensors for one image and group.
struct Layer {
    windows: Windows,
    images: usize,
    groups: usize,
    /// Channels of a group of the result.
    outputs: usize,
}

impl Layer {
    fn of(conv: &Convolution, x: &[usize], weights: &[usize], result: &[usize]) -> Self {
        let groups = conv.groups as usize;
        let windows = Windows::new(conv, &x[2..], &result[2..], &weights[2..], x[1] / groups);
        Self { windows, images: x[0], groups, outputs: weights[0] / groups }
    }

    /// Numbers of a group's parts of images.
    fn numbers(&self, group: usize) -> Vec<usize> {
        (0..self.images).map(|image| image * self.groups + group).collect()
    }

    /// The convolution without windows, if it is faster.
    fn direct(&self) -> Option<Direct> {
        if self.is_depthwise() { None } else { Direct::new(self.windows, self.outputs) }
    }

    /// Whether each channel is convolved by itself.
    fn is_depthwise(&self) -> bool {
        self.windows.channels == 1 && self.groups > 1
    }
}

/// Adds a bias to each channel of a result.
fn add_bias(bias: &[f32], plane: usize, y: &mut [f32]) {
    for (channel, y) in y.chunks_exact_mut(plane).enumerate() {
        let bias = bias[channel % bias.len()];
        y.iter_mut().for_each(|y| *y += bias);
    }
}

/// Adds the gradient of each channel to the bias's.
fn add_bias_gradient(dy: &[f32], plane: usize, dbias: &mut [f32]) {
    let channels = dbias.len();
    for (channel, dy) in dy.chunks_exact(plane).enumerate() {
        dbias[channel % channels] += dy.iter().sum::<f32>();
    }
}

pub(super) fn conv(conv: &Convolution, inputs: &[Operand<'_>], result: &[usize], y: &mut [f32], context: &mut Context) {
    let (x, weights) = (inputs[0].f32(), inputs[1].f32());
    let layer = Layer::of(conv, inputs[0].shape, inputs[1].shape, result);
    let Layer { windows, outputs, .. } = layer;
    let (places, depth) = (windows.places(), windows.depth());
    for (group, weights) in weights.chunks_exact(outputs * depth).enumerate() {
        let numbers = layer.numbers(group);
        if let Some(direct) = layer.direct() {
            direct.forward(x, &numbers, weights, y, context);
            continue;
        }
        for number in numbers {
            let image = &x[number * windows.image()..][..windows.image()];
            let y = &mut y[number * outputs * places..][..outputs * places];
            if layer.is_depthwise() {
                vectorized(
                    context.arch,
                    y,
                    #[inline(always)]
                    |y| depthwise(&windows, image, weights, y),
                );
            } else {
                let left = Left { values: weights, step: depth, rows: outputs, length: depth };
                windows.multiply(left, image, Into::Replace, y, context);
            }
        }
    }
    if let Some(bias) = inputs.get(2) {
        add_bias(bias.f32(), places, y);
    }
}

/// The results of one channel.
#[inline(always)]
fn depthwise(windows: &Windows, image: &[f32], weights: &[f32], y: &mut [f32]) {
    let (places, depth, step) = (windows.places(), windows.depth(), windows.stride.width);
    y.fill(0.0);
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            for (y, weights) in y.chunks_exact_mut(places).zip(weights.chunks_exact(depth)) {
                let (y, weight) = (&mut y[place..place + length], weights[index]);
                if step == 1 {
                    y.iter_mut().zip(&image[start..start + length]).for_each(|(y, x)| *y += weight * x);
                } else {
                    y.iter_mut().zip(image[start..].iter().step_by(step)).for_each(|(y, x)| *y += weight * x);
                }
            }
        },
    );
}

pub(super) fn conv_back(
    conv: &Convolution,
    inputs: &[Operand<'_>],
    result: &[usize],
    dy: &[f32],
    gradients: &mut Gradients<'_>,
    context: &mut Context,
) {
    let (x, weights) = (inputs[0].f32(), inputs[1].f32());
    let layer = Layer::of(conv, inputs[0].shape, inputs[1].shape, result);
    let Layer { windows, outputs, .. } = layer;
    let (places, depth, size) = (windows.places(), windows.depth(), windows.image());
    let image = |number: usize| number * size..(number + 1) * size;
    let result = |number: usize| number * outputs * places..(number + 1) * outputs * places;
    let direct = layer.direct();
    if let Some(dw) = gradients.of(1) {
        for (group, dw) in dw.chunks_exact_mut(outputs * depth).enumerate() {
            let numbers = layer.numbers(group);
            if let Some(direct) = direct {
                direct.weight_gradient((x, dy), &numbers, dw, context);
                continue;
            }
            let pairs = numbers.into_iter().map(|number| (&x[image(number)], &dy[result(number)]));
            if layer.is_depthwise() {
                for (image, dy) in pairs {
                    vectorized(
                        context.arch,
                        &mut *dw,
                        #[inline(always)]
                        |dw| depthwise_weights(&windows, image, dy, dw),
                    );
                }
            } else {
                windows.add_gradient(pairs, dw, context);
            }
        }
    }
    if let Some(dx) = gradients.of(0) {
        let mut packed = Vec::new();
        for (group, weights) in weights.chunks_exact(outputs * depth).enumerate() {
            let numbers = layer.numbers(group);
            if let Some(direct) = direct.filter(Direct::has_image_gradient) {
                direct.image_gradient(dy, &numbers, weights, dx, context);
                continue;
            }
            let left = Left::of(Matrix::dense(weights, outputs, depth).transposed(), &mut packed);
            for number in numbers {
                let (dy, dx) = (&dy[result(number)], &mut dx[image(number)]);
                if layer.is_depthwise() {
                    vectorized(
                        context.arch,
                        dx,
                        #[inline(always)]
                        |dx| depthwise_image(&windows, weights, dy, dx),
                    );
                } else {
                    windows.spread(left, dy, dx, context);
                }
            }
        }
    }
    if let Some(dbias) = gradients.of(2) {
        add_bias_gradient(dy, places, dbias);
    }
}

#[inline(always)]
fn depthwise_weights(windows: &Windows, image: &[f32], dy: &[f32], dw: &mut [f32]) {
    let (places, depth, step) = (windows.places(), windows.depth(), windows.stride.width);
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            for (dy, dw) in dy.chunks_exact(places).zip(dw.chunks_exact_mut(depth)) {
                let dy = &dy[place..place + length];
                dw[index] += if step == 1 {
                    dot(dy, &image[start..start + length])
                } else {
                    dy.iter().zip(image[start..].iter().step_by(step)).map(|(dy, x)| dy * x).sum::<f32>()
                };
            }
        },
    );
}

/// The sum of products, in several lanes.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; 16];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a.iter().zip(b) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((lane, a), b)| *lane += a * b);
    }
    lanes.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

#[inline(always)]
fn depthwise_image(windows: &Windows, weights: &[f32], dy: &[f32], dx: &mut [f32]) {
    let (places, depth, step) = (windows.places(), windows.depth(), windows.stride.width);
    windows.runs(
        #[inline(always)]
        |index: usize, place: usize, start: usize, length: usize| {
            for (dy, weights) in dy.chunks_exact(places).zip(weights.chunks_exact(depth)) {
                let (dy, weight) = (&dy[place..place + length], weights[index]);
                if step == 1 {
                    dx[start..start + length].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += weight * dy);
                } else {
                    dx[start..].iter_mut().step_by(step).zip(dy).for_each(|(dx, dy)| *dx += weight * dy);
                }
            }
        },
    );
}

/// A transposed convolution: the windows are those of the result, at the places of the input.
struct Transposed {
    windows: Windows,
    images: usize,
    groups: usize,
    /// Channels of a group of the input.
    inputs: usize,
}

impl Transposed {
    fn of(conv: &Convolution, x: &[usize], weights: &[usize], result: &[usize]) -> Self {
        let groups = conv.groups as usize;
        let windows = Windows::new(conv, &result[2..], &x[2..], &weights[2..], weights[1]);
        Self { windows, images: x[0], groups, inputs: x[1] / groups }
    }
}

pub(super) fn transposed(
    conv: &Convolution,
    inputs: &[Operand<'_>],
    result: &[usize],
    y: &mut [f32],
    context: &mut Context,
) {
    let Transposed { windows, images, groups, inputs: channels } =
        Transposed::of(conv, inputs[0].shape, inputs[1].shape, result);
    let (x, weights) = (inputs[0].f32(), inputs[1].f32());
    let (places, depth, size) = (windows.places(), windows.depth(), windows.image());
    y.fill(0.0);
    let mut packed = Vec::new();
    for (group, weights) in weights.chunks_exact(channels * depth).enumerate() {
        let left = Left::of(Matrix::dense(weights, channels, depth).transposed(), &mut packed);
        for number in (0..images).map(|index| index * groups + group) {
            let x = &x[number * channels * places..][..channels * places];
            windows.spread(left, x, &mut y[number * size..][..size], context);
        }
    }
    if let Some(bias) = inputs.get(2) {
        add_bias(bias.f32(), result[2..].iter().product(), y);
    }
}

pub(super) fn transposed_back(
    conv: &Convolution,
    inputs: &[Operand<'_>],
    result: &[usize],
    dy: &[f32],
    gradients: &mut Gradients<'_>,
    context: &mut Context,
) {
    let Transposed { windows, images, groups, inputs: channels } =
        Transposed::of(conv, inputs[0].shape, inputs[1].shape, result);
    let (x, weights) = (inputs[0].f32(), inputs[1].f32());
    let (places, depth, size) = (windows.places(), windows.depth(), windows.image());
    let input = |number: usize| number * channels * places..(number + 1) * channels * places;
    for (group, weights) in weights.chunks_exact(channels * depth).enumerate() {
        let numbers = || (0..images).map(|index| index * groups + group);
        if let Some(dx) = gradients.of(0) {
            let left = Left { values: weights, step: depth, rows: channels, length: depth };
            for number in numbers() {
                windows.multiply(left, &dy[number * size..][..size], Into::Add, &mut dx[input(number)], context);
            }
        }
        if let Some(dw) = gradients.of(1) {
            let pairs = numbers().map(|number| (&dy[number * size..][..size], &x[input(number)]));
            windows.add_gradient(pairs, &mut dw[group * channels * depth..][..channels * depth], context);
        }
    }
    if let Some(dbias) = gradients.of(2) {
        add_bias_gradient(dy, result[2..].iter().product(), dbias);
    }
}
