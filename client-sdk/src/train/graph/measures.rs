//! Measures of a graph's predictions beside its loss.

use graph::{GraphModel, Loss, Point};

use super::examples::ChosenTargets;
use super::loss::{self, Targets};
use crate::train::error::TrainError;
use crate::train::examples::Examples;
use crate::train::learner::{Learner, Measures, Score};

/// Number of classes above which the five highest scores are a measure.
const TOP: usize = 5;

/// Scores and measures the examples, in chunks of at most `size`.
pub(in crate::train) fn evaluate(
    model: &GraphModel,
    learner: &mut dyn Learner,
    examples: &Examples<'_>,
    size: usize,
) -> Result<(Score, Measures), TrainError> {
    let all: Vec<usize> = (0..examples.count()).collect();
    let (mut score, mut sums, mut chosen) = (Score::default(), Sums::default(), ChosenTargets::default());
    for chunk in all.chunks(size) {
        let outputs = learner.logits(examples, chunk)?;
        let targets = chosen.take(examples, chunk);
        score.add(loss::score(model.loss(), &outputs, targets, &mut []));
        sums.add(model.loss(), &outputs, targets);
    }
    let measures = sums.measures(model, score.mean().0);
    Ok((score, measures))
}

/// Sums over predictions.
#[derive(Default)]
struct Sums {
    count: u64,
    squares: f64,
    distances: f64,
    /// Mean of the targets, and their squared distances from it (Welford 1962).
    mean: f64,
    spread: f64,
    /// Predictions with the right class among the highest scores.
    among_top: u64,
    /// Outputs and whether their targets are positive.
    ranked: Vec<(f32, bool)>,
}

impl Sums {
    fn add(&mut self, loss: &Loss, outputs: &[f32], targets: Targets<'_>) {
        match targets {
            Targets::Classes(labels) => self.add_classes(loss, outputs, labels),
            Targets::Numbers(numbers) => self.add_numbers(loss, outputs, numbers),
        }
    }

    fn add_classes(&mut self, loss: &Loss, outputs: &[f32], labels: &[u32]) {
        let classes = outputs.len() / labels.len().max(1);
        let ignored = if let Loss::NextToken { ignore } = loss { *ignore } else { None };
        for (row, &label) in outputs.chunks_exact(classes.max(1)).zip(labels) {
            if Some(label) == ignored {
                continue;
            }
            let own = row[label as usize];
            let higher = row.iter().filter(|score| **score > own).count();
            self.count += 1;
            self.among_top += u64::from(higher < TOP);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn add_numbers(&mut self, loss: &Loss, outputs: &[f32], numbers: &[f32]) {
        for (&output, &target) in outputs.iter().zip(numbers) {
            let predicted = match loss {
                Loss::Poisson => f64::from(output).exp(),
                Loss::BceWithLogits { .. } => {
                    self.ranked.push((output, target > 0.5));
                    continue;
                }
                Loss::Mse | Loss::Huber { .. } | Loss::CrossEntropy { .. } | Loss::NextToken { .. } => output.into(),
            };
            let distance = predicted - f64::from(target);
            self.count += 1;
            self.squares += distance * distance;
            self.distances += distance.abs();
            let from_mean = f64::from(target) - self.mean;
            self.mean += from_mean / self.count as f64;
            self.spread += from_mean * (f64::from(target) - self.mean);
        }
    }

    fn measures(self, model: &GraphModel, mean_loss: f64) -> Measures {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let (count, among_top) = (self.count.max(1) as f64, self.among_top as f64);
        let is_one = model.predictions(Point { batch: 1, length: 1 }) == 1;
        let top_5 = model.classes().filter(|classes| *classes > TOP).map(|_| among_top / count);
        match model.loss() {
            Loss::CrossEntropy { .. } => Measures { top_5, ..Measures::default() },
            Loss::NextToken { .. } => Measures { top_5, perplexity: Some(mean_loss.exp()), ..Measures::default() },
            Loss::BceWithLogits { .. } => Measures { auc: auc(self.ranked), ..Measures::default() },
            Loss::Mse | Loss::Huber { .. } | Loss::Poisson => Measures {
                rmse: Some((self.squares / count).sqrt()),
                mae: Some(self.distances / count),
                r2: (self.spread > 0.0 && is_one).then(|| 1.0 - self.squares / self.spread),
                ..Measures::default()
            },
        }
    }
}

/// The area under the receiver operating characteristic: the share of pairs of a positive and a negative with the
/// positive above, ties as a half. `None` without a pair.
fn auc(mut ranked: Vec<(f32, bool)>) -> Option<f64> {
    ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut negatives, mut positives, mut twice) = (0_u64, 0_u64, 0_u64);
    for ties in ranked.chunk_by(|one, other| one.0 == other.0) {
        let above = ties.iter().filter(|(_, is_positive)| *is_positive).count() as u64;
        let below = ties.len() as u64 - above;
        twice += above * (2 * negatives + below);
        (negatives, positives) = (negatives + below, positives + above);
    }
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
    let share = twice as f64 / (2 * negatives * positives).max(1) as f64;
    (negatives * positives > 0).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auc_equals_the_share_of_ordered_pairs() {
        let area = |ranked: &[(f32, bool)]| auc(ranked.to_vec());
        assert_eq!(area(&[(0.1, false), (0.4, true), (0.2, false), (0.9, true)]), Some(1.0));
        assert_eq!(area(&[(0.1, true), (0.4, false)]), Some(0.0));
        // Pairs: (1, 0) ordered, (1, 1) tied, (0, 0) wrong and (0, 1) wrong.
        assert_eq!(area(&[(1.0, true), (0.0, true), (0.0, false), (1.0, false)]), Some(0.5));
        assert_eq!(area(&[(2.0, true), (1.0, false), (2.0, false)]), Some(0.75));
        assert_eq!(area(&[(1.0, true)]), None);
        assert_eq!(area(&[]), None);
    }

    #[test]
    fn distances_and_top_classes_equal_known_values() {
        let mut sums = Sums::default();
        sums.add(&Loss::Mse, &[1.0, 2.0], Targets::Numbers(&[0.0, 4.0]));
        assert_eq!((sums.squares, sums.distances, sums.count, sums.spread), (5.0, 3.0, 2, 8.0));
        let mut sums = Sums::default();
        let rows = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        sums.add(&Loss::CROSS_ENTROPY, &rows, Targets::Classes(&[4, 5]));
        assert_eq!((sums.among_top, sums.count), (1, 2));
        let mut sums = Sums::default();
        sums.add(&Loss::NextToken { ignore: Some(4) }, &rows, Targets::Classes(&[4, 5]));
        assert_eq!((sums.among_top, sums.count), (0, 1));
    }
}
