//! Limits of a graph, checked before anything is computed.

use std::collections::BTreeSet;

use crate::graph_error::GraphError;
use crate::infer::infer;
use crate::model::{Graph, Lengths, Node};
use crate::operation::Operation;
use crate::size::Size;

/// Maximum number of bytes of a graph as JSON. A task, of at most 1 MiB, holds it.
pub const MAX_BYTES: usize = 512 << 10;
/// Maximum number of nodes.
pub const MAX_NODES: usize = 20_000;
/// Maximum number of inputs of a node.
const MAX_INPUTS: usize = 1024;
/// Maximum length of a name, in bytes.
const MAX_NAME: usize = 256;

impl Graph {
    /// Checks the graph against all limits, and its shapes at several batches and lengths.
    ///
    /// # Errors
    /// [`GraphError`]: the first limit or rule that the graph breaks.
    pub fn check(&self) -> Result<(), GraphError> {
        let wrong = |detail: String| Err(GraphError::Graph(detail));
        if self.version != Self::VERSION {
            return wrong(format!("has the format {}; this program reads {}", self.version, Self::VERSION));
        }
        if self.inputs.is_empty() || self.parameters.is_empty() || self.outputs.is_empty() {
            return wrong("needs an input, a parameter and an output".to_owned());
        }
        if self.nodes.len() > MAX_NODES {
            return wrong(format!("has {} nodes; at most {MAX_NODES} are allowed", self.nodes.len()));
        }
        self.check_names()?;
        self.check_lengths()?;
        if let Some((number, node)) = self.nodes.iter().enumerate().find(|(_, node)| node.inputs.len() > MAX_INPUTS) {
            let detail = format!("has {} inputs; at most {MAX_INPUTS} are allowed", node.inputs.len());
            let name = node.name.clone();
            return Err(GraphError::Node { number, operation: node.operation.name(), name, detail });
        }
        self.sample_points().into_iter().try_for_each(|point| infer(self, point).map(drop))
    }

    /// Inputs, parameters and outputs have different names of a bounded length.
    fn check_names(&self) -> Result<(), GraphError> {
        let inputs = self.inputs.iter().map(|input| ("input", &input.name));
        let parameters = self.parameters.iter().map(|parameter| ("parameter", &parameter.name));
        let outputs = self.outputs.iter().map(|output| ("output", &output.name));
        let mut seen = BTreeSet::new();
        for (kind, name) in inputs.chain(parameters).chain(outputs) {
            let wrong = |detail: &str| {
                let name = name.chars().take(MAX_NAME).collect();
                Err(GraphError::Tensor { kind, name, detail: detail.to_owned() })
            };
            if name.is_empty() || name.len() > MAX_NAME {
                return wrong("needs a name of 1 to 256 bytes");
            }
            if !seen.insert((kind, name)) {
                return wrong("has the name of another one");
            }
        }
        match self.nodes.iter().find(|node| node.name.len() > MAX_NAME) {
            None => Ok(()),
            Some(_) => Err(GraphError::Graph("has a node with a name of more than 256 bytes".to_owned())),
        }
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
        match self.inputs.iter().find(|input| input.shape.first() != Some(&Size::BATCH)) {
            None => Ok(()),
            Some(input) => {
                let detail = "needs the batch as its first axis".to_owned();
                Err(GraphError::Tensor { kind: "input", name: input.name.clone(), detail })
            }
        }
    }
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
mod tests {
    use crate::{GraphError, decode};

    /// A graph of one product, with `nodes` after it.
    fn graph(nodes: &str) -> String {
        format!(
            r#"{{"version":1,"inputs":[{{"name":"x","element":"f32","shape":[{{"factor":1,"batch":1}},{{"offset":2}}]}}],
            "parameters":[{{"name":"w","shape":[2,3]}}],"nodes":[{{"do":"mat_mul","of":[0,1]}}{nodes}],
            "outputs":[{{"name":"y","value":2}}]}}"#
        )
    }

    fn rejected(json: &str) -> String {
        decode(json.as_bytes()).map(|_| ()).map_err(|error: GraphError| error.to_string()).unwrap_err()
    }

    #[test]
    fn graph_within_limits_is_accepted() {
        assert_eq!(decode(graph("").as_bytes()).unwrap().nodes.len(), 1);
    }

    #[test]
    fn hostile_graphs_are_rejected_by_name() {
        for (node, why) in [
            (r#",{"do":"mat_mul","of":[0,9]}"#, "reads value 9, which is not computed before it"),
            (r#",{"do":"mat_mul","of":[0,3]}"#, "reads value 3, which is not computed before it"),
            (
                r#",{"do":{"expand":{"to":[{"offset":1099511627776},{"offset":3}]}},"of":[2]}"#,
                "a size is not between 1",
            ),
            (r#",{"do":{"reshape":{"to":[null,null]}},"of":[2]}"#, "leaves two sizes open"),
            (r#",{"do":{"slice":{"axis":1,"start":{},"end":{"offset":2},"step":0}},"of":[2]}"#, "selects nothing"),
            (r#",{"do":{"softmax":{"axis":2}},"of":[2]}"#, "axis 2 is not below the rank 2"),
            (r#",{"do":{"layer_norm":{"axis":1,"epsilon":0.0}},"of":[2,1]}"#, "epsilon is 0"),
            (r#",{"do":{"reshape":{"to":[{"factor":1,"length":1},null]}},"of":[2]}"#, "states no lengths"),
            (r#",{"do":{"dropout":{"rate":1.0}},"of":[2]}"#, "rate is 1"),
            (r#",{"do":"loop","of":[2]}"#, "unknown variant"),
        ] {
            let said = rejected(&graph(node));
            assert!(said.contains(why), "{node}: {said}");
        }
    }

    #[test]
    fn many_large_values_are_rejected_before_allocation() {
        let wide = r#",{"do":{"expand":{"to":[{"offset":100000000},{"factor":1,"batch":1},{"offset":1}]}},"of":[1]}"#;
        let said = rejected(&graph(&wide.repeat(4)));
        assert!(said.contains("elements"), "{said}");
        let many = graph(&r#",{"do":{"activation":"relu"},"of":[2]}"#.repeat(14_000));
        assert!(rejected(&many).contains("more than 524288 bytes"));
    }

    #[test]
    fn output_that_grows_with_the_batch_is_rejected() {
        let nodes = r#",{"do":{"gemm":{"transpose_a":false,"transpose_b":true,"alpha":1.0,"beta":1.0}},"of":[2,2]},
            {"do":{"concat":{"axis":1}},"of":[3,2]}"#;
        let json = graph(nodes).replace(r#""value":2"#, r#""value":4"#);
        let graph = decode(json.as_bytes()).unwrap();
        let error = crate::GraphModel::new(graph, crate::Loss::CROSS_ENTROPY).unwrap_err().to_string();
        assert!(error.contains("depend on the batch"), "{error}");
    }

    #[test]
    fn windows_of_a_convolution_are_bounded() {
        let json = r#"{"version":1,"inputs":[{"name":"x","element":"f32","shape":[{"factor":1,"batch":1},{"offset":1},{"offset":1048576}]}],
            "parameters":[{"name":"w","shape":[1,1,524288]}],"nodes":[{"do":{"conv":{"strides":[1],"pads":[[0,0]],"dilations":[1],"groups":1}},"of":[0,1]}],
            "outputs":[{"name":"y","value":2}]}"#;
        assert!(rejected(json).contains("has windows of"), "{}", rejected(json));
    }

    #[test]
    fn names_and_version_are_checked() {
        let twice = graph("").replace(r#""parameters":["#, r#""parameters":[{"name":"w","shape":[1]},"#);
        assert!(rejected(&twice).contains("has the name of another one"));
        assert!(rejected(&graph("").replace(r#""version":1"#, r#""version":2"#)).contains("has the format 2"));
        assert!(rejected(&"[".repeat(100_000)).contains("no graph"));
        assert!(rejected(&" ".repeat(super::MAX_BYTES + 1)).contains("more than 524288 bytes"));
    }
}
