//! A graph with the loss that training minimizes: what a task names as its architecture.

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::graph_error::GraphError;
use crate::infer::{infer, shapes};
use crate::loss::Loss;
use crate::model::{Graph, ValueId};
use crate::size::Point;

/// A graph and a loss that fits its first output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct GraphModel {
    graph: Graph,
    loss: Loss,
    classes: Option<usize>,
}

/// Its form in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    graph: Graph,
    loss: Loss,
}

impl GraphModel {
    /// The graph, if it keeps all limits and the loss fits its first output.
    ///
    /// # Errors
    /// As [`Graph::check`]; which output the loss needs.
    pub fn new(graph: Graph, loss: Loss) -> Result<Self, GraphError> {
        graph.check()?;
        let mut found: Option<Option<usize>> = None;
        for point in graph.sample_points() {
            let shapes = shapes(&graph, point)?;
            let [output, ..] = &graph.outputs[..] else {
                return Err(GraphError::Graph("has no output".to_owned()));
            };
            let wrong = |detail| GraphError::Tensor { kind: "output", name: output.name.clone(), detail };
            let kind = shapes.get(output.value);
            if kind.element != Element::F32 {
                return Err(wrong(format!("is {kind:?}; a loss needs floats [batch, ...]")));
            }
            let classes = loss.classes(&kind.shape);
            let classes = classes.map_err(|detail| wrong(format!("the loss {} {detail}", loss.name())))?;
            if *found.get_or_insert(classes) != classes {
                return Err(wrong("has a number of classes that depends on the length".to_owned()));
            }
        }
        let classes = found.flatten();
        Ok(Self { graph, loss, classes })
    }

    /// The graph that computes the outputs.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The loss of the first output.
    #[must_use]
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// Number of classes or tokens of the first output; `None` if the targets are numbers.
    #[must_use]
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }
}

impl GraphModel {
    /// The value of the first output.
    #[must_use]
    pub fn output(&self) -> ValueId {
        // A model has an output: `new` has checked it.
        self.graph.outputs.first().map_or(ValueId(0), |output| output.value)
    }

    /// Number of targets of a batch: classes, tokens, or numbers; 0 for a length that the graph does not compute.
    #[must_use]
    pub fn predictions(&self, point: Point) -> usize {
        let length = self.graph.lengths.map_or(point.length, |lengths| point.length.clamp(lengths.least, lengths.most));
        let elements = infer(&self.graph, Point { length, ..point }).map_or(0, |shapes| shapes.elements(self.output()));
        elements / self.classes.unwrap_or(1)
    }
}

impl TryFrom<Parts> for GraphModel {
    type Error = GraphError;

    fn try_from(Parts { graph, loss }: Parts) -> Result<Self, GraphError> {
        Self::new(graph, loss)
    }
}

impl From<GraphModel> for Parts {
    fn from(GraphModel { graph, loss, classes: _ }: GraphModel) -> Self {
        Self { graph, loss }
    }
}
