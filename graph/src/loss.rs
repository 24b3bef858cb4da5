//! The losses that training minimizes.

use serde::{Deserialize, Serialize};

/// The loss of a graph's first output against the targets of the examples. Every loss is a mean over predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// Cross-entropy of scores `[batch, classes]` and a class for each example.
    CrossEntropy {
        /// Share of the target that is spread over all classes, 0 to 1 (Szegedy et al. 2016).
        #[serde(default, skip_serializing_if = "is_zero")]
        label_smoothing: f32,
        /// A factor for each class, empty for 1; the mean is weighted as PyTorch's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        weights: Vec<f32>,
    },
    /// Cross-entropy of scores `[batch, length, tokens]` and a token for each position.
    NextToken {
        /// Target of positions without a prediction, for example padding.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<u32>,
    },
    /// Binary cross-entropy of logits `[batch]`, `[batch, 1]` or `[batch, labels]` and targets from 0 to 1.
    BceWithLogits {
        /// Factor on the positive part.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        positive_weight: f32,
    },
    /// Squared error.
    Mse,
    /// Squared error up to `delta`, then linear (PyTorch's `HuberLoss`).
    Huber {
        /// Where it becomes linear, positive.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        delta: f32,
    },
    /// `e^x - y x`: the negative log-likelihood of counts `y` with the logarithm of their rate as the output.
    Poisson,
}

impl Loss {
    /// Plain cross-entropy, the loss of a task that names none.
    pub const CROSS_ENTROPY: Self = Self::CrossEntropy { label_smoothing: 0.0, weights: Vec::new() };

    /// The loss of this name with its default settings; `None` for another name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let all = [
            Self::CROSS_ENTROPY,
            Self::NextToken { ignore: None },
            Self::BceWithLogits { positive_weight: 1.0 },
            Self::Mse,
            Self::Huber { delta: 1.0 },
            Self::Poisson,
        ];
        all.into_iter().find(|loss| loss.name() == name)
    }

    /// Its name, as in `kind = "mse"`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy { .. } => "cross_entropy",
            Self::NextToken { .. } => "next_token",
            Self::BceWithLogits { .. } => "bce_with_logits",
            Self::Mse => "mse",
            Self::Huber { .. } => "huber",
            Self::Poisson => "poisson",
        }
    }

    /// Number of classes or tokens that an output of this shape has scores for; `None` if targets are numbers.
    ///
    /// # Errors
    /// What is wrong with the settings, or which output the loss needs.
    pub(crate) fn classes(&self, output: &[usize]) -> Result<Option<usize>, String> {
        let positive = |name: &str, value: f32| {
            let is_positive = value.is_finite() && value > 0.0;
            if is_positive { Ok(()) } else { Err(format!("{name} is {value}; it must be above 0")) }
        };
        match self {
            Self::CrossEntropy { label_smoothing, weights } => {
                let Some(classes) = scores(output, 2) else {
                    return Err(format!("needs scores [batch, classes] of two classes or more, not {output:?}"));
                };
                if !(0.0..1.0).contains(label_smoothing) {
                    return Err(format!("label_smoothing is {label_smoothing}; it must be from 0 to below 1"));
                }
                if !weights.is_empty() && weights.len() != classes {
                    return Err(format!("has {} weights for {classes} classes", weights.len()));
                }
                weights.iter().try_for_each(|weight| positive("a weight", *weight))?;
                Ok(Some(classes))
            }
            Self::NextToken { ignore: _ } => {
                let needed = || format!("needs scores [batch, length, tokens] of two tokens or more, not {output:?}");
                scores(output, 3).map(Some).ok_or_else(needed)
            }
            Self::BceWithLogits { positive_weight } => positive("positive_weight", *positive_weight).map(|()| None),
            Self::Huber { delta } => positive("delta", *delta).map(|()| None),
            Self::Mse | Self::Poisson => Ok(None),
        }
    }
}

/// Number of scores along the last axis of an output of this rank, if there are two or more.
fn scores(output: &[usize], rank: usize) -> Option<usize> {
    output.last().copied().filter(|scores| output.len() == rank && *scores >= 2)
}

fn one() -> f32 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_one(value: &f32) -> bool {
    *value == 1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(value: &f32) -> bool {
    *value == 0.0
}
