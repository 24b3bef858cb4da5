//! Graphs as JSON.

use std::io;

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

/// Whether a graph has more bytes than this as JSON.
pub(crate) fn is_longer(graph: &Graph, most: usize) -> bool {
    serde_json::to_writer(Remaining(most), graph).is_err()
}

/// Counts what is written, and fails where it is too much.
struct Remaining(usize);

impl io::Write for Remaining {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
