//! Examples in memory: labelled vectors, and sequences of characters.
//!
//! Flat vectors, so that any learning library can use them. `Debug` prints shapes only: a participant's data does not
//! belong in a log.

use std::fmt;

use rand::seq::SliceRandom;

use crate::DataError;
use crate::random::{Purpose, stream, whole};

/// Labelled examples of one width, row-major: `features.len() == labels.len() * width`.
#[derive(Clone, PartialEq)]
pub struct Labelled {
    /// Example `i` is `features[i * width..(i + 1) * width]`.
    pub features: Vec<f32>,
    /// The class of each example, each below `classes`.
    pub labels: Vec<u32>,
    /// Features of one example.
    pub width: usize,
    /// Number of classes, including those without an example.
    pub classes: usize,
}

impl Labelled {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The examples at `indices`, in that order; an index may repeat.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            features: rows(&self.features, self.width, indices),
            labels: indices.iter().map(|&i| self.labels[i]).collect(),
            width: self.width,
            classes: self.classes,
        }
    }

    /// Concatenates `parts`.
    ///
    /// # Errors
    /// [`DataError::Incompatible`] if there are no parts, or if widths or numbers of classes differ.
    pub fn concat(parts: &[Self]) -> Result<Self, DataError> {
        let first = parts.first().ok_or_else(|| DataError::Incompatible("there are none".into()))?;
        if let Some(odd) = parts.iter().find(|p| (p.width, p.classes) != (first.width, first.classes)) {
            return Err(DataError::Incompatible(format!("{first:?} and {odd:?} differ in shape")));
        }
        Ok(Self {
            features: parts.iter().flat_map(|p| &p.features).copied().collect(),
            labels: parts.iter().flat_map(|p| &p.labels).copied().collect(),
            width: first.width,
            classes: first.classes,
        })
    }

    /// Holds out a random `held_out_fraction` (clamped to 0..=1) of the examples: `(train, held_out)`, each in the
    /// original order. With a fraction strictly between 0 and 1 and two examples or more, neither side is empty.
    #[must_use]
    pub fn split(self, held_out_fraction: f64, seed: u64) -> (Self, Self) {
        let (train, test) = split(self.len(), held_out_fraction, seed);
        (self.subset(&train), self.subset(&test))
    }
}

/// Sequences for next-character prediction, row-major: `inputs.len() == targets.len()`, a multiple of `length`.
#[derive(Clone, PartialEq)]
pub struct Text {
    /// Sequence `i` is `inputs[i * length..(i + 1) * length]`; each character is a number below `vocabulary`.
    pub inputs: Vec<u32>,
    /// For each position of `inputs`, the character that follows.
    pub targets: Vec<u32>,
    /// Characters of one sequence, at least 1.
    pub length: usize,
    /// Number of different characters.
    pub vocabulary: usize,
}

impl Text {
    pub fn len(&self) -> usize {
        self.inputs.len() / self.length
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The sequences at `indices`, in that order; an index may repeat.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            inputs: rows(&self.inputs, self.length, indices),
            targets: rows(&self.targets, self.length, indices),
            length: self.length,
            vocabulary: self.vocabulary,
        }
    }

    /// Concatenates `parts`.
    ///
    /// # Errors
    /// [`DataError::Incompatible`] if there are no parts, or if lengths or vocabularies differ.
    pub fn concat(parts: &[Self]) -> Result<Self, DataError> {
        let first = parts.first().ok_or_else(|| DataError::Incompatible("there are none".into()))?;
        if let Some(odd) = parts.iter().find(|p| (p.length, p.vocabulary) != (first.length, first.vocabulary)) {
            return Err(DataError::Incompatible(format!("{first:?} and {odd:?} differ in shape")));
        }
        Ok(Self {
            inputs: parts.iter().flat_map(|p| &p.inputs).copied().collect(),
            targets: parts.iter().flat_map(|p| &p.targets).copied().collect(),
            length: first.length,
            vocabulary: first.vocabulary,
        })
    }

    /// Holds out the last `held_out_fraction` (clamped to 0..=1) of the sequences: `(train, held_out)`. The split is
    /// not random, since neighbouring sequences would leak into each other's set.
    #[must_use]
    pub fn split(mut self, held_out_fraction: f64) -> (Self, Self) {
        let kept = (self.len() - held_out_count(self.len(), held_out_fraction)) * self.length;
        let held_out = Self {
            inputs: self.inputs.split_off(kept),
            targets: self.targets.split_off(kept),
            length: self.length,
            vocabulary: self.vocabulary,
        };
        (self, held_out)
    }
}

/// Either kind of data.
#[derive(Clone, Debug, PartialEq)]
pub enum Dataset {
    /// Vectors with a class each.
    Labelled(Labelled),
    Text(Text),
}

impl Dataset {
    /// Number of examples: vectors or sequences.
    pub fn len(&self) -> usize {
        match self {
            Self::Labelled(data) => data.len(),
            Self::Text(data) => data.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The examples at `indices`, in that order; an index may repeat.
    ///
    /// # Panics
    /// If an index is not below [`Self::len`].
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        match self {
            Self::Labelled(data) => Self::Labelled(data.subset(indices)),
            Self::Text(data) => Self::Text(data.subset(indices)),
        }
    }

    /// Concatenates `parts`.
    ///
    /// # Errors
    /// [`DataError::Incompatible`] if there are no parts, or if kinds or shapes differ.
    pub fn concat(parts: &[Self]) -> Result<Self, DataError> {
        let (mut labelled, mut text) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Self::Labelled(data) => labelled.push(data.clone()),
                Self::Text(data) => text.push(data.clone()),
            }
        }
        match (labelled.is_empty(), text.is_empty()) {
            (false, false) => Err(DataError::Incompatible("some are labelled vectors, others are text".into())),
            (true, false) => Text::concat(&text).map(Self::Text),
            (_, true) => Labelled::concat(&labelled).map(Self::Labelled),
        }
    }

    /// Holds out `held_out_fraction` (clamped to 0..=1) of the examples: `(train, held_out)`. Vectors are chosen at
    /// random from `seed`; for text, the last sequences are held out whatever the seed.
    #[must_use]
    pub fn split(self, held_out_fraction: f64, seed: u64) -> (Self, Self) {
        match self {
            Self::Labelled(data) => {
                let (train, held_out) = data.split(held_out_fraction, seed);
                (Self::Labelled(train), Self::Labelled(held_out))
            }
            Self::Text(data) => {
                let (train, held_out) = data.split(held_out_fraction);
                (Self::Text(train), Self::Text(held_out))
            }
        }
    }
}

impl fmt::Debug for Labelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Labelled({} examples of {} features, {} classes)", self.len(), self.width, self.classes)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.inputs.len();
        write!(f, "Text({values} characters in sequences of {}, vocabulary {})", self.length, self.vocabulary)
    }
}

/// The rows of a row-major matrix at `indices`.
fn rows<T: Copy>(values: &[T], width: usize, indices: &[usize]) -> Vec<T> {
    let mut chosen = Vec::with_capacity(indices.len() * width);
    for &index in indices {
        chosen.extend_from_slice(&values[index * width..(index + 1) * width]);
    }
    chosen
}

/// Positions of `count` examples without and with those to hold out, a random `held_out_fraction`; each in ascending order. As
/// [`Labelled::split`].
#[must_use]
pub fn split(count: usize, held_out_fraction: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let held_out = held_out_count(count, held_out_fraction);
    let mut test: Vec<usize> = (0..count).collect();
    test.shuffle(&mut stream(seed, Purpose::Split, 0));
    let mut train = test.split_off(held_out);
    test.sort_unstable();
    train.sort_unstable();
    (train, test)
}

/// Number of examples to hold out: the rounded share, but neither none nor all if the fraction is neither.
fn held_out_count(count: usize, fraction: f64) -> usize {
    let share = whole((count as f64 * fraction).round(), count);
    if count >= 2 && fraction > 0.0 && fraction < 1.0 { share.clamp(1, count - 1) } else { share }
}
