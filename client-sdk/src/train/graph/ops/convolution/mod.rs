//! Convolutions as products with the windows of an image, one image and group at a time.

mod depthwise;
mod direct;
mod frames;
mod group;
mod windows;

#[cfg(test)]
mod tests;

use graph::Convolution;

use self::direct::Direct;
use self::group::Group;
use self::windows::Windows;
use crate::train::graph::context::{Context, Gradients};
use crate::train::graph::kernels::math::sum;
use crate::train::graph::kernels::packing::Matrix;
use crate::train::graph::kernels::product::{Into, Left, product};
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

    fn way(&self) -> Way {
        if self.windows.channels == 1 && self.groups > 1 {
            Way::Depthwise
        } else if self.windows.is_pointwise() {
            Way::Pointwise
        } else {
            Direct::new(self.windows, self.outputs).map_or(Way::Windows, Way::Direct)
        }
    }
}

/// How a convolution is computed.
enum Way {
    Direct(Direct),
    /// Each channel by itself.
    Depthwise,
    /// Products of the weights with pixels.
    Pointwise,
    /// Products of the weights with copies of windows.
    Windows,
}

/// Calls `visit` with the parts of two tensors that have these numbers and sizes.
fn each_part(
    numbers: &[usize],
    (from, from_size): (&[f32], usize),
    (to, to_size): (&mut [f32], usize),
    mut visit: impl FnMut(&[f32], &mut [f32]),
) {
    for number in numbers {
        visit(&from[number * from_size..][..from_size], &mut to[number * to_size..][..to_size]);
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
        dbias[channel % channels] += sum(dy);
    }
}

pub(super) fn conv(conv: &Convolution, inputs: &[Operand<'_>], result: &[usize], y: &mut [f32], context: &mut Context) {
    let (x, weights) = (inputs[0].f32(), inputs[1].f32());
    let layer = Layer::of(conv, inputs[0].shape, inputs[1].shape, result);
    let Layer { windows, outputs, .. } = layer;
    let (places, depth) = (windows.places(), windows.depth());
    for (group, weights) in weights.chunks_exact(outputs * depth).enumerate() {
        let numbers = layer.numbers(group);
        let (images, results) = ((x, windows.image()), (&mut *y, outputs * places));
        let rows = Matrix::dense(weights, outputs, depth);
        match layer.way() {
            Way::Direct(direct) => direct.forward(x, &numbers, weights, y, context),
            Way::Depthwise => each_part(&numbers, images, results, |image, y| {
                depthwise::forward(&windows, image, weights, y, context);
            }),
            Way::Pointwise => each_part(&numbers, images, results, |image, y| {
                let image = Matrix::dense(image, depth, places);
                product(context.arch, &mut context.scratch, rows, image, Into::Replace, y);
            }),
            Way::Windows => each_part(&numbers, images, results, |image, y| {
                let left = Left { values: weights, step: depth, rows: outputs, length: depth };
                windows.multiply(left, image, Into::Replace, y, context);
            }),
        }
    }
    if let Some(bias) = inputs.get(2) {
        add_bias(bias.f32(), places, y);
    }
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
    let size = layer.outputs * layer.windows.depth();
    let into = [gradients.begin(0), gradients.begin(1)];
    for (number, weights) in weights.chunks_exact(size).enumerate() {
        let numbers = layer.numbers(number);
        let mut group = Group { x, dy, weights, first: number * size, numbers, into };
        if let Way::Direct(direct) = layer.way() {
            direct.backward(&group, gradients, context);
            group.into = [into[0].filter(|_| !direct.has_image_gradient()), None];
        }
        layer.images_back(&group, gradients, context);
        layer.weights_back(&group, gradients, context);
    }
    if let Some(dbias) = gradients.of(2) {
        add_bias_gradient(dy, layer.windows.places(), dbias);
    }
}

impl Layer {
    /// Computes the gradient of a group's images.
    fn images_back(&self, group: &Group<'_>, gradients: &mut Gradients<'_>, context: &mut Context) {
        let (Some(into), Some(dx)) = (group.into[0], gradients.of(0)) else { return };
        let Self { windows, outputs, .. } = *self;
        let (places, depth) = (windows.places(), windows.depth());
        let (results, images) = ((group.dy, outputs * places), (dx, windows.image()));
        let turned = Matrix::dense(group.weights, outputs, depth).transposed();
        match self.way() {
            Way::Depthwise => each_part(&group.numbers, results, images, |dy, dx| {
                depthwise::image_gradient(&windows, group.weights, dy, (into, dx), context);
            }),
            Way::Pointwise => each_part(&group.numbers, results, images, |dy, dx| {
                let dy = Matrix::dense(dy, outputs, places);
                product(context.arch, &mut context.scratch, turned, dy, into, dx);
            }),
            Way::Direct(_) | Way::Windows => {
                let mut packed = Vec::new();
                let left = Left::of(turned, &mut packed);
                each_part(&group.numbers, results, images, |dy, dx| {
                    into.prepare(dx);
                    windows.spread(left, dy, dx, context);
                });
            }
        }
    }

    /// Computes the gradient of a group's weights.
    fn weights_back(&self, group: &Group<'_>, gradients: &mut Gradients<'_>, context: &mut Context) {
        let (Some(into), Some(dw)) = (group.into[1], gradients.of(1)) else { return };
        let Self { windows, outputs, .. } = *self;
        let (places, results, size) = (windows.places(), outputs * windows.places(), windows.image());
        let dw = &mut dw[group.first..][..group.weights.len()];
        into.prepare(dw);
        let part = |number: &usize| (&group.x[number * size..][..size], &group.dy[number * results..][..results]);
        let pairs = group.numbers.iter().map(part);
        match self.way() {
            Way::Depthwise => {
                pairs.for_each(|(image, dy)| depthwise::add_weight_gradient(&windows, image, dy, dw, context));
            }
            Way::Pointwise => pairs.for_each(|(image, dy)| {
                let image = Matrix::dense(image, windows.channels, places).transposed();
                let dy = Matrix::dense(dy, outputs, places);
                product(context.arch, &mut context.scratch, dy, image, Into::Add, dw);
            }),
            Way::Direct(_) | Way::Windows => windows.add_gradient(pairs, dw, context),
        }
    }
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
