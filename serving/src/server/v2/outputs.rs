//! Tensors of an answer: numbers in JSON, or bytes after it.

use client_sdk::train::Tensor;
use serde::Serialize;

use super::signatures::{Datatype, TensorMetadata};
use crate::server::input::Prediction;

/// A tensor of an answer.
#[derive(Debug, Serialize)]
pub(super) struct OutputTensor<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
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

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Floats(&'a [f32]),
    Classes(&'a [u32]),
    Integers(&'a [i64]),
    Truths(&'a [bool]),
}

impl<'a> Data<'a> {
    /// The elements of an output: the scores, the classes or a further output of a graph.
    fn of(position: usize, said: &'a Prediction) -> Self {
        match position.checked_sub(1).map(|further| said.others.get(further)) {
            None => Self::Floats(&said.scores),
            Some(None) => Self::Classes(&said.classes),
            Some(Some(Tensor::F32(values))) => Self::Floats(values),
            Some(Some(Tensor::I64(values))) => Self::Integers(values),
            Some(Some(Tensor::Bool(values))) => Self::Truths(values),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Floats(values) => values.len() * Datatype::Fp32.bytes(),
            Self::Classes(values) => values.len() * Datatype::Int64.bytes(),
            Self::Integers(values) => values.len() * Datatype::Int64.bytes(),
            Self::Truths(values) => values.len(),
        }
    }
}

impl<'a> OutputTensor<'a> {
    /// An output of a model, by its position, as JSON or binary data.
    pub(super) fn of(
        position: usize,
        described: &'a TensorMetadata,
        said: &'a Prediction,
        shape: &'a [usize],
        as_bytes: bool,
    ) -> Self {
        let data = Data::of(position, said);
        let (name, datatype) = (&*described.name, described.datatype.as_str());
        if as_bytes {
            let parameters = Some(BinarySize { binary_data_size: data.bytes() });
            return Self { name, datatype, shape, parameters, data: None, binary: Some(data) };
        }
        Self { name, datatype, shape, parameters: None, data: Some(data), binary: None }
    }

    /// Size of its data in the binary part.
    pub(super) fn bytes(&self) -> usize {
        self.binary.map_or(0, Data::bytes)
    }

    /// Appends its bytes in little-endian order; none if it is in the JSON.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        match self.binary {
            Some(Data::Floats(values)) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Some(Data::Classes(values)) => {
                bytes.extend(values.iter().flat_map(|&value| i64::from(value).to_le_bytes()));
            }
            Some(Data::Integers(values)) => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            Some(Data::Truths(values)) => bytes.extend(values.iter().map(|&value| u8::from(value))),
            None => {}
        }
    }
}
