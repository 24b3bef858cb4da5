//! Outputs and gradients of a graph for given inputs.

use std::sync::Arc;

use graph::GraphModel;
use learning::WrongLength;

use crate::train::EVALUATION_BATCH;
use crate::train::error::TrainError;
use crate::train::examples::{Column, Examples, TargetColumn};
use crate::train::graph::examples::{check_inputs, feed, point};
use crate::train::graph::executor::Executor;

/// Examples for a graph, without targets.
#[derive(Clone, Copy, Debug)]
pub struct GraphInputs<'a> {
    /// For each input of the graph, the elements of all examples, one example after the other.
    pub columns: &'a [Column<'a>],
    /// Number of examples, at least 1.
    pub count: usize,
    /// Length of the sequences; 1 for a graph without.
    pub length: usize,
}

impl<'a> GraphInputs<'a> {
    /// As examples; nothing reads their targets.
    fn examples(self) -> Examples<'a> {
        let Self { columns, count, length } = self;
        Examples::Tensors { inputs: columns, targets: TargetColumn::Classes(&[]), count, length }
    }
}

/// The first output of a graph for some examples.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphOutput {
    /// Its sizes; the first is the number of examples.
    pub shape: Vec<usize>,
    /// Its elements in row-major order.
    pub values: Vec<f32>,
}

/// The first output of a graph, without dropout. `parameters` are flat, in the graph's order.
///
/// # Errors
/// [`TrainError`]: parameters of another length, inputs that do not fit the graph, a node that cannot compute them.
pub fn graph_output(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    inputs: GraphInputs<'_>,
) -> Result<GraphOutput, TrainError> {
    let examples = checked(model, parameters, inputs)?;
    let mut executor = Executor::new(Arc::clone(model));
    let all: Vec<usize> = (0..inputs.count).collect();
    let mut output = GraphOutput { shape: Vec::new(), values: Vec::new() };
    for chosen in all.chunks(EVALUATION_BATCH) {
        output.shape = forward(&mut executor, model, parameters, &examples, chosen)?;
        output.values.extend_from_slice(executor.value(model.output()));
    }
    if let Some(batch) = output.shape.first_mut() {
        *batch = inputs.count;
    }
    Ok(output)
}

/// The gradient of `Σ weights · output` over all examples at once, flat, in the order of `parameters`, without dropout.
/// `weights` has the length of the first output.
///
/// # Errors
/// As [`graph_output`]; [`TrainError::Lengths`] for weights of another length than the output.
pub fn graph_gradient(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    inputs: GraphInputs<'_>,
    weights: &[f32],
) -> Result<Vec<f32>, TrainError> {
    let examples = checked(model, parameters, inputs)?;
    let mut executor = Executor::new(Arc::clone(model));
    let all: Vec<usize> = (0..inputs.count).collect();
    forward(&mut executor, model, parameters, &examples, &all)?;
    let expected = executor.value(model.output()).len();
    if weights.len() != expected {
        return Err(TrainError::Lengths { what: "weights of the output", expected, got: weights.len() });
    }
    let mut gradient = vec![0.0; parameters.len()];
    let end = executor.backward(model.output(), weights, &mut gradient);
    end.map_err(|error| TrainError::Prediction(error.to_string()))?;
    Ok(gradient)
}

fn checked<'a>(model: &GraphModel, parameters: &[f32], inputs: GraphInputs<'a>) -> Result<Examples<'a>, TrainError> {
    let sizes = model.graph().parameters.iter().map(|parameter| parameter.shape.iter().map(|&size| size as usize));
    let expected = sizes.map(Iterator::product::<usize>).sum();
    if parameters.len() != expected {
        return Err(WrongLength { expected, got: parameters.len() }.into());
    }
    let examples = inputs.examples();
    check_inputs(model, &examples)?;
    Ok(examples)
}

/// Computes the chosen examples; returns the sizes of the first output.
fn forward(
    executor: &mut Executor,
    model: &GraphModel,
    parameters: &[f32],
    examples: &Examples<'_>,
    chosen: &[usize],
) -> Result<Vec<usize>, TrainError> {
    let shapes = executor.prepare(point(examples, chosen.len())).map_err(TrainError::Graph)?;
    let shape = shapes.get(model.output()).shape.clone();
    feed(executor, examples, chosen);
    executor.set_parameters(parameters);
    executor.forward(None).map_err(|error| TrainError::Prediction(error.to_string()))?;
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::graph::imported::table;

    #[test]
    fn outputs_of_batches_equal_one_batch() {
        let (model, parameters) = table();
        let count = EVALUATION_BATCH + 3;
        let numbers: Vec<f32> = (0..count * 4).map(|number| (number % 13) as f32 / 13.0).collect();
        let kind: Vec<i64> = (0..count).map(|number| (number % 5) as i64).collect();
        let columns = |first: usize, count: usize| {
            [Column::F32(&numbers[first * 4..(first + count) * 4]), Column::I64(&kind[first..first + count])]
        };
        let inputs = GraphInputs { columns: &columns(0, count), count, length: 1 };
        let all = graph_output(&model, &parameters, inputs).unwrap();
        assert_eq!(all.shape, [count, 1]);
        for example in [0, EVALUATION_BATCH - 1, EVALUATION_BATCH, count - 1] {
            let inputs = GraphInputs { columns: &columns(example, 1), count: 1, length: 1 };
            let one = graph_output(&model, &parameters, inputs).unwrap();
            assert_eq!(one.shape, [1, 1]);
            assert!((one.values[0] - all.values[example]).abs() < 1e-6);
        }
    }

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
