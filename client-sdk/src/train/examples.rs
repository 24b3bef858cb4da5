//! Borrowed training data.

use std::ops::Range;

use graph::Element;

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
    /// Inputs of a graph, in its order, with targets.
    Tensors {
        /// For each input of the graph, the elements of all examples, one example after the other.
        inputs: &'a [Column<'a>],
        /// The targets of all examples.
        targets: TargetColumn<'a>,
        /// Number of examples.
        count: usize,
        /// Length of the sequences; 1 for a graph without.
        length: usize,
    },
}

/// An input of all examples.
#[derive(Clone, Copy, Debug)]
pub enum Column<'a> {
    /// Floats.
    F32(&'a [f32]),
    /// Integers.
    I64(&'a [i64]),
    /// Integers of a smaller range, for an input of integers.
    U32(&'a [u32]),
    /// Truth values, for masks.
    Bool(&'a [bool]),
}

impl Column<'_> {
    /// Type and number of its elements.
    pub(super) fn size(&self) -> (Element, usize) {
        match self {
            Self::F32(values) => (Element::F32, values.len()),
            Self::I64(values) => (Element::I64, values.len()),
            Self::U32(values) => (Element::I64, values.len()),
            Self::Bool(values) => (Element::Bool, values.len()),
        }
    }

    /// The elements of some of `count` examples, which all have the same number of elements.
    ///
    /// # Panics
    /// If the range ends after `count`.
    #[must_use]
    pub fn part(self, range: &Range<usize>, count: usize) -> Self {
        fn of<'a, T>(all: &'a [T], range: &Range<usize>, count: usize) -> &'a [T] {
            let width = all.len() / count.max(1);
            &all[range.start * width..range.end * width]
        }
        match self {
            Self::F32(values) => Self::F32(of(values, range, count)),
            Self::I64(values) => Self::I64(of(values, range, count)),
            Self::U32(values) => Self::U32(of(values, range, count)),
            Self::Bool(values) => Self::Bool(of(values, range, count)),
        }
    }
}

/// The targets of all examples, one example after the other.
#[derive(Clone, Copy, Debug)]
pub enum TargetColumn<'a> {
    /// A class or token for each prediction.
    Classes(&'a [u32]),
    /// A number for each output.
    Numbers(&'a [f32]),
}

impl Examples<'_> {
    /// Number of rows or sequences.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Labelled { labels, .. } => labels.len(),
            Self::Text { inputs, length, .. } => inputs.len().checked_div(*length).unwrap_or_default(),
            Self::Tensors { count, .. } => *count,
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
            Self::Text { length, .. } | Self::Tensors { length, .. } => *length,
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
            (_, InputKind::Tensors) => Err(TrainError::WrongKind { kind, needs: "named inputs" }),
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
