//! Tensors of an answer: numbers in JSON, or bytes after it.

use serde::Serialize;

use super::super::model::Prediction;
use super::tensors::{CLASSES, Datatype, SCORES};

/// An output of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Scores,
    Classes,
}

impl Output {
    pub(super) const ALL: [Self; 2] = [Self::Scores, Self::Classes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scores => SCORES,
            Self::Classes => CLASSES,
        }
    }

    /// The output with this name, if any.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|output| output.name() == name)
    }
}

/// A tensor of an answer.
#[derive(Debug, Serialize)]
pub(super) struct OutputTensor<'a> {
    name: &'static str,
    datatype: &'static str,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<BinarySize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
    /// The binary part, after the JSON.
    #[serde(skip)]
    binary: Option<Data<'a>>,
}

#[derive(Debug, Serialize)]
struct BinarySize {
    binary_data_size: usize,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Scores(&'a [f32]),
    Classes(&'a [u32]),
}

impl Data<'_> {
    fn datatype(&self) -> Datatype {
        match self {
            Self::Scores(_) => Datatype::Fp32,
            Self::Classes(_) => Datatype::Int64,
        }
    }

    fn bytes(&self) -> usize {
        let elements = match self {
            Self::Scores(values) => values.len(),
            Self::Classes(values) => values.len(),
        };
        elements * self.datatype().bytes()
    }
}

impl<'a> OutputTensor<'a> {
    /// An output tensor of predictions for examples of this shape, as JSON or binary data.
    pub(super) fn of(output: Output, said: &'a Prediction, shape: &[usize], as_bytes: bool) -> Self {
        let (data, shape) = match output {
            Output::Scores => {
                let classes = said.scores.len() / said.classes.len().max(1);
                (Data::Scores(&said.scores), [shape, &[classes]].concat())
            }
            Output::Classes => (Data::Classes(&said.classes), shape.to_vec()),
        };
        let (name, datatype) = (output.name(), data.datatype().as_str());
        if as_bytes {
            let parameters = Some(BinarySize { binary_data_size: data.bytes() });
            return Self { name, datatype, shape, parameters, data: None, binary: Some(data) };
        }
        Self { name, datatype, shape, parameters: None, data: Some(data), binary: None }
    }

    /// Size of its data in the binary part.
    pub(super) fn bytes(&self) -> usize {
        self.binary.as_ref().map_or(0, Data::bytes)
    }

    /// Appends its bytes in little-endian order; none if it is in the JSON.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        match &self.binary {
            Some(Data::Scores(values)) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Some(Data::Classes(values)) => {
                bytes.extend(values.iter().flat_map(|&value| i64::from(value).to_le_bytes()))
            }
            None => {}
        }
    }
}
