//! The file of the graph that a task names in `model.graph`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use ::graph::{GraphModel, Loss};
use client_sdk::models::{Architecture, Incomplete};
use task_spec::ModelSpec;

const GRAPH: &str = "model.graph";

/// Replaces `model.graph`, the name of a file, and `model.loss` by the architecture that they describe. The file is looked for
/// in the folder of `source`, the task file, and then in the working folder.
///
/// # Errors
/// The file cannot be read, or lacks a graph that can be trained with this loss.
pub(crate) fn read_graph(model: &mut ModelSpec, source: &Path) -> Result<(), Incomplete> {
    let Some(named) = model.graph.take() else { return Ok(()) };
    let path = beside(&named, source);
    let named = |detail: String| wrong(GRAPH, format!("{}: {detail}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(|error| named(error.to_string()))?;
    file.take(::graph::MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| named(error.to_string()))?;
    let graph = ::graph::decode(&bytes).map_err(|error| named(error.to_string()))?;
    let loss = model.loss.take().unwrap_or(Loss::CROSS_ENTROPY);
    let model_of_graph = GraphModel::new(graph, loss).map_err(|error| named(error.to_string()))?;
    let architecture = serde_json::to_value(Architecture::Graph(model_of_graph.into()));
    model.architecture = Some(architecture.map_err(|error| named(error.to_string()))?);
    Ok(())
}

/// A file that a task file names: in the folder of the task file if it is there, else in the working folder.
pub(crate) fn beside(named: &str, source: &Path) -> PathBuf {
    let beside = source.parent().unwrap_or(Path::new("")).join(named);
    if beside.exists() { beside } else { PathBuf::from(named) }
}

fn wrong(field: &'static str, detail: impl Into<String>) -> Incomplete {
    Incomplete { field, detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_beside_the_task_file_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("net.safetensors"), b"").unwrap();
        let task = folder.path().join("task.toml");
        assert_eq!(beside("net.safetensors", &task), folder.path().join("net.safetensors"));
        assert_eq!(beside("other.safetensors", &task), Path::new("other.safetensors"));
        assert_eq!(beside("net.safetensors", Path::new("digits")), Path::new("net.safetensors"));
    }
}
