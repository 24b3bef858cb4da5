//! Borrowed training data.

use super::error::TrainError;
use crate::models::{Architecture, InputKind};

/// Examples of one kind.
#[derive(Clone, Copy, Debug)]
pub enum Examples<'a> {
    /// Rows of numbers, each with a class.
    Labelled {
        /// `labels.len() * width` numbers, row after row; an image is in the order channel, row, column.
        features: &'a [f32],
        /// Class of each row.
        labels: &'a [u32],
        /// Length of a row.
        width: usize,
    },
    /// Sequences of characters, with the next character at each position.
    Text {
        /// Concatenated sequences.
        inputs: &'a [u32],
        /// The character after each of `inputs`.
        targets: &'a [u32],
        /// Length of a sequence, in characters.
        length: usize,
    },
}

impl Examples<'_> {
    /// Number of rows or sequences.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Labelled { labels, .. } => labels.len(),
            Self::Text { inputs, length, .. } => inputs.len().checked_div(*length).unwrap_or_default(),
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Predictions per example.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Labelled { .. } => 1,
            Self::Text { length, .. } => *length,
        }
    }

    /// Checks that the examples fit the model.
    pub(super) fn check(&self, architecture: &Architecture) -> Result<(), TrainError> {
        let kind = architecture.kind();
        if self.is_empty() {
            return Err(TrainError::NoExamples);
        }
        match (self, architecture.input()) {
            (Self::Labelled { features, labels, width }, InputKind::Features(expected)) => {
                if *width != expected {
                    return Err(TrainError::Width { kind, expected, got: *width });
                }
                lengths("features", labels.len().saturating_mul(*width), features.len())?;
                below(labels, architecture.classes())
            }
            (Self::Text { inputs, targets, length }, InputKind::Characters) => {
                lengths("characters", self.count() * length, inputs.len())?;
                lengths("next characters", inputs.len(), targets.len())?;
                below(inputs, architecture.classes())?;
                below(targets, architecture.classes())
            }
            (_, InputKind::Features(_)) => Err(TrainError::WrongKind { kind, needs: "rows of features with labels" }),
            (_, InputKind::Characters) => Err(TrainError::WrongKind { kind, needs: "sequences of characters" }),
        }
    }
}

fn lengths(what: &'static str, expected: usize, got: usize) -> Result<(), TrainError> {
    if expected == got { Ok(()) } else { Err(TrainError::Lengths { what, expected, got }) }
}

fn below(labels: &[u32], classes: u32) -> Result<(), TrainError> {
    match labels.iter().enumerate().find(|&(_, &label)| label >= classes) {
        None => Ok(()),
        Some((example, &label)) => Err(TrainError::Label { example, label, most: classes - 1 }),
    }
}
