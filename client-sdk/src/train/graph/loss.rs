//! Losses of a graph's first output: values, gradients and scores.

use graph::Loss;

use crate::train::graph::kernels::math::{exp, sigmoid, softplus};
use crate::train::learner::Score;

/// The targets of a batch.
#[derive(Clone, Copy)]
pub(super) enum Targets<'a> {
    /// A class or token for each prediction.
    Classes(&'a [u32]),
    /// A number for each output.
    Numbers(&'a [f32]),
}

/// Scores outputs; writes the gradient of the mean loss unless `gradient` is empty.
pub(super) fn score(loss: &Loss, outputs: &[f32], targets: Targets<'_>, gradient: &mut [f32]) -> Score {
    match (loss, targets) {
        (Loss::CrossEntropy { label_smoothing, weights }, Targets::Classes(labels)) => {
            let rule = Classes { smoothing: *label_smoothing, weights, ignored: None };
            rule.score(outputs, labels, gradient)
        }
        (Loss::NextToken { ignore }, Targets::Classes(labels)) => {
            Classes { smoothing: 0.0, weights: &[], ignored: *ignore }.score(outputs, labels, gradient)
        }
        (Loss::BceWithLogits { positive_weight }, Targets::Numbers(targets)) => {
            let weight = *positive_weight;
            each(outputs, targets, gradient, |x, y| {
                // -(w y ln σ(x) + (1 - y) ln(1 - σ(x))), without overflow.
                let factor = 1.0 + (weight - 1.0) * y;
                let value = (1.0 - y) * x + factor * softplus(-x);
                let slope = (1.0 - y) - factor * (1.0 - sigmoid(x));
                (value, slope, (x > 0.0) == (y > 0.5))
            })
        }
        (Loss::Mse, Targets::Numbers(targets)) => {
            each(outputs, targets, gradient, |x, y| ((x - y) * (x - y), 2.0 * (x - y), false))
        }
        (Loss::Huber { delta }, Targets::Numbers(targets)) => each(outputs, targets, gradient, |x, y| {
            let distance = x - y;
            if distance.abs() <= *delta {
                (0.5 * distance * distance, distance, false)
            } else {
                (delta * (distance.abs() - 0.5 * delta), delta * distance.signum(), false)
            }
        }),
        (Loss::Poisson, Targets::Numbers(targets)) => {
            each(outputs, targets, gradient, |x, y| (x.exp() - y * x, x.exp() - y, false))
        }
        // The examples were checked against the loss.
        (_, Targets::Classes(_) | Targets::Numbers(_)) => Score::default(),
    }
}

/// The sum of a loss over pairs of outputs and targets. `f` gives the value, its derivative, and whether the prediction
/// is right.
fn each(outputs: &[f32], targets: &[f32], gradient: &mut [f32], f: impl Fn(f32, f32) -> (f32, f32, bool)) -> Score {
    let mut score = Score::default();
    #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^24 numbers")]
    let scale = 1.0 / outputs.len() as f32;
    for (index, (&output, &target)) in outputs.iter().zip(targets).enumerate() {
        let (value, slope, is_right) = f(output, target);
        score.loss += f64::from(value);
        score.correct += u64::from(is_right);
        score.predictions += 1;
        if let Some(gradient) = gradient.get_mut(index) {
            *gradient = slope * scale;
        }
    }
    score
}

/// Cross-entropy of rows of scores.
struct Classes<'a> {
    smoothing: f32,
    /// A factor for each class; empty for 1.
    weights: &'a [f32],
    ignored: Option<u32>,
}

impl Classes<'_> {
    fn weight(&self, class: usize) -> f32 {
        self.weights.get(class).copied().unwrap_or(1.0)
    }

    fn score(&self, outputs: &[f32], labels: &[u32], gradient: &mut [f32]) -> Score {
        let classes = outputs.len() / labels.len().max(1);
        let counted = |label: &u32| Some(*label) != self.ignored;
        let total: f32 = labels.iter().filter(|label| counted(label)).map(|&label| self.weight(label as usize)).sum();
        let scale = if total > 0.0 { 1.0 / total } else { 0.0 };
        let mut score = Score::default();
        gradient.fill(0.0);
        // The loss's mean is weighted; a score counts predictions.
        let mut weighted = 0.0;
        for (index, label) in labels.iter().enumerate().filter(|(_, label)| counted(label)) {
            let row = &outputs[index * classes..][..classes];
            let target = *label as usize;
            let (best, highest) = best(row);
            let sum: f32 = row.iter().map(|&logit| exp(logit - highest)).sum();
            let log_sum = f64::from(sum).ln() + f64::from(highest);
            let own = f64::from(self.weight(target)) * (log_sum - f64::from(row[target]));
            weighted += f64::from(1.0 - self.smoothing) * own;
            if self.smoothing > 0.0 {
                let all = (0..classes).map(|class| f64::from(self.weight(class)) * (log_sum - f64::from(row[class])));
                #[expect(clippy::cast_precision_loss, reason = "classes are below 2^24")]
                let share = f64::from(self.smoothing) / classes as f64;
                weighted += share * all.sum::<f64>();
            }
            score.correct += u64::from(best == target);
            score.predictions += 1;
            if let Some(gradient) = gradient.get_mut(index * classes..(index + 1) * classes) {
                self.row_gradient(row, target, (highest, sum), scale, gradient);
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^53")]
        let predictions = score.predictions as f64;
        score.loss = weighted * f64::from(scale) * predictions;
        score
    }

    /// The gradient of a row: for the target's and each smoothed class's term, `weight * (softmax - one_hot)`.
    fn row_gradient(&self, row: &[f32], target: usize, (highest, sum): (f32, f32), scale: f32, gradient: &mut [f32]) {
        #[expect(clippy::cast_precision_loss, reason = "classes are below 2^24")]
        let share = self.smoothing / row.len() as f32;
        let of_class = |class: usize| {
            let own = if class == target { 1.0 - self.smoothing } else { 0.0 };
            self.weight(class) * (own + share)
        };
        let mass = if self.smoothing > 0.0 { (0..row.len()).map(of_class).sum::<f32>() } else { self.weight(target) };
        for (class, (gradient, &logit)) in gradient.iter_mut().zip(row).enumerate() {
            *gradient = scale * (mass * exp(logit - highest) / sum - of_class(class));
        }
    }
}

/// The first highest score and its class.
fn best(row: &[f32]) -> (usize, f32) {
    let start = (0, f32::NEG_INFINITY);
    row.iter().enumerate().fold(
        start,
        |(best, highest), (class, &logit)| {
            if logit > highest { (class, logit) } else { (best, highest) }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest difference of the gradient from a central difference of the mean loss.
    fn worst(loss: &Loss, outputs: &[f32], targets: Targets<'_>) -> f64 {
        let mut gradient = vec![0.0; outputs.len()];
        let mean = |outputs: &[f32]| {
            let score = score(loss, outputs, targets, &mut []);
            score.loss / score.predictions as f64
        };
        score(loss, outputs, targets, &mut gradient);
        let difference = |index: usize| {
            let moved = |by: f32| {
                let mut outputs = outputs.to_vec();
                outputs[index] += by;
                mean(&outputs)
            };
            ((moved(1e-2) - moved(-1e-2)) / 2e-2 - f64::from(gradient[index])).abs()
        };
        (0..outputs.len()).map(difference).fold(0.0, f64::max)
    }

    #[test]
    fn gradient_equals_differences_for_every_loss() {
        let outputs = [0.3, -1.2, 2.0, 0.1, 0.4, -0.7];
        let numbers = [1.0, 0.0, 1.0, 0.0, 0.3, 2.0];
        let smooth = Loss::CrossEntropy { label_smoothing: 0.1, weights: vec![1.0, 2.0, 0.5] };
        for (loss, targets) in [
            (Loss::CROSS_ENTROPY, Targets::Classes(&[2, 0])),
            (smooth, Targets::Classes(&[1, 2])),
            (Loss::NextToken { ignore: Some(7) }, Targets::Classes(&[1, 7])),
            (Loss::BceWithLogits { positive_weight: 3.0 }, Targets::Numbers(&numbers[..6])),
            (Loss::Mse, Targets::Numbers(&numbers)),
            (Loss::Huber { delta: 0.8 }, Targets::Numbers(&numbers)),
            (Loss::Poisson, Targets::Numbers(&numbers)),
        ] {
            let worst = worst(&loss, &outputs, targets);
            assert!(worst < 1e-4, "{}: {worst}", loss.name());
        }
    }

    #[test]
    fn loss_stays_finite_at_large_logits() {
        for x in [-200.0, 200.0] {
            let mut gradient = [f32::NAN];
            let score =
                score(&Loss::BceWithLogits { positive_weight: 1.0 }, &[x], Targets::Numbers(&[1.0]), &mut gradient);
            assert!(score.loss.is_finite() && gradient[0].is_finite(), "{x}: {score:?} {gradient:?}");
        }
    }

    #[test]
    fn ignored_positions_have_no_loss() {
        let loss = Loss::NextToken { ignore: Some(9) };
        let alone = score(&loss, &[1.0, 2.0], Targets::Classes(&[1]), &mut []);
        let mut gradient = [1.0; 4];
        let both = score(&loss, &[1.0, 2.0, 5.0, -5.0], Targets::Classes(&[1, 9]), &mut gradient);
        assert_eq!((alone.loss, alone.predictions), (both.loss, both.predictions));
        assert_eq!(gradient[2..], [0.0, 0.0]);
    }
}
