//! Batch normalization: by running statistics, or in training by those of the batch.

use super::normalize::sum;
use crate::train::graph::context::{Gradients, Statistics, Step};
use crate::train::graph::tensor::Operand;

/// The attributes of a batch normalization.
#[derive(Clone, Copy)]
pub(super) struct BatchNorm {
    pub(super) epsilon: f32,
    /// With a momentum, training normalizes by the batch.
    pub(super) momentum: Option<f32>,
}

/// Elements of a channel of an example.
fn plane(shape: &[usize]) -> usize {
    shape[2..].iter().product()
}

impl BatchNorm {
    /// Normalizes each channel. By the statistics of the batch, `saved` gets the mean of each channel, then the inverse
    /// deviations, then the unbiased variances; otherwise nothing.
    pub(super) fn forward(self, inputs: &[Operand<'_>], by: Statistics, y: &mut [f32], saved: &mut Vec<f32>) -> Step {
        saved.clear();
        match by {
            Statistics::Batch if self.momentum.is_some() => self.by_batch(inputs, y, saved),
            Statistics::Batch | Statistics::Running => {
                self.by_running(inputs, y);
                Ok(())
            }
        }
    }

    /// Adds the gradients of the inputs. Statistics of the batch were saved; running ones were inputs.
    pub(super) fn backward(self, inputs: &[Operand<'_>], dy: &[f32], saved: &[f32], gradients: &mut Gradients<'_>) {
        if saved.is_empty() {
            self.by_running_back(inputs, dy, gradients);
        } else {
            by_batch_back(inputs, dy, saved, gradients);
        }
    }

    /// A running variance. Noise and codecs can make an averaged one negative, and it then counts as 0.
    fn variance(self, variance: f32) -> f32 {
        if self.momentum.is_some() && variance < 0.0 { 0.0 } else { variance }
    }

    /// Scale and offset of each channel by the running statistics.
    fn channels(self, inputs: &[Operand<'_>]) -> impl Iterator<Item = (f32, f32)> {
        let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|index: usize| inputs[index].f32());
        scale.iter().zip(bias).zip(mean).zip(variance).map(move |(((scale, bias), mean), variance)| {
            let factor = scale / (self.variance(*variance) + self.epsilon).sqrt();
            (factor, bias - mean * factor)
        })
    }

    fn by_running(self, inputs: &[Operand<'_>], y: &mut [f32]) {
        let plane = plane(inputs[0].shape);
        let count = inputs[0].shape[1];
        let channels: Vec<_> = self.channels(inputs).collect();
        let planes = inputs[0].f32().chunks_exact(plane).zip(y.chunks_exact_mut(plane));
        for (index, (x, y)) in planes.enumerate() {
            let (factor, offset) = channels[index % count];
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor + offset);
        }
    }

    fn by_running_back(self, inputs: &[Operand<'_>], dy: &[f32], gradients: &mut Gradients<'_>) {
        let (plane, count) = (plane(inputs[0].shape), inputs[0].shape[1]);
        let channels: Vec<_> = self.channels(inputs).collect();
        if let Some(dx) = gradients.of(0) {
            for (index, (dx, dy)) in dx.chunks_exact_mut(plane).zip(dy.chunks_exact(plane)).enumerate() {
                let (factor, _) = channels[index % count];
                dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * factor);
            }
        }
        // Sums over each channel of dy, and of dy x.
        let mut sums = vec![(0.0, 0.0); count];
        for (index, (x, dy)) in inputs[0].f32().chunks_exact(plane).zip(dy.chunks_exact(plane)).enumerate() {
            let (of_dy, of_product) = &mut sums[index % count];
            *of_dy += dy.iter().sum::<f32>();
            *of_product += dy.iter().zip(x).map(|(dy, x)| dy * x).sum::<f32>();
        }
        let [scale, mean, variance] = [1, 3, 4].map(|index: usize| inputs[index].f32());
        let deviation = |channel: usize| (self.variance(variance[channel]) + self.epsilon).sqrt();
        let of_factor = |channel: usize| sums[channel].1 - mean[channel] * sums[channel].0;
        if let Some(dscale) = gradients.of(1) {
            (0..count).for_each(|channel| dscale[channel] += of_factor(channel) / deviation(channel));
        }
        if let Some(dbias) = gradients.of(2) {
            dbias.iter_mut().zip(&sums).for_each(|(dbias, (of_dy, _))| *dbias += of_dy);
        }
        if self.momentum.is_some() {
            // Running statistics have no gradient.
            return;
        }
        if let Some(dmean) = gradients.of(3) {
            (0..count).for_each(|channel| dmean[channel] -= channels[channel].0 * sums[channel].0);
        }
        if let Some(dvariance) = gradients.of(4) {
            for channel in 0..count {
                dvariance[channel] -= 0.5 * scale[channel] * of_factor(channel) / deviation(channel).powi(3);
            }
        }
    }

    fn by_batch(self, inputs: &[Operand<'_>], y: &mut [f32], saved: &mut Vec<f32>) -> Step {
        let (plane, count) = (plane(inputs[0].shape), inputs[0].shape[1]);
        let (x, scale, bias) = (inputs[0].f32(), inputs[1].f32(), inputs[2].f32());
        if x.len() <= count {
            return Err("batch normalization needs more than one value per channel, and the batch has one example; \
                        take larger batches"
                .to_owned());
        }
        saved.resize(3 * count, 0.0);
        let (mean, rest) = saved.split_at_mut(count);
        let (inverse, unbiased) = rest.split_at_mut(count);
        #[expect(clippy::cast_precision_loss, reason = "a tensor has at most 2^28 elements")]
        let values = (x.len() / count) as f64;
        let sums = by_channel(x, plane, count, |_, x| sum(x, |x| x));
        mean.iter_mut().zip(&sums).for_each(|(mean, sum)| *mean = narrow(sum / values));
        let squares = by_channel(x, plane, count, |channel, x| {
            let mean = mean[channel];
            sum(x, |x| (x - mean) * (x - mean))
        });
        for (channel, squares) in squares.iter().enumerate() {
            inverse[channel] = narrow(1.0 / (squares / values + f64::from(self.epsilon)).sqrt());
            unbiased[channel] = narrow(squares / (values - 1.0));
        }
        for (index, (x, y)) in x.chunks_exact(plane).zip(y.chunks_exact_mut(plane)).enumerate() {
            let channel = index % count;
            let (mean, factor, bias) = (mean[channel], inverse[channel] * scale[channel], bias[channel]);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - mean) * factor + bias);
        }
        Ok(())
    }
}

/// Adds the gradients of x, scale and bias; mean and variance of the batch depend on x.
fn by_batch_back(inputs: &[Operand<'_>], dy: &[f32], saved: &[f32], gradients: &mut Gradients<'_>) {
    let (plane, count) = (plane(inputs[0].shape), inputs[0].shape[1]);
    let (x, scale) = (inputs[0].f32(), inputs[1].f32());
    let (mean, inverse) = (&saved[..count], &saved[count..2 * count]);
    let of_dy = by_channel(dy, plane, count, |_, dy| sum(dy, |dy| dy));
    let mut of_product = vec![0.0_f64; count];
    for (index, (x, dy)) in x.chunks_exact(plane).zip(dy.chunks_exact(plane)).enumerate() {
        let mean = mean[index % count];
        of_product[index % count] += f64::from(product(x, dy, mean));
    }
    if let Some(dscale) = gradients.of(1) {
        (0..count).for_each(|channel| dscale[channel] += narrow(of_product[channel]) * inverse[channel]);
    }
    if let Some(dbias) = gradients.of(2) {
        dbias.iter_mut().zip(&of_dy).for_each(|(dbias, of_dy)| *dbias += narrow(*of_dy));
    }
    let Some(dx) = gradients.of(0) else { return };
    #[expect(clippy::cast_precision_loss, reason = "a tensor has at most 2^28 elements")]
    let values = (x.len() / count) as f64;
    let planes = dx.chunks_exact_mut(plane).zip(x.chunks_exact(plane)).zip(dy.chunks_exact(plane));
    for (index, ((dx, x), dy)) in planes.enumerate() {
        let channel = index % count;
        let (mean, inverse) = (mean[channel], inverse[channel]);
        let factor = scale[channel] * inverse;
        let all = narrow(of_dy[channel] / values);
        let along = narrow(of_product[channel] / values) * inverse * inverse;
        for ((dx, x), dy) in dx.iter_mut().zip(x).zip(dy) {
            *dx += factor * (dy - all - (x - mean) * along);
        }
    }
}

/// The sum of `dy * (x - mean)`, in several lanes.
fn product(x: &[f32], dy: &[f32], mean: f32) -> f32 {
    let mut lanes = [0.0; 16];
    let ((x, last_x), (dy, last_dy)) = (x.as_chunks::<16>(), dy.as_chunks::<16>());
    for (x, dy) in x.iter().zip(dy) {
        lanes.iter_mut().zip(x.iter().zip(dy)).for_each(|(lane, (x, dy))| *lane += dy * (x - mean));
    }
    lanes.iter().sum::<f32>() + last_x.iter().zip(last_dy).map(|(x, dy)| dy * (x - mean)).sum::<f32>()
}

/// The sum over each channel of what `part` computes of a channel and its elements in an example.
fn by_channel(values: &[f32], plane: usize, count: usize, part: impl Fn(usize, &[f32]) -> f32) -> Vec<f64> {
    let mut sums = vec![0.0; count];
    for (index, values) in values.chunks_exact(plane).enumerate() {
        let channel = index % count;
        sums[channel] += f64::from(part(channel, values));
    }
    sums
}

#[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
fn narrow(value: f64) -> f32 {
    value as f32
}
