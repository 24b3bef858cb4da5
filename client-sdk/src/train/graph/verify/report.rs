//! The check of an imported graph with its parameters.

use std::sync::Arc;

use graph::GraphModel;

use super::differences::{Derivative, verify_gradients, verify_gradients_on};
use crate::train::graph::predict::NamedTensor;

/// Seed of the inputs and directions of the gradient check.
const SEED: u64 = 1;

/// Whether gradients are compared with finite differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GradientCheck<'a> {
    /// The gradient of every parameter is compared, on random inputs.
    Differences,
    /// The same on the first two examples of these inputs.
    Rows(&'a [NamedTensor]),
    /// The caller compares the gradients with those of another framework.
    Elsewhere,
}

/// A graph that trains, with a report of its check.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The graph with its loss.
    pub model: Arc<GraphModel>,
    /// The graph as JSON, as task files name it.
    pub json: Vec<u8>,
    /// Names of its operations, each once, sorted.
    pub operations: Vec<&'static str>,
    /// For each parameter, its derivative by gradient and by difference; empty for [`GradientCheck::Elsewhere`].
    pub derivatives: Vec<Derivative>,
    /// Warnings about parameters without influence on the output.
    pub warnings: Vec<String>,
}

/// Checks that a graph trains from these parameters, which are flat and in the graph's order.
///
/// # Errors
/// The parameter that is not finite; the node or input that is wrong, or the parameter whose gradient is wrong.
pub fn verified(model: Arc<GraphModel>, parameters: &[f32], check: GradientCheck<'_>) -> Result<Verified, String> {
    let mut rest = parameters;
    for parameter in &model.graph().parameters {
        let size = parameter.shape.iter().map(|&size| size as usize).product();
        let Some((own, after)) = rest.split_at_checked(size) else {
            return Err(format!("there are {} values, too few for the graph's parameters", parameters.len()));
        };
        if own.iter().any(|value| !value.is_finite()) {
            return Err(format!("the parameter `{}` has a value that is not finite", parameter.name));
        }
        rest = after;
    }
    let derivatives = match check {
        GradientCheck::Differences => verify_gradients(&model, parameters, SEED)?,
        GradientCheck::Rows(inputs) => verify_gradients_on(&model, parameters, inputs, SEED)?,
        GradientCheck::Elsewhere => Vec::new(),
    };
    if let Some(wrong) = derivatives.iter().find(|derivative| !derivative.agrees()) {
        let Derivative { parameter, computed, difference, .. } = wrong;
        return Err(format!("the gradient of `{parameter}` is {computed}, and finite differences give {difference}"));
    }
    let still = derivatives.iter().filter(|derivative| derivative.computed == 0.0);
    let warnings = still.map(|Derivative { parameter, .. }| {
        format!(
            "the output does not depend on `{parameter}`, which will not train; as a constant it is left out of updates"
        )
    });
    let mut operations: Vec<_> = model.graph().nodes.iter().map(|node| node.operation.name()).collect();
    operations.sort_unstable();
    operations.dedup();
    let json = graph::encode(model.graph()).map_err(|error| error.to_string())?;
    Ok(Verified { warnings: warnings.collect(), json, operations, derivatives, model })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::graph::imported::table;

    #[test]
    fn imported_graph_is_verified_with_its_report() {
        let (model, mut parameters) = table();
        let check = |parameters: &[f32], check| verified(Arc::clone(&model), parameters, check);
        let report = check(&parameters, GradientCheck::Differences).unwrap();
        assert_eq!(report.model, model);
        assert_eq!(graph::decode(&report.json).unwrap(), *model.graph());
        assert!(report.operations.contains(&"gemm") || report.operations.contains(&"mat_mul"), "{report:?}");
        let names: Vec<_> = model.graph().parameters.iter().map(|tensor| tensor.name.clone()).collect();
        let checked: Vec<_> = report.derivatives.iter().map(|derivative| derivative.parameter.clone()).collect();
        assert_eq!((checked, report.warnings), (names, Vec::new()));
        let elsewhere = check(&parameters, GradientCheck::Elsewhere).unwrap();
        assert!(elsewhere.derivatives.is_empty());
        let error = check(&parameters, GradientCheck::Rows(&[])).unwrap_err();
        assert!(error.contains("the input `numbers`, which is missing"), "{error}");
        parameters[0] = f32::NAN;
        let error = check(&parameters, GradientCheck::Elsewhere).unwrap_err();
        assert!(error.contains("has a value that is not finite"), "{error}");
        assert!(check(&parameters[..3], GradientCheck::Elsewhere).is_err());
    }
}
