//! Checks of a model that is a graph.

use graph::GraphModel;

use crate::problem::Checks;
use crate::{ModelSpec, TensorDeclaration};

/// Rejects names of files, which only `tributary` can read, and graphs that cannot be trained or have other tensors than the task.
/// Returns the graph of a model that is one.
pub(super) fn check(model: &ModelSpec, checks: &mut Checks) -> Option<GraphModel> {
    checks.require(
        model.graph.is_none() && model.loss.is_none(),
        "model.graph",
        "names a file, which only `tributary` can read; put graph and loss into model.architecture",
    );
    match model.read_graph()? {
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
