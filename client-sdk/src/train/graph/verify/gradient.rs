//! The gradient of a graph's output for given inputs.

use std::sync::Arc;

use graph::GraphModel;
use learning::WrongLength;

use crate::train::error::TrainError;
use crate::train::graph::context::Statistics;
use crate::train::graph::examples::{GraphInputs, check_inputs, feed};
use crate::train::graph::executor::Executor;

/// The gradient of `Σ weights · output` over all examples at once, flat, in the order of `parameters`, without dropout. Batch
/// normalizations normalize as in training, and the gradient of running statistics is 0.
/// `weights` has the length of the first output.
///
/// # Errors
/// [`TrainError`]: parameters of another length, inputs that do not fit the graph, a node that cannot compute them;
/// [`TrainError::Lengths`] for weights of another length than the output.
pub fn graph_gradient(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    inputs: GraphInputs<'_>,
    weights: &[f32],
) -> Result<Vec<f32>, TrainError> {
    let sizes = model.graph().parameters.iter().map(|parameter| parameter.shape.iter().map(|&size| size as usize));
    let expected = sizes.map(Iterator::product::<usize>).sum();
    if parameters.len() != expected {
        return Err(WrongLength { expected, got: parameters.len() }.into());
    }
    let examples = inputs.examples();
    check_inputs(model, &examples)?;
    let mut executor = Executor::new(Arc::clone(model));
    executor.normalize_by(Statistics::Batch);
    let shapes = executor.prepare(inputs.point()).map_err(TrainError::Graph)?;
    let expected = shapes.elements(model.output());
    if weights.len() != expected {
        return Err(TrainError::Lengths { what: "weights of the output", expected, got: weights.len() });
    }
    feed(executor.inputs(), &examples, &(0..inputs.count).collect::<Vec<_>>());
    executor.set_parameters(parameters);
    executor.forward(None).map_err(|error| TrainError::Prediction(error.to_string()))?;
    let mut gradient = vec![0.0; parameters.len()];
    let end = executor.backward(model.output(), weights, &mut gradient);
    end.map_err(|error| TrainError::Prediction(error.to_string()))?;
    Ok(gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::examples::Column;
    use crate::train::graph::imported::table;

    #[test]
    fn inputs_that_do_not_fit_are_named() {
        let (model, parameters) = table();
        let (numbers, kind) = ([0.5; 8], [0, 1]);
        let said = |parameters: &[f32], columns: &[Column<'_>], weights: &[f32]| {
            let inputs = GraphInputs { columns, count: 2, length: 1 };
            graph_gradient(&model, parameters, inputs, weights).unwrap_err().to_string()
        };
        let right = [Column::F32(&numbers), Column::I64(&kind)];
        for (error, why) in [
            (said(&parameters[1..], &right, &[1.0; 2]), "parameters where the layout has"),
            (
                said(&parameters, &right[..1], &[1.0; 2]),
                "2 inputs, not 1; its inputs are `numbers` (floats [batch, 4]), `kind`",
            ),
            (said(&parameters, &[Column::F32(&numbers[1..]), Column::I64(&kind)], &[1.0; 2]), "input `numbers`"),
            (said(&parameters, &right, &[1.0; 3]), "got 3 weights of the output where 2 were expected"),
            (
                said(&parameters, &[right[0], Column::I64(&[0, 5])], &[1.0; 2]),
                "integers from 0 to 4 as its input `kind`, not 5 (example 1)",
            ),
        ] {
            assert!(error.contains(why), "{error}");
        }
    }
}
