//! Limits of a graph, checked before anything is computed.

mod encoded;
mod statistics;

use std::collections::BTreeSet;

use self::encoded::is_longer;
pub use self::statistics::BatchStatistics;
use crate::graph_error::GraphError;
use crate::infer::{infer, shapes};
use crate::model::{Constant, Graph, Lengths, Node, Values};
use crate::operation::Operation;
use crate::size::Size;

/// Maximum number of bytes of a graph as JSON. A task, of at most 1 MiB, holds it.
pub const MAX_BYTES: usize = 512 << 10;
/// Maximum number of bytes of all constants in memory.
pub const MAX_CONSTANT_BYTES: usize = 1 << 20;
/// Maximum number of nodes.
pub const MAX_NODES: usize = 20_000;
/// Maximum number of inputs of a node.
const MAX_INPUTS: usize = 1024;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 256;

impl Graph {
    /// Checks the graph against all limits, and its shapes at several batches and lengths. The limits of computing time
    /// and memory hold for one example of the shortest and of the longest length.
    ///
    /// # Errors
    /// [`GraphError`]: the first limit or rule that the graph breaks.
    pub fn check(&self) -> Result<(), GraphError> {
        let wrong = |detail: String| Err(GraphError::Graph(detail));
        if !(Self::VERSION..=Self::LATEST).contains(&self.version) {
            let (first, last) = (Self::VERSION, Self::LATEST);
            return wrong(format!("has the format {}; this program reads {first} to {last}", self.version));
        }
        if self.inputs.is_empty() || self.parameters.is_empty() || self.outputs.is_empty() {
            return wrong("needs an input, a parameter and an output".to_owned());
        }
        if self.nodes.len() > MAX_NODES {
            return wrong(format!("has {} nodes; at most {MAX_NODES} are allowed", self.nodes.len()));
        }
        self.check_bytes()?;
        self.check_names()?;
        self.check_inputs()?;
        self.check_lengths()?;
        self.check_statistics()?;
        if let Some((number, node)) = self.nodes.iter().enumerate().find(|(_, node)| node.inputs.len() > MAX_INPUTS) {
            let detail = format!("has {} inputs; at most {MAX_INPUTS} are allowed", node.inputs.len());
            let name = node.name.clone();
            return Err(GraphError::Node { number, operation: node.operation.name(), name, detail });
        }
        self.sample_points().into_iter().try_for_each(|point| match point.batch {
            1 => infer(self, point).map(drop),
            // A device computes as many examples at once as its memory allows.
            _ => shapes(self, point).map(drop),
        })
    }

    /// The constants hold no NaN, and the graph fits a task, however it was read.
    fn check_bytes(&self) -> Result<(), GraphError> {
        let constants = self.constants.iter().fold(0_usize, |sum, constant| {
            sum.saturating_add(match &constant.values {
                Values::F32(values) => values.len().saturating_mul(4),
                Values::I64(values) => values.len().saturating_mul(8),
                Values::Bool(values) => values.len(),
            })
        });
        if constants > MAX_CONSTANT_BYTES {
            let detail = format!("has {constants} bytes of constants; at most {MAX_CONSTANT_BYTES} are allowed");
            return Err(GraphError::Graph(detail));
        }
        let has_nan = |constant: &&Constant| match &constant.values {
            Values::F32(values) => values.iter().any(|value| value.is_nan()),
            Values::I64(_) | Values::Bool(_) => false,
        };
        if let Some(constant) = self.constants.iter().find(has_nan) {
            let detail = "contains NaN; numbers and infinities are allowed".to_owned();
            return Err(GraphError::Tensor { kind: "constant", name: shown(&constant.name), detail });
        }
        if is_longer(self, MAX_BYTES) {
            return Err(GraphError::Format(format!("more than {MAX_BYTES} bytes as JSON")));
        }
        Ok(())
    }

    /// Names have a bounded length and no control characters. Inputs, parameters and outputs have different ones.
    fn check_names(&self) -> Result<(), GraphError> {
        let inputs = self.inputs.iter().map(|input| ("input", &input.name));
        let parameters = self.parameters.iter().map(|parameter| ("parameter", &parameter.name));
        let outputs = self.outputs.iter().map(|output| ("output", &output.name));
        let constants = self.constants.iter().map(|constant| ("constant", &constant.name));
        let mut seen = BTreeSet::new();
        for (kind, name) in inputs.chain(parameters).chain(outputs).chain(constants) {
            let is_optional = kind == "constant";
            let wrong = |detail: &str| Err(GraphError::Tensor { kind, name: shown(name), detail: detail.to_owned() });
            if name.len() > MAX_NAME || (name.is_empty() && !is_optional) {
                return wrong(if is_optional {
                    "needs a name of at most 256 bytes"
                } else {
                    "needs a name of 1 to 256 bytes"
                });
            }
            if name.contains(char::is_control) {
                return wrong("has a control character in its name; letters, digits and signs are allowed");
            }
            if !is_optional && !seen.insert((kind, name)) {
                return wrong("has the name of another one");
            }
        }
        let is_wrong = |node: &Node| node.name.len() > MAX_NAME || node.name.contains(char::is_control);
        match self.nodes.iter().enumerate().find(|(_, node)| is_wrong(node)) {
            None => Ok(()),
            Some((number, node)) => {
                let detail = "has a name of more than 256 bytes, or with a control character".to_owned();
                Err(GraphError::Node { number, operation: node.operation.name(), name: shown(&node.name), detail })
            }
        }
    }

    /// The first axis of an input is the batch, and no other.
    fn check_inputs(&self) -> Result<(), GraphError> {
        for input in &self.inputs {
            let wrong = |detail: &str| {
                Err(GraphError::Tensor { kind: "input", name: input.name.clone(), detail: detail.to_owned() })
            };
            let Some((&Size::BATCH, rest)) = input.shape.split_first() else {
                return wrong("needs the batch as its first axis");
            };
            let is_fixed = |size: &Size| size.factor == 0 && size.batch == 0 && size.length == 0;
            if !rest.iter().all(|size| is_fixed(size) || *size == Size::LENGTH) {
                return wrong("needs fixed sizes, or the length, after its first axis");
            }
        }
        Ok(())
    }

    /// Sizes depend on the length only in a graph with lengths, and on bounded powers.
    fn check_lengths(&self) -> Result<(), GraphError> {
        let wrong = |detail: &str| Err(GraphError::Graph(detail.to_owned()));
        if self.lengths.is_some_and(|Lengths { least, most }| least == 0 || least > most) {
            return wrong("lengths must be a range from 1 or more");
        }
        let inputs = self.inputs.iter().flat_map(|input| &input.shape);
        for size in inputs.copied().chain(self.nodes.iter().flat_map(sizes)) {
            if size.batch > 1 || size.length > 2 {
                return wrong("a size has a power of the batch above 1, or of the length above 2");
            }
            if size.length > 0 && self.lengths.is_none() {
                return wrong("a size depends on the length, and the graph states no lengths");
            }
        }
        Ok(())
    }
}

/// The start of a name, with control characters escaped, for messages.
fn shown(name: &str) -> String {
    name.chars().take(MAX_NAME).flat_map(char::escape_debug).collect()
}

/// The sizes among a node's attributes.
fn sizes(node: &Node) -> Vec<Size> {
    match &node.operation {
        Operation::Reshape { to } => to.iter().flatten().copied().collect(),
        Operation::Expand { to } | Operation::Resize { to, .. } => to.clone(),
        Operation::Fill { shape } => shape.clone(),
        Operation::Slice { start, end, .. } | Operation::Range { start, end, .. } => vec![*start, *end],
        Operation::Activation(_)
        | Operation::Arithmetic(_)
        | Operation::Comparison(_)
        | Operation::Logic(_)
        | Operation::Where
        | Operation::Cast { .. }
        | Operation::MatMul
        | Operation::Gemm { .. }
        | Operation::Conv(_)
        | Operation::ConvTranspose { .. }
        | Operation::Pool(_)
        | Operation::Reduce { .. }
        | Operation::ArgMax { .. }
        | Operation::Softmax { .. }
        | Operation::LogSoftmax { .. }
        | Operation::LayerNorm { .. }
        | Operation::GroupNorm { .. }
        | Operation::BatchNorm { .. }
        | Operation::Dropout { .. }
        | Operation::Transpose { .. }
        | Operation::Concat { .. }
        | Operation::Gather { .. }
        | Operation::GatherElements { .. }
        | Operation::Pad { .. }
        | Operation::Triangle { .. }
        | Operation::CumSum { .. }
        | Operation::Recurrent(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
