//! Inputs and predictions of some examples, which are split and joined.

use std::ops::Range;

use client_sdk::train::{Scores, Tensor};

/// Input of a prediction: examples of one kind and width.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// Consecutive examples of `width` numbers each.
    Rows { values: Vec<f32>, width: usize },
    /// Consecutive texts of `length` characters each, as vocabulary numbers.
    Texts { characters: Vec<u32>, length: usize },
    /// Inputs of a graph.
    Tensors(Examples),
}

impl Input {
    /// Number of examples.
    pub(crate) fn examples(&self) -> usize {
        match self {
            Self::Rows { values, width } => values.len() / (*width).max(1),
            Self::Texts { characters, length } => characters.len() / (*length).max(1),
            Self::Tensors(examples) => examples.count,
        }
    }

    /// Length of the sequences of a graph, which computes only equal lengths together; 0 for other models.
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Rows { .. } | Self::Texts { .. } => 0,
            Self::Tensors(examples) => examples.length,
        }
    }

    /// Appends the examples of another request; returns whether they can be computed together.
    fn extend(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Rows { values, .. }, Self::Rows { values: more, .. }) => values.extend_from_slice(more),
            (Self::Texts { characters, length }, Self::Texts { characters: more, length: other })
                if length == other =>
            {
                characters.extend_from_slice(more);
            }
            (Self::Tensors(all), Self::Tensors(more)) => return all.extend(more),
            (Self::Rows { .. } | Self::Texts { .. } | Self::Tensors(_), _) => return false,
        }
        true
    }

    /// A range of the examples.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::Rows { values, width } => {
                Self::Rows { values: values[range.start * width..range.end * width].to_vec(), width: *width }
            }
            Self::Texts { characters, length } => Self::Texts {
                characters: characters[range.start * length..range.end * length].to_vec(),
                length: *length,
            },
            Self::Tensors(examples) => Self::Tensors(examples.part(range)),
        }
    }

    /// Passes its bytes to `update`, for a digest.
    pub(crate) fn bytes(&self, mut update: impl FnMut(&[u8])) {
        match self {
            Self::Rows { values, width } => {
                update(&width.to_le_bytes());
                values.iter().for_each(|value| update(&value.to_le_bytes()));
            }
            Self::Texts { characters, length } => {
                update(&length.to_le_bytes());
                characters.iter().for_each(|value| update(&value.to_le_bytes()));
            }
            Self::Tensors(examples) => examples.bytes(update),
        }
    }
}

/// Predictions for some examples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    /// Before softmax: by example, then position for texts, then class. Of a graph, its first output.
    pub(crate) scores: Vec<f32>,
    /// The class with the highest score, by example, then position. Of a graph that predicts numbers, none.
    pub(crate) classes: Vec<u32>,
    /// Further outputs of a graph, by example.
    pub(crate) others: Vec<Tensor>,
}

impl Prediction {
    pub(crate) fn of(scores: &Scores) -> Self {
        Self { scores: scores.values().to_vec(), classes: scores.best(), others: Vec::new() }
    }

    /// The same with scores of 0..1 as numbers from `low` to `high`.
    pub(crate) fn in_units(&self, low: f64, high: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let number = |score: &f32| (low + f64::from(*score) * (high - low)) as f32;
        Self { scores: self.scores.iter().map(number).collect(), classes: Vec::new(), others: self.others.clone() }
    }

    /// Appends predictions for further examples.
    pub(crate) fn extend(&mut self, other: Self) {
        self.scores.extend(other.scores);
        self.classes.extend(other.classes);
        if self.others.is_empty() {
            self.others = other.others;
        } else {
            self.others.iter_mut().zip(&other.others).for_each(|(all, more)| append(all, more));
        }
    }

    /// The predictions of a range of `count` examples.
    pub(crate) fn part(&self, count: usize, range: Range<usize>) -> Self {
        let of = |length: usize| {
            let each = length / count.max(1);
            range.start * each..range.end * each
        };
        Self {
            scores: self.scores[of(self.scores.len())].to_vec(),
            classes: self.classes[of(self.classes.len())].to_vec(),
            others: self.others.iter().map(|tensor| part(tensor, count, range.clone())).collect(),
        }
    }

    /// All floats among the outputs.
    pub(crate) fn floats(&self) -> impl Iterator<Item = f32> {
        let others = self.others.iter().flat_map(|tensor| match tensor {
            Tensor::F32(values) => &values[..],
            Tensor::I64(_) | Tensor::Bool(_) => &[],
        });
        self.scores.iter().chain(others).copied()
    }

    /// Approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let each = |tensor: &Tensor| match tensor {
            Tensor::F32(_) => 4,
            Tensor::I64(_) => 8,
            Tensor::Bool(_) => 1,
        };
        let others: usize = self.others.iter().map(|tensor| each(tensor) * tensor.len()).sum();
        4 * (self.scores.len() + self.classes.len()) + others
    }
}

/// Combines the examples of several requests; `None` if they cannot be combined.
pub(crate) fn joined<'a>(mut inputs: impl Iterator<Item = &'a Input>) -> Option<Input> {
    let mut all = inputs.next()?.clone();
    inputs.all(|input| all.extend(input)).then_some(all)
}

/// Inputs of some examples of one length, in the graph's order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Examples {
    /// The elements of each input, one example after the other.
    pub(crate) tensors: Vec<Tensor>,
    /// Number of examples.
    pub(crate) count: usize,
    /// Length of the sequences; any value for a graph without sequences.
    pub(crate) length: u32,
}

impl Examples {
    /// A range of the examples.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        let tensors = self.tensors.iter().map(|tensor| part(tensor, self.count, range.clone())).collect();
        Self { tensors, count: range.len(), length: self.length }
    }

    /// Appends further examples; returns whether they have the same length, without which nothing changes.
    pub(crate) fn extend(&mut self, other: &Self) -> bool {
        if self.length != other.length || self.tensors.len() != other.tensors.len() {
            return false;
        }
        self.tensors.iter_mut().zip(&other.tensors).for_each(|(all, more)| append(all, more));
        self.count += other.count;
        true
    }

    /// Passes its bytes to `update`, for a digest.
    pub(crate) fn bytes(&self, mut update: impl FnMut(&[u8])) {
        update(&self.length.to_le_bytes());
        update(&self.count.to_le_bytes());
        for tensor in &self.tensors {
            update(&tensor.len().to_le_bytes());
            match tensor {
                Tensor::F32(values) => values.iter().for_each(|value| update(&value.to_le_bytes())),
                Tensor::I64(values) => values.iter().for_each(|value| update(&value.to_le_bytes())),
                Tensor::Bool(values) => values.iter().for_each(|value| update(&[u8::from(*value)])),
            }
        }
    }
}

/// The elements of a range of `count` examples.
pub(super) fn part(tensor: &Tensor, count: usize, range: Range<usize>) -> Tensor {
    fn of<T: Clone>(values: &[T], count: usize, range: Range<usize>) -> Vec<T> {
        let each = values.len() / count.max(1);
        values[range.start * each..range.end * each].to_vec()
    }
    match tensor {
        Tensor::F32(values) => Tensor::F32(of(values, count, range)),
        Tensor::I64(values) => Tensor::I64(of(values, count, range)),
        Tensor::Bool(values) => Tensor::Bool(of(values, count, range)),
    }
}

/// Appends elements of the same type.
pub(super) fn append(all: &mut Tensor, more: &Tensor) {
    match (all, more) {
        (Tensor::F32(all), Tensor::F32(more)) => all.extend_from_slice(more),
        (Tensor::I64(all), Tensor::I64(more)) => all.extend_from_slice(more),
        (Tensor::Bool(all), Tensor::Bool(more)) => all.extend_from_slice(more),
        // Inputs and outputs of one graph have one type each.
        (Tensor::F32(_) | Tensor::I64(_) | Tensor::Bool(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_parted_and_joined_by_examples() {
        let rows = Input::Rows { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], width: 2 };
        let parts = [rows.part(0..1), rows.part(1..3)];
        assert_eq!((parts[0].examples(), parts[1].examples()), (1, 2));
        assert_eq!(joined(parts.iter()), Some(rows.clone()));
        let texts = |length| Input::Texts { characters: vec![1; 6], length };
        assert_eq!(joined([texts(2), texts(3)].iter()), None, "of different lengths");
        let bytes = |input: &Input| {
            let mut all = Vec::new();
            input.bytes(|bytes| all.extend_from_slice(bytes));
            all
        };
        assert!(bytes(&rows).len() >= 24);
        assert_ne!(bytes(&texts(2)), bytes(&texts(3)));
    }
}
