//! The graphs that an app accepts.

use graph::{Graph, encode};
use recipe::digest::sha256;
use serde::Deserialize as _;
use serde_json::Value;
use wire::Digest;

/// A task's graph is not one that the app accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::participant) enum GraphRefusal {
    #[error(
        "the task's graph has the SHA-256 digest {0}, which is not among those that the app accepts (accepted_graphs)"
    )]
    NotAccepted(Digest),
    #[error("the app accepts some graphs only (accepted_graphs), and the task's graph cannot be read: {0}")]
    Unreadable(String),
}

/// Checks the graph of an architecture against the accepted digests. Without digests every graph is accepted. An
/// architecture that is no graph always is.
///
/// A digest is that of the graph's file, as `tributary model import` writes it.
///
/// # Errors
/// Any [`GraphRefusal`].
pub(in crate::participant) fn check_graph(
    accepted: &[Digest],
    architecture: Option<&Value>,
) -> Result<(), GraphRefusal> {
    let graph = architecture.filter(|told| told["kind"] == "graph").map(|told| &told["graph"]);
    let Some(graph) = graph.filter(|_| !accepted.is_empty()) else { return Ok(()) };
    let graph = Graph::deserialize(graph).map_err(|error| GraphRefusal::Unreadable(error.to_string()))?;
    let found = sha256(&encode(&graph).map_err(|error| GraphRefusal::Unreadable(error.to_string()))?);
    if accepted.contains(&found) { Ok(()) } else { Err(GraphRefusal::NotAccepted(found)) }
}

#[cfg(test)]
mod tests {
    use graph::{Element, Input, Output, Parameter, Size, ValueId};
    use serde_json::json;

    use super::*;

    fn graph(parameter: &str) -> Graph {
        Graph {
            version: Graph::VERSION,
            lengths: None,
            inputs: vec![Input { name: "x".to_owned(), element: Element::F32, shape: vec![Size::BATCH] }],
            parameters: vec![Parameter { name: parameter.to_owned(), shape: vec![] }],
            constants: vec![],
            nodes: vec![],
            outputs: vec![Output { name: "y".to_owned(), value: ValueId(0) }],
        }
    }

    fn task(graph: &Graph) -> Value {
        json!({ "kind": "graph", "graph": graph, "loss": { "kind": "mse" } })
    }

    #[test]
    fn graph_among_accepted_digests_is_accepted() {
        let (ours, other) = (graph("ours"), graph("other"));
        let [first, second] = [&ours, &other].map(|graph| sha256(&encode(graph).unwrap()));
        assert_eq!(check_graph(&[second, first], Some(&task(&ours))), Ok(()));
        assert_eq!(check_graph(&[first], Some(&task(&other))), Err(GraphRefusal::NotAccepted(second)));
        assert_eq!(check_graph(&[], Some(&task(&other))), Ok(()), "without digests");
        let ready = json!({ "kind": "linear", "inputs": 2, "classes": 2 });
        assert_eq!(check_graph(&[first], Some(&ready)), Ok(()));
        assert_eq!(check_graph(&[first], None), Ok(()));
    }

    #[test]
    fn unreadable_graph_is_refused_by_name() {
        let mut told = task(&graph("ours"));
        told["graph"]["extra"] = json!(1);
        let refused = check_graph(&[Digest([0; 32])], Some(&told)).unwrap_err().to_string();
        assert!(refused.contains("unknown field `extra`"), "{refused}");
    }
}
