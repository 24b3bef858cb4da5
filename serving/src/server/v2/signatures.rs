//! Inputs and outputs of a model: names, types and shapes.

use std::borrow::Cow;

use client_sdk::models::{Architecture, InputKind};
use graph::{Element, Extent, Port};
use serde::Serialize;

use crate::server::graphs;

/// Name of the one input of a ready model.
pub(super) const INPUT: &str = "input";
/// Names of its outputs.
pub(super) const SCORES: &str = "scores";
pub(super) const CLASSES: &str = "classes";

task_spec::named_enum! {
    /// Element types that requests and answers may use. Integers of 32 bits are only taken, not given.
    pub enum Datatype {
        Bool = "BOOL",
        Fp32 = "FP32",
        Int32 = "INT32",
        Int64 = "INT64",
    }
}

impl Datatype {
    /// Bytes of an element.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Fp32 | Self::Int32 => 4,
            Self::Int64 => 8,
        }
    }

    fn of(element: Element) -> Self {
        match element {
            Element::F32 => Self::Fp32,
            Element::I64 => Self::Int64,
            Element::Bool => Self::Bool,
        }
    }
}

/// An input or output tensor in a model's metadata.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorMetadata {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The type of its numbers.
    pub datatype: Datatype,
    /// -1 for any size.
    pub shape: Vec<i64>,
}

/// Inputs and outputs of a model, in order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Signature {
    /// At least one input.
    pub inputs: Vec<TensorMetadata>,
    /// At least one output.
    pub outputs: Vec<TensorMetadata>,
}

/// The inputs and outputs of a model. A graph's have their own names; outputs whose sizes depend on the other examples are left
/// out.
///
/// # Errors
/// Which part of a graph cannot be served, and why.
pub fn signature(model: &Architecture) -> Result<Signature, String> {
    if let Architecture::Graph(model) = model {
        let (inputs, outputs) = graphs::ports(model)?;
        let outputs = outputs.iter().map(|(_, port)| of_port(port)).collect();
        return Ok(Signature { inputs: inputs.iter().map(of_port).collect(), outputs });
    }
    let tensor = |name: &'static str, datatype, shape: &[i64]| TensorMetadata {
        name: name.into(),
        datatype,
        shape: shape.into(),
    };
    let classes = i64::from(model.classes());
    let (input, scores, best): (_, Vec<i64>, &[i64]) = match model.input() {
        InputKind::Features(width) => {
            let width = i64::try_from(width).unwrap_or(i64::MAX);
            (tensor(INPUT, Datatype::Fp32, &[-1, width]), vec![-1, classes], &[-1])
        }
        InputKind::Characters => (tensor(INPUT, Datatype::Int64, &[-1, -1]), vec![-1, -1, classes], &[-1, -1]),
        InputKind::Tensors => return Err("it takes inputs by name, and is no graph".to_owned()),
    };
    let outputs = vec![tensor(SCORES, Datatype::Fp32, &scores), tensor(CLASSES, Datatype::Int64, best)];
    Ok(Signature { inputs: vec![input], outputs })
}

fn of_port(port: &Port) -> TensorMetadata {
    let size = |extent: &Extent| match extent {
        Extent::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
        Extent::Batch | Extent::Length | Extent::FromLength | Extent::FromBatch => -1,
    };
    let shape = port.shape.iter().map(size).collect();
    TensorMetadata { name: port.name.clone().into(), datatype: Datatype::of(port.element), shape }
}
