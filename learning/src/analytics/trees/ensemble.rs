//! Trees and their predictions: the published result.

use serde::{Deserialize, Serialize};

use super::spec::{Method, TargetSpec};
use crate::analytics::branching::Branching;
use crate::analytics::error::{AnalyticsError, sound};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Maps rows to leaves.
    pub branching: Branching,
    /// For each leaf, as many numbers as the target needs.
    pub values: Vec<Vec<f64>>,
}

impl Tree {
    pub(super) fn leaf(values: Vec<f64>) -> Self {
        Self { branching: Branching::default(), values: vec![values] }
    }

    /// The values of the row's leaf.
    #[must_use]
    pub fn values_of(&self, row: &[f64]) -> &[f64] {
        self.values.get(self.branching.leaf_of(row)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn check(&self, columns: usize, most_leaves: usize, outputs: usize) -> Result<(), AnalyticsError> {
        self.branching.check(columns, most_leaves)?;
        let fits = |values: &Vec<f64>| values.len() == outputs && values.iter().all(|value| value.is_finite());
        sound(self.values.len() == self.branching.leaves() && self.values.iter().all(fits), "a leaf has wrong values")
    }
}

/// An ensemble's prediction for a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Prediction {
    /// A number within the target's range.
    Real(f64),
    /// A probability for each class.
    Class(Vec<f64>),
}

impl Prediction {
    /// The number, or the most probable class; the first of several.
    #[must_use]
    pub fn value(&self) -> f64 {
        match self {
            Self::Real(value) => *value,
            Self::Class(probabilities) => {
                let best =
                    probabilities.iter().enumerate().reduce(|best, next| if next.1 > best.1 { next } else { best });
                best.map_or(0.0, |(class, _)| class as f64)
            }
        }
    }
}

/// Trees with averaged or added values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ensemble {
    pub method: Method,
    pub target: TargetSpec,
    /// The prediction without any tree: scores if boosted, otherwise means.
    pub base: Vec<f64>,
    /// The trees that were completed, oldest first.
    pub trees: Vec<Tree>,
}

impl Ensemble {
    /// The prediction for a row with values in the order of the task's columns.
    #[must_use]
    pub fn predict(&self, row: &[f64]) -> Prediction {
        let mut scores = Vec::new();
        self.scores(row, &mut scores);
        self.interpret(&mut scores);
        match self.target {
            TargetSpec::Real { low, high } => {
                let unit = scores.first().copied().unwrap_or_default();
                Prediction::Real((low + unit * (high - low)).clamp(low, high))
            }
            TargetSpec::Class { .. } if scores.len() == 1 => Prediction::Class(vec![1.0 - scores[0], scores[0]]),
            TargetSpec::Class { .. } => Prediction::Class(scores),
        }
    }

    /// The sum or mean of the trees' values.
    pub(super) fn scores(&self, row: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend(&self.base);
        if self.method == Method::Forest && !self.trees.is_empty() {
            out.fill(0.0);
        }
        for tree in &self.trees {
            for (score, value) in out.iter_mut().zip(tree.values_of(row)) {
                *score += value;
            }
        }
        if self.method == Method::Forest && !self.trees.is_empty() {
            let trees = self.trees.len() as f64;
            out.iter_mut().for_each(|score| *score /= trees);
        }
    }

    /// Turns scores into probabilities; leaves numbers unchanged.
    pub(super) fn interpret(&self, scores: &mut [f64]) {
        if self.method == Method::Boosting && matches!(self.target, TargetSpec::Class { .. }) {
            probabilities(scores);
        }
    }

    /// The loss of a row: cross-entropy, at most 16, or the squared error of a number relative to the target's range.
    pub(super) fn loss(&self, predicted: &[f64], target: &[f64]) -> f64 {
        let pairs = predicted.iter().zip(target);
        match self.target {
            TargetSpec::Real { .. } => pairs.map(|(p, t)| (p - t) * (p - t)).sum::<f64>(),
            TargetSpec::Class { .. } => {
                let one = predicted.len() == 1;
                let surprise = |(&p, &t): (&f64, &f64)| {
                    let of_class = if t > 0.5 { p } else { 1.0 - p };
                    if t > 0.5 || one { -libm::log(of_class.max(1e-7)) } else { 0.0 }
                };
                pairs.map(surprise).sum()
            }
        }
        .clamp(0.0, 16.0)
    }
}

/// Logistic for one score, softmax for several.
fn probabilities(scores: &mut [f64]) {
    if let [score] = scores {
        *score = 1.0 / (1.0 + libm::exp(-*score));
        return;
    }
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut total = 0.0;
    for score in scores.iter_mut() {
        *score = libm::exp(*score - most);
        total += *score;
    }
    scores.iter_mut().for_each(|score| *score /= total);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(method: Method, target: TargetSpec, base: &[f64], values: &[&[f64]]) -> Ensemble {
        let trees = values.iter().map(|values| Tree::leaf(values.to_vec())).collect();
        Ensemble { method, target, base: base.to_vec(), trees }
    }

    #[test]
    fn boosted_trees_add_up_and_forests_vote() {
        let two = TargetSpec::Class { classes: 2 };
        let boosted = ensemble(Method::Boosting, two, &[0.5], &[&[0.25], &[0.25]]);
        let Prediction::Class(p) = boosted.predict(&[]) else { panic!("a class") };
        assert!((p[1] - 1.0 / (1.0 + (-1.0_f64).exp())).abs() < 1e-15 && (p[0] + p[1] - 1.0).abs() < 1e-15);
        assert_eq!(boosted.predict(&[]).value(), 1.0);

        let three = TargetSpec::Class { classes: 3 };
        let forest = ensemble(Method::Forest, three, &[1.0, 0.0, 0.0], &[&[0.0, 0.5, 0.5], &[0.0, 0.25, 0.75]]);
        assert_eq!(forest.predict(&[]), Prediction::Class(vec![0.0, 0.375, 0.625]));
        assert_eq!(forest.predict(&[]).value(), 2.0);

        let softmax = ensemble(Method::Boosting, three, &[800.0, 800.0, 0.0], &[]);
        assert_eq!(softmax.predict(&[]), Prediction::Class(vec![0.5, 0.5, 0.0]));

        let real = ensemble(Method::Boosting, TargetSpec::Real { low: 10.0, high: 20.0 }, &[0.5], &[&[0.1], &[9.0]]);
        assert_eq!(real.predict(&[]), Prediction::Real(20.0));
    }

    #[test]
    fn losses_are_bounded() {
        let two = ensemble(Method::Boosting, TargetSpec::Class { classes: 2 }, &[0.0], &[]);
        assert!((two.loss(&[0.5], &[1.0]) - std::f64::consts::LN_2).abs() < 1e-15);
        assert!(two.loss(&[0.0], &[1.0]) > 16.0 - 1e-9 && two.loss(&[1.0], &[0.0]) <= 16.0);
        let three = ensemble(Method::Boosting, TargetSpec::Class { classes: 3 }, &[0.0; 3], &[]);
        assert!((three.loss(&[0.25, 0.5, 0.25], &[0.0, 1.0, 0.0]) - std::f64::consts::LN_2).abs() < 1e-15);
        let real = ensemble(Method::Forest, TargetSpec::Real { low: 0.0, high: 2.0 }, &[0.0], &[]);
        assert_eq!(real.loss(&[0.25], &[0.75]), 0.25);
    }
}
