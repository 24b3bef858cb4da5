//! A check of a graph's gradients against finite differences, on the operator's machine.

use std::sync::Arc;

use graph::{Element, GraphModel, Point};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::train::graph::executor::Executor;
use crate::train::graph::tensor::Tensor;

/// Examples that the check computes.
const EXAMPLES: u32 = 2;
/// Longest sequences that the check computes.
const LENGTH: u32 = 16;
/// Distances that are tried in turn, as shares of the parameter's largest value.
const STEPS: [f32; 5] = [1e-3, 3e-4, 3e-3, 1e-4, 1e-3];

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

/// Compares every parameter's gradient with a central difference, on random floats and on integers 0 and 1.
///
/// # Errors
/// The node that cannot compute, or a value that is not finite.
pub fn verify_gradients(model: &Arc<GraphModel>, parameters: &[f32], seed: u64) -> Result<Vec<Derivative>, String> {
    let graph = model.graph();
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let mut executor = Executor::new(Arc::clone(model));
    let length = graph.lengths.map_or(1, |lengths| LENGTH.clamp(lengths.least, lengths.most));
    let shapes = executor.prepare(Point { batch: EXAMPLES, length }).map_err(|error| error.to_string())?;
    let sizes: Vec<_> = (0..graph.inputs.len()).map(|position| shapes.elements(graph.input(position))).collect();
    let outputs = shapes.elements(model.output());
    for (position, (input, size)) in graph.inputs.iter().zip(sizes).enumerate() {
        let tensor = match input.element {
            Element::F32 => Tensor::F32((0..size).map(|_| 2.0 * draws.random::<f32>() - 1.0).collect()),
            Element::I64 => Tensor::I64((0..size).map(|_| i64::from(draws.random::<bool>())).collect()),
            Element::Bool => Tensor::Bool(vec![true; size]),
        };
        if let Some(target) = executor.input(position) {
            *target = tensor;
        }
    }
    let weights: Vec<f32> = (0..outputs).map(|_| 2.0 * draws.random::<f32>() - 1.0).collect();
    let value = |executor: &mut Executor, parameters: &[f32]| -> Result<f64, String> {
        executor.set_parameters(parameters);
        executor.forward(None).map_err(|error| error.to_string())?;
        let pairs = executor.value(model.output()).iter().zip(&weights);
        let value: f64 = pairs.map(|(output, weight)| f64::from(*output) * f64::from(*weight)).sum();
        if value.is_finite() {
            return Ok(value);
        }
        Err(executor.first_not_finite().unwrap_or_else(|| "an output is not finite".to_owned()))
    };
    value(&mut executor, parameters)?;
    let mut gradient = vec![0.0; parameters.len()];
    executor.backward(model.output(), &weights, &mut gradient).map_err(|error| error.to_string())?;
    let (mut found, mut first) = (Vec::new(), 0);
    for parameter in &graph.parameters {
        let size: usize = parameter.shape.iter().map(|&size| size as usize).product();
        let own = first..first + size;
        first = own.end;
        let largest = parameters[own.clone()].iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        let mut last = None;
        // A difference across a kink is wrong; a wrong gradient differs along every direction.
        for step in STEPS.map(|step| step * largest.max(0.1)) {
            let direction: Vec<f32> = own.clone().map(|_| if draws.random::<bool>() { 1.0 } else { -1.0 }).collect();
            let mut moved = |by: f32| {
                let mut parameters = parameters.to_vec();
                let own = parameters[own.clone()].iter_mut().zip(&direction);
                own.for_each(|(value, direction)| *value += by * direction);
                value(&mut executor, &parameters)
            };
            let difference = (moved(step)? - moved(-step)?) / f64::from(2.0 * step);
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
