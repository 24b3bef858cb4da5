//! Normalizations, and dropout.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::train::graph::context::Gradients;
use crate::train::graph::tensor::Operand;

/// How the elements of a tensor are normalized: blocks of adjacent elements, and which scale each element has.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    /// Elements of a block.
    size: usize,
    /// Adjacent elements with the same scale.
    together: usize,
    epsilon: f32,
}

impl Blocks {
    /// The axes from `axis` on.
    pub(super) fn layer(shape: &[usize], axis: usize, epsilon: f32) -> Self {
        Self { size: shape[axis..].iter().product(), together: 1, epsilon }
    }

    /// Groups of channels of `[batch, channels, ...]`.
    pub(super) fn groups(shape: &[usize], groups: usize, epsilon: f32) -> Self {
        let plane: usize = shape[2..].iter().product();
        Self { size: shape[1] / groups * plane, together: plane, epsilon }
    }

    /// Index of the scale of an element.
    fn scale(&self, element: usize, scales: usize) -> usize {
        element / self.together % scales
    }

    /// Mean and inverse deviation of a block.
    fn statistics(&self, x: &[f32]) -> (f32, f32) {
        #[expect(clippy::cast_precision_loss, reason = "blocks are below 2^24 elements, or one rounding is harmless")]
        let count = x.len() as f32;
        let mean = sum(x, |x| x) / count;
        let variance = sum(x, |x| (x - mean) * (x - mean)) / count;
        (mean, 1.0 / (variance + self.epsilon).sqrt())
    }

    /// Normalizes each block; `saved` gets its mean and inverse deviation.
    pub(super) fn forward(self, inputs: &[Operand<'_>], y: &mut [f32], saved: &mut Vec<f32>) {
        let (x, scale, bias) = (inputs[0].f32(), inputs[1].f32(), inputs.get(2).map(Operand::f32));
        saved.clear();
        for (block, (x, y)) in x.chunks_exact(self.size).zip(y.chunks_exact_mut(self.size)).enumerate() {
            let (mean, inverse) = self.statistics(x);
            saved.extend([mean, inverse]);
            for (start, (x, y)) in self.runs(block, x, y, scale.len()) {
                if self.together == 1 {
                    let scales = &scale[start..start + x.len()];
                    y.iter_mut().zip(x).zip(scales).for_each(|((y, x), scale)| *y = (x - mean) * inverse * scale);
                    if let Some(bias) = bias {
                        y.iter_mut().zip(&bias[start..start + x.len()]).for_each(|(y, bias)| *y += bias);
                    }
                } else {
                    let (factor, bias) = (inverse * scale[start], bias.map_or(0.0, |bias| bias[start]));
                    y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - mean) * factor + bias);
                }
            }
        }
    }

    /// Runs of a block that have adjacent scales, or one scale, with the index of the first.
    fn runs<'a>(
        self,
        block: usize,
        x: &'a [f32],
        y: &'a mut [f32],
        scales: usize,
    ) -> impl Iterator<Item = (usize, (&'a [f32], &'a mut [f32]))> {
        let length = if self.together == 1 { self.size } else { self.together };
        let starts = (0..).map(move |run| self.scale(block * self.size + run * length, scales));
        starts.zip(x.chunks_exact(length).zip(y.chunks_exact_mut(length)))
    }

    pub(super) fn backward(self, inputs: &[Operand<'_>], dy: &[f32], saved: &[f32], gradients: &mut Gradients<'_>) {
        let (x, scale) = (inputs[0].f32(), inputs[1].f32());
        let at = |block: usize, element: usize| {
            // In the normalization of a layer, element and scale have the same index.
            if self.size == scale.len() && self.together == 1 {
                element
            } else {
                self.scale(block * self.size + element, scale.len())
            }
        };
        let blocks =
            || x.chunks_exact(self.size).zip(dy.chunks_exact(self.size)).zip(saved.chunks_exact(2)).enumerate();
        if let Some(dscale) = gradients.of(1) {
            for (block, ((x, dy), statistics)) in blocks() {
                for (element, (x, dy)) in x.iter().zip(dy).enumerate() {
                    dscale[at(block, element)] += dy * (x - statistics[0]) * statistics[1];
                }
            }
        }
        if let Some(dbias) = gradients.of(2) {
            for (block, dy) in dy.chunks_exact(self.size).enumerate() {
                dy.iter().enumerate().for_each(|(element, dy)| dbias[at(block, element)] += dy);
            }
        }
        let Some(dx) = gradients.of(0) else { return };
        #[expect(clippy::cast_precision_loss, reason = "as in `statistics`")]
        let count = self.size as f32;
        let (mut scaled, mut normalized) = (vec![0.0; self.size], vec![0.0; self.size]);
        for ((block, ((x, dy), statistics)), dx) in blocks().zip(dx.chunks_exact_mut(self.size)) {
            let (mean, inverse) = (statistics[0], statistics[1]);
            for (element, (scaled, dy)) in scaled.iter_mut().zip(dy).enumerate() {
                *scaled = dy * scale[at(block, element)];
            }
            let all = sum(&scaled, |scaled| scaled) / count;
            normalized.iter_mut().zip(&scaled).zip(x).for_each(|((n, scaled), x)| *n = scaled * (x - mean) * inverse);
            let along = sum(&normalized, |product| product) / count;
            for ((dx, scaled), x) in dx.iter_mut().zip(&scaled).zip(x) {
                *dx += inverse * (scaled - all - (x - mean) * inverse * along);
            }
        }
    }
}

/// The sum of `f` over numbers, in several lanes.
pub(super) fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &value)| *lane += f(value));
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| f(value)).sum::<f32>()
}

/// Draws which elements stay, as factors in `mask`, and applies them. Without a seed or at a rate of 0, all stay, and the
/// mask is empty.
pub(super) fn dropout(rate: f32, seed: Option<u64>, x: &[f32], y: &mut [f32], mask: &mut Vec<f32>) {
    mask.clear();
    let Some(seed) = seed.filter(|_| rate > 0.0) else {
        y.copy_from_slice(x);
        return;
    };
    draw(rate, seed, x.len(), mask);
    y.iter_mut().zip(x).zip(&*mask).for_each(|((y, x), factor)| *y = x * factor);
}

/// Appends a factor for each of `count` elements: 0, or the one that scales up the elements that stay.
pub(in crate::train::graph) fn draw(rate: f32, seed: u64, count: usize, mask: &mut Vec<f32>) {
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let kept = 1.0 / (1.0 - rate);
    mask.extend((0..count).map(|_| if draws.random::<f32>() < rate { 0.0 } else { kept }));
}

/// Adds the gradient of elements that were kept; an empty mask keeps all.
pub(super) fn dropout_back(mask: &[f32], dy: &[f32], dx: &mut [f32]) {
    if mask.is_empty() {
        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy);
    } else {
        dx.iter_mut().zip(dy).zip(mask).for_each(|((dx, dy), factor)| *dx += dy * factor);
    }
}
