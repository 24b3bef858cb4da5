//! Checks of a model that is a graph.

use graph::GraphModel;
use serde_json::Value;

use crate::problem::Checks;
use crate::{ModelSpec, TensorDeclaration};

/// The graph of an architecture that is one.
pub(crate) fn read(architecture: &Value) -> Option<Result<GraphModel, serde_json::Error>> {
    let architecture =
        architecture.as_object().filter(|given| given.get("kind").is_some_and(|kind| kind == "graph"))?;
    let mut content = architecture.clone();
    content.remove("kind");
    Some(serde_json::from_value(Value::Object(content)))
}

/// Rejects names of files, which only `tributary` can read, and graphs that cannot be trained or have other tensors than the task.
/// Returns the graph of a model that is one.
pub(super) fn check(model: &ModelSpec, checks: &mut Checks) -> Option<GraphModel> {
    checks.require(
        model.graph.is_none() && model.loss.is_none(),
        "model.graph",
        "names a file, which only `tributary` can read; put graph and loss into model.architecture",
    );
    match read(model.architecture.as_ref()?)? {
        Err(error) => {
            checks.require_with(false, "model.architecture", || error.to_string());
            None
        }
        Ok(found) => {
            let is_same = |(tensor, parameter): (&TensorDeclaration, &graph::Parameter)| {
                let shape = parameter.shape.iter().map(|&size| u64::from(size));
                tensor.name == parameter.name && shape.eq(tensor.shape.iter().copied())
            };
            let parameters = &found.graph().parameters;
            let are_same = model.tensors.len() == parameters.len() && model.tensors.iter().zip(parameters).all(is_same);
            checks.require(
                are_same,
                "model.tensors",
                "are not the parameters of the graph in model.architecture, in its order",
            );
            Some(found)
        }
    }
}
