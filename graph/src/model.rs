//! The parts of a graph.

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::operation::Operation;
use crate::size::{Point, Size};

/// A model: tensors and the operations that compute its outputs from its inputs.
///
/// Values are numbered: the inputs first, then the parameters, the constants, and the outputs of the nodes in order. A
/// node refers to values of a lower number only, so a graph has no cycle, no duplicate and no missing value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Version of the format, from [`Graph::VERSION`] to [`Graph::LATEST`].
    pub version: u32,
    /// Lengths of sequences that it computes; `None` if no size depends on the length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
    /// What an example consists of, at least one input.
    pub inputs: Vec<Input>,
    /// The tensors that training changes, in the order of the task's tensors.
    pub parameters: Vec<Parameter>,
    /// Tensors with fixed values, for example the running statistics of a batch normalization.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constants: Vec<Constant>,
    /// The operations in execution order.
    pub nodes: Vec<Node>,
    /// The results, at least one; the loss applies to the first.
    pub outputs: Vec<Output>,
}

impl Graph {
    /// The first format, that of all graphs without [`Self::BATCH_STATISTICS`].
    pub const VERSION: u32 = 1;
    /// The format of graphs with a momentum in an [`Operation::BatchNorm`].
    pub const BATCH_STATISTICS: u32 = 2;
    /// The latest format that this crate reads.
    pub const LATEST: u32 = Self::BATCH_STATISTICS;

    /// The value of an input, by its position.
    #[must_use]
    pub fn input(&self, position: usize) -> ValueId {
        number(position)
    }

    /// The value of a parameter, by its position.
    #[must_use]
    pub fn parameter(&self, position: usize) -> ValueId {
        number(self.inputs.len() + position)
    }

    /// The value of a constant, by its position.
    #[must_use]
    pub fn constant(&self, position: usize) -> ValueId {
        number(self.inputs.len() + self.parameters.len() + position)
    }

    /// The first result of the first node; those of the other nodes follow.
    #[must_use]
    pub fn first_result(&self) -> ValueId {
        self.constant(self.constants.len())
    }

    /// Number of values: inputs, parameters, constants and results of nodes.
    #[must_use]
    pub fn value_count(&self) -> usize {
        let results: usize = self.nodes.iter().map(|node| node.operation.outputs() as usize).sum();
        self.inputs.len() + self.parameters.len() + self.constants.len() + results
    }

    /// Batches and lengths at which a graph is checked: the shortest and longest length, with different batches.
    #[must_use]
    pub fn sample_points(&self) -> [Point; 5] {
        let Lengths { least, most } = self.lengths.unwrap_or(Lengths { least: 1, most: 1 });
        [(1, least), (2, least), (32, least), (1, most), (3, most)].map(|(batch, length)| Point { batch, length })
    }
}

/// A graph has fewer than 2^32 values: each node takes more than one byte of at most 512 KiB.
fn number(position: usize) -> ValueId {
    ValueId(u32::try_from(position).unwrap_or(u32::MAX))
}

/// A range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lengths {
    /// The shortest, at least 1.
    pub least: u32,
    /// The longest, at least `least`.
    pub most: u32,
}

/// The number of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// A tensor that every example brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name in the model that was imported.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Its sizes; the first is [`Size::BATCH`], others are fixed or [`Size::LENGTH`].
    pub shape: Vec<Size>,
}

/// A tensor of 32-bit floats that belongs to the task's model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its name, the same as in the task and in the checkpoint.
    pub name: String,
    /// Its sizes; empty for a single number.
    pub shape: Vec<u32>,
}

/// A tensor with fixed values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Its name in the model that was imported, for messages; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its sizes; empty for a single number.
    pub shape: Vec<u32>,
    /// Its elements in row-major order.
    pub values: Values,
}

/// Elements of a constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// Floats; as little-endian bytes in base64, so that infinities survive JSON.
    F32(#[serde(with = "crate::floats")] Vec<f32>),
    /// Integers.
    I64(Vec<i64>),
    /// Truth values.
    Bool(Vec<bool>),
}

/// An operation and the values that it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name in the model that was imported, for messages; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The operation that it applies to its inputs.
    #[serde(rename = "do")]
    pub operation: Operation,
    /// The values that it reads, in the operation's order.
    #[serde(rename = "of")]
    pub inputs: Vec<ValueId>,
}

/// A result of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its name in the model that was imported.
    pub name: String,
    /// Number of the value that is the result.
    pub value: ValueId,
}
