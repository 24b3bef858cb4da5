//! A check of a graph's gradients against finite differences, on the operator's machine.

use std::ops::Range;
use std::sync::Arc;

use graph::{Graph, GraphModel};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::sample::Sample;
use crate::train::graph::context::Statistics;
use crate::train::graph::executor::Executor;
use crate::train::graph::predict::NamedTensor;

/// Examples that the check computes.
const EXAMPLES: u32 = 2;
/// The same for batch normalizations by the batch: of two values, each is the opposite of the other.
const BATCH: u32 = 8;
/// Distances that are tried in turn, as shares of the parameter's largest value. The smallest are for deep networks with kinks.
/// The last shows that a bias before a batch normalization has no gradient, beyond the rounding of the sums.
const STEPS: [f32; 8] = [1e-3, 3e-4, 3e-3, 1e-4, 1e-3, 3e-5, 1e-5, 3e-2];

/// The derivative of a random combination of the first output along a random direction of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivative {
    /// Name of the parameter.
    pub parameter: String,
    /// Sizes of the parameter; empty for a single number.
    pub shape: Vec<u32>,
    /// The derivative by the computed gradient.
    pub computed: f64,
    /// The derivative by a central difference.
    pub difference: f64,
}

impl Derivative {
    /// Whether the output does not depend on the parameter.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.computed == 0.0 && self.difference.abs() < 1e-6
    }

    /// Whether both derivatives agree to the precision of 32-bit floats and of a difference across kinks.
    #[must_use]
    pub fn agrees(&self) -> bool {
        let largest = self.computed.abs().max(self.difference.abs());
        (self.computed - self.difference).abs() <= 0.05 * largest + 1e-3
    }
}

/// Compares every parameter's gradient with a central difference, on random inputs. Batch normalizations normalize as in
/// training, and running statistics have no gradient.
///
/// # Errors
/// The node that cannot compute, or a value that is not finite.
pub fn verify_gradients(model: &Arc<GraphModel>, parameters: &[f32], seed: u64) -> Result<Vec<Derivative>, String> {
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let sample =
        Sample::random(model.graph(), examples(model.graph()), &mut draws).map_err(|error| error.to_string())?;
    compared(model, parameters, sample, draws)
}

/// The same on the first two examples of `inputs`, which are named and in any order.
///
/// # Errors
/// As [`verify_gradients`]; the input that is missing, unknown, or of a wrong type or size.
pub fn verify_gradients_on(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    inputs: &[NamedTensor],
    seed: u64,
) -> Result<Vec<Derivative>, String> {
    let sample = Sample::first(model.graph(), inputs, examples(model.graph())).map_err(|error| error.to_string())?;
    compared(model, parameters, sample, ChaCha8Rng::seed_from_u64(seed))
}

/// Number of examples that the check of a graph computes.
fn examples(graph: &Graph) -> u32 {
    if graph.batch_statistics().is_empty() { EXAMPLES } else { BATCH }
}

/// Compares the gradients on these inputs.
fn compared(
    model: &Arc<GraphModel>,
    parameters: &[f32],
    sample: Sample,
    mut draws: ChaCha8Rng,
) -> Result<Vec<Derivative>, String> {
    let mut function = Function::new(model, sample, &mut draws)?;
    let gradient = function.gradient(parameters)?;
    let (mut found, mut first) = (Vec::new(), 0);
    let running = model.graph().running_statistics();
    for (position, parameter) in model.graph().parameters.iter().enumerate() {
        let size: usize = parameter.shape.iter().map(|&size| size as usize).product();
        let own = first..first + size;
        first = own.end;
        if running.contains(&position) {
            continue;
        }
        let largest = parameters[own.clone()].iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let mut last = None;
        // A difference across a kink is wrong; a wrong gradient differs along every direction.
        for step in STEPS.map(|step| step * largest.max(0.1)) {
            let direction: Vec<f32> = own.clone().map(|_| if draws.random::<bool>() { 1.0 } else { -1.0 }).collect();
            let difference = function.difference(parameters, &own, &direction, step)?;
            let pairs = gradient[own.clone()].iter().zip(&direction);
            let computed = pairs.map(|(gradient, direction)| f64::from(*gradient) * f64::from(*direction)).sum();
            let (parameter, shape) = (parameter.name.clone(), parameter.shape.clone());
            let derivative = Derivative { parameter, shape, computed, difference };
            let agrees = derivative.agrees();
            last = Some(derivative);
            if agrees {
                break;
            }
        }
        found.extend(last);
    }
    Ok(found)
}

/// A random combination of a graph's first output, as a function of the parameters.
struct Function<'a> {
    model: &'a GraphModel,
    executor: Executor,
    weights: Vec<f32>,
}

impl<'a> Function<'a> {
    fn new(model: &'a Arc<GraphModel>, sample: Sample, draws: &mut ChaCha8Rng) -> Result<Self, String> {
        let mut executor = Executor::new(Arc::clone(model));
        executor.normalize_by(Statistics::Batch);
        let point = sample.point;
        sample.feed(&mut executor).map_err(|error| error.to_string())?;
        let shapes = executor.prepare(point).map_err(|error| error.to_string())?;
        let outputs = shapes.elements(model.output());
        let weights = (0..outputs).map(|_| 2.0 * draws.random::<f32>() - 1.0).collect();
        Ok(Self { model, executor, weights })
    }

    fn value(&mut self, parameters: &[f32]) -> Result<f64, String> {
        self.executor.set_parameters(parameters);
        self.executor.forward(None).map_err(|error| error.to_string())?;
        let pairs = self.executor.value(self.model.output()).iter().zip(&self.weights);
        let value: f64 = pairs.map(|(output, weight)| f64::from(*output) * f64::from(*weight)).sum();
        if value.is_finite() {
            return Ok(value);
        }
        Err(self.executor.first_not_finite().unwrap_or_else(|| "an output is not finite".to_owned()))
    }

    /// The gradient of all parameters, flat.
    fn gradient(&mut self, parameters: &[f32]) -> Result<Vec<f32>, String> {
        self.value(parameters)?;
        let mut gradient = vec![0.0; parameters.len()];
        let end = self.executor.backward(self.model.output(), &self.weights, &mut gradient);
        end.map_err(|error| error.to_string())?;
        Ok(gradient)
    }

    /// The central difference of some parameters along a direction.
    fn difference(
        &mut self,
        parameters: &[f32],
        own: &Range<usize>,
        direction: &[f32],
        step: f32,
    ) -> Result<f64, String> {
        let mut moved = |by: f32| {
            let mut parameters = parameters.to_vec();
            let own = parameters[own.clone()].iter_mut().zip(direction);
            own.for_each(|(value, direction)| *value += by * direction);
            self.value(&parameters)
        };
        Ok((moved(step)? - moved(-step)?) / f64::from(2.0 * step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::graph::imported::table;
    use crate::train::graph::tensor::Tensor;

    fn rows(kind: i64) -> [NamedTensor; 2] {
        let numbers = [0.5, -0.25, 1.0, 0.125, -0.5, 0.75, -1.0, 0.25, 9.0, 9.0, 9.0, 9.0];
        [
            NamedTensor { name: "kind".into(), shape: vec![3], values: Tensor::I64(vec![kind, 1, 9]) },
            NamedTensor { name: "numbers".into(), shape: vec![3, 4], values: Tensor::F32(numbers.to_vec()) },
        ]
    }

    #[test]
    fn gradients_on_given_rows_agree() {
        let (model, parameters) = table();
        // The third example is outside the table of five: the check takes the first two.
        let found = verify_gradients_on(&model, &parameters, &rows(4), 1).unwrap();
        assert!(found.iter().all(|derivative| derivative.agrees() && !derivative.is_zero()), "{found:?}");
        let random = verify_gradients(&model, &parameters, 1).unwrap();
        assert_eq!(found.len(), random.len());
        assert!(found.iter().zip(&random).any(|(one, other)| one.computed != other.computed));
    }

    #[test]
    fn gradients_on_wrong_rows_are_named() {
        let (model, parameters) = table();
        for (inputs, why) in [
            (&rows(5)[..], "position 5 is outside an axis of 5"),
            (&rows(4)[..1], "the input `numbers`, which is missing"),
        ] {
            let error = verify_gradients_on(&model, &parameters, inputs, 1).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
