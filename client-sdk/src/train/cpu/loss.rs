//! Softmax and cross-entropy in one pass: the gradient of the mean loss with respect to the logits is
//! `(softmax - one_hot) / batch`.

use super::super::learner::Score;

/// Scores rows of logits at distance `step`, the first `classes` of each without padding, and writes their gradient
/// (padding: zero) unless `gradient` is empty.
pub(super) fn cross_entropy(
    logits: &[f32],
    classes: usize,
    step: usize,
    labels: &[u32],
    gradient: &mut [f32],
) -> Score {
    let mut score = Score::default();
    #[expect(clippy::cast_precision_loss, reason = "batches are far below 2^24 examples")]
    let scale = 1.0 / labels.len() as f32;
    for (index, &label) in labels.iter().enumerate() {
        let row = &logits[index * step..][..classes];
        let label = label as usize;
        let (best, highest) =
            row.iter().enumerate().fold((0, f32::NEG_INFINITY), |(best, highest), (class, &logit)| {
                if logit > highest { (class, logit) } else { (best, highest) }
            });
        let sum: f32 = row.iter().map(|&logit| (logit - highest).exp()).sum();
        score.loss += f64::from(sum).ln() + f64::from(highest) - f64::from(row[label]);
        score.correct += u64::from(best == label);
        score.predictions += 1;
        if let Some(gradient) = gradient.get_mut(index * step..(index + 1) * step) {
            gradient.fill(0.0);
            for (class, (gradient, &logit)) in gradient.iter_mut().zip(row).enumerate() {
                let target = if class == label { 1.0 } else { 0.0 };
                *gradient = ((logit - highest).exp() / sum - target) * scale;
            }
        }
    }
    score
}
