//! Graphs as JSON.

use crate::check::MAX_BYTES;
use crate::graph_error::GraphError;
use crate::model::Graph;

/// A graph from JSON.
///
/// # Errors
/// [`GraphError::Format`] for bytes that are too many or no graph; as [`Graph::check`] otherwise.
pub fn decode(bytes: &[u8]) -> Result<Graph, GraphError> {
    if bytes.len() > MAX_BYTES {
        return Err(GraphError::Format(format!("more than {MAX_BYTES} bytes")));
    }
    let graph: Graph = serde_json::from_slice(bytes).map_err(|error| GraphError::Format(error.to_string()))?;
    graph.check()?;
    Ok(graph)
}

/// A graph as JSON on one line.
///
/// # Errors
/// [`GraphError::Format`] for a number that JSON does not have.
pub fn encode(graph: &Graph) -> Result<Vec<u8>, GraphError> {
    serde_json::to_vec(graph).map_err(|error| GraphError::Format(error.to_string()))
}
