//! Sample rows of an import: inputs of the graph, and outputs that another program computed from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_sdk::models::GraphModel;
use client_sdk::train::{GraphPredictor, NamedTensor, Tensor};
use datasets::npz::{self, Array, Elements};
use graph::{Element, Graph, Input};
use learning::Parameters;

use crate::failure::{Exit, Failure, Outcome, of_data};
use crate::output::{figure, number};

/// Largest deviation of an output that passes, as a share of its largest expected value.
const TOLERANCE: f64 = 1e-4;

/// The arrays of an NPZ file.
pub(super) struct Rows {
    file: PathBuf,
    inputs: Vec<NamedTensor>,
    /// Outputs with their names.
    expected: Vec<(String, Array)>,
}

/// Result of a comparison.
#[derive(serde::Serialize)]
pub(super) struct Compared {
    rows: PathBuf,
    examples: usize,
    /// Empty if the file has no expected outputs.
    outputs: Vec<Deviation>,
}

/// The largest deviation of an output from its expected values.
#[derive(Debug, serde::Serialize)]
struct Deviation {
    output: String,
    absolute: f64,
    /// As a share of the largest expected value.
    relative: f64,
}

impl Rows {
    /// Reads inputs and outputs of this graph, by name.
    pub(super) fn read(file: &Path, graph: &Graph) -> Outcome<Self> {
        let mut rows = Self { file: file.to_owned(), inputs: Vec::new(), expected: Vec::new() };
        for (name, array) in npz::load(file).map_err(of_data)? {
            if let Some(input) = graph.inputs.iter().find(|input| input.name == name) {
                let values = values(input, array.elements).map_err(|why| rows.wrong(why))?;
                rows.inputs.push(NamedTensor { name, shape: array.shape, values });
            } else if graph.outputs.iter().any(|output| output.name == name) {
                rows.expected.push((name, array));
            } else {
                return Err(rows.wrong(unknown(&name, graph)));
            }
        }
        Ok(rows)
    }

    pub(super) fn inputs(&self) -> &[NamedTensor] {
        &self.inputs
    }

    /// Computes the outputs of the rows, and compares those that are expected.
    pub(super) fn compared(&self, model: &Arc<GraphModel>, parameters: &Arc<Parameters>) -> Outcome<Compared> {
        let predictor = GraphPredictor::new(Arc::clone(model), Arc::clone(parameters));
        let outputs = predictor.and_then(|mut predictor| predictor.predict(&self.inputs));
        let outputs = outputs.map_err(Failure::because(Exit::Data, self.file.display()))?;
        let deviation = |(name, expected): &(String, Array)| {
            let found = outputs.iter().find(|output| output.name == *name);
            found.map(|found| deviation(found, expected).map_err(|why| self.wrong(why)))
        };
        Ok(Compared {
            rows: self.file.clone(),
            examples: outputs.first().and_then(|output| output.shape.first()).copied().unwrap_or_default(),
            outputs: self.expected.iter().filter_map(deviation).collect::<Outcome<_>>()?,
        })
    }

    fn wrong(&self, why: String) -> Failure {
        Failure::new(Exit::Data, format!("{}: {why}", self.file.display()))
    }
}

impl Compared {
    /// The figures, a line for each output.
    pub(super) fn report(&self) -> String {
        let (file, examples) = (self.rows.display(), number(self.examples as u64));
        if self.outputs.is_empty() {
            return format!("{file}: {examples} examples without expected outputs");
        }
        let line = |Deviation { output, absolute, relative }: &Deviation| {
            let (absolute, relative) = (figure(*absolute), figure(*relative));
            format!("{file}: on {examples} examples, {output} deviates by at most {absolute} (relative {relative})")
        };
        self.outputs.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// The elements of an input in its type.
fn values(input: &Input, elements: Elements) -> Result<Tensor, String> {
    let needed = match (input.element, elements) {
        (Element::F32, Elements::F32(values)) => return Ok(Tensor::F32(values)),
        (Element::I64, Elements::I64(values)) => return Ok(Tensor::I64(values)),
        (Element::Bool, Elements::Bool(values)) => return Ok(Tensor::Bool(values)),
        (Element::F32, found @ (Elements::F64(_) | Elements::I64(_) | Elements::Bool(_))) => ("float32", found),
        (Element::I64, found @ (Elements::F32(_) | Elements::F64(_) | Elements::Bool(_))) => ("int64", found),
        (Element::Bool, found @ (Elements::F32(_) | Elements::F64(_) | Elements::I64(_))) => ("bool", found),
    };
    let (needed, found) = (needed.0, needed.1.name());
    let name = &input.name;
    Err(format!("the input `{name}` is {found}, and the graph takes {needed}; convert it with `.astype(\"{needed}\")`"))
}

fn unknown(name: &str, graph: &Graph) -> String {
    let list = |names: Vec<&str>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let inputs = list(graph.inputs.iter().map(|input| input.name.as_str()).collect());
    let outputs = list(graph.outputs.iter().map(|output| output.name.as_str()).collect());
    format!("the graph has no `{name}`: its inputs are {inputs}, and its outputs {outputs}")
}

/// Compares an output with its expected values.
fn deviation(found: &NamedTensor, expected: &Array) -> Result<Deviation, String> {
    let output = found.name.clone();
    if found.shape != expected.shape {
        let (shape, right) = (&expected.shape, &found.shape);
        return Err(format!("the expected output `{output}` has the shape {shape:?}; the graph computes {right:?}"));
    }
    let (computed, right) = numbers(&found.values, &expected.elements)
        .ok_or_else(|| format!("the expected output `{output}` is {}, unlike the graph's", expected.elements.name()))?;
    let largest =
        right.iter().filter(|value| value.is_finite()).fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let distance = |at: usize| distance(computed[at], right[at]);
    let worst = (0..right.len()).max_by(|&one, &other| distance(one).total_cmp(&distance(other))).unwrap_or_default();
    let absolute = if right.is_empty() { 0.0 } else { distance(worst) };
    let relative = if absolute == 0.0 { 0.0 } else { absolute / largest };
    if relative <= TOLERANCE {
        return Ok(Deviation { output, absolute, relative });
    }
    Err(format!(
        "the output `{output}` deviates by {} (relative {}): {} at {:?}, where {} is expected; at most {TOLERANCE} of the largest \
         expected value passes. Save outputs of the evaluation mode, computed with the weights in the ONNX file",
        figure(absolute),
        figure(relative),
        computed[worst],
        position(&found.shape, worst),
        right[worst],
    ))
}

/// Computed and expected elements as numbers; `None` if the types differ.
fn numbers(found: &Tensor, expected: &Elements) -> Option<(Vec<f64>, Vec<f64>)> {
    let floats = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
    let truths = |values: &[bool]| values.iter().map(|&value| f64::from(u8::from(value))).collect();
    #[expect(clippy::cast_precision_loss, reason = "integers above 2^53 are no classes or positions")]
    let integers = |values: &[i64]| values.iter().map(|&value| value as f64).collect();
    match (found, expected) {
        (Tensor::F32(found), Elements::F32(expected)) => Some((floats(found), floats(expected))),
        (Tensor::F32(found), Elements::F64(expected)) => Some((floats(found), expected.clone())),
        (Tensor::I64(found), Elements::I64(expected)) => Some((integers(found), integers(expected))),
        (Tensor::Bool(found), Elements::Bool(expected)) => Some((truths(found), truths(expected))),
        (Tensor::F32(_), Elements::I64(_) | Elements::Bool(_))
        | (Tensor::I64(_), Elements::F32(_) | Elements::F64(_) | Elements::Bool(_))
        | (Tensor::Bool(_), Elements::F32(_) | Elements::F64(_) | Elements::I64(_)) => None,
    }
}

/// The distance of two numbers: 0 for the same infinity and for two NaN, infinite if one of them is not finite.
fn distance(one: f64, other: f64) -> f64 {
    if one == other || (one.is_nan() && other.is_nan()) {
        0.0
    } else if one.is_finite() && other.is_finite() {
        (one - other).abs()
    } else {
        f64::INFINITY
    }
}

/// The position of an element along each axis.
fn position(shape: &[usize], mut index: usize) -> Vec<usize> {
    let mut position = vec![0; shape.len()];
    for (place, size) in position.iter_mut().zip(shape).rev() {
        *place = index % size;
        index /= size;
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(found: Tensor, expected: Elements) -> Result<Deviation, String> {
        let shape = vec![found.len() / 2, 2];
        deviation(
            &NamedTensor { name: "y".into(), shape: shape.clone(), values: found },
            &Array { shape, elements: expected },
        )
    }

    fn floats(found: [f32; 4], expected: [f64; 4]) -> Result<Deviation, String> {
        compared(Tensor::F32(found.to_vec()), Elements::F64(expected.to_vec()))
    }

    #[test]
    fn deviation_is_relative_to_the_largest_value() {
        let found = floats([0.0, 1.0, -8.0, 2.0], [0.0005, 1.0, -8.0, 2.0]).unwrap();
        assert_eq!((found.absolute, found.relative), (0.0005, 0.0005 / 8.0));
        let error = floats([0.0, 1.0, -8.0, 2.0], [0.0, 1.0, -8.0, 2.001]).unwrap_err();
        assert!(error.contains("`y` deviates by 0.001 (relative 0.000125): 2 at [1, 1], where 2.001 is"), "{error}");
        let error = floats([1e-9, 0.0, 0.0, 0.0], [0.0; 4]).unwrap_err();
        assert!(error.contains("(relative unbounded)"), "{error}");
        assert_eq!(floats([0.0; 4], [0.0; 4]).unwrap().relative, 0.0);
    }

    #[test]
    fn numbers_that_are_not_finite_must_be_equal() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        assert_eq!(floats([nan, infinity, 1.0, 1.0], [f64::NAN, f64::INFINITY, 1.0, 1.0]).unwrap().absolute, 0.0);
        for wrong in [[nan, 1.0, 1.0, 1.0], [infinity, 1.0, 1.0, 1.0]] {
            assert!(floats(wrong, [1.0; 4]).unwrap_err().contains("at [0, 0], where 1 is expected"));
        }
    }

    #[test]
    fn expected_outputs_have_the_type_of_the_graph() {
        let classes = |expected: &[i64]| compared(Tensor::I64(vec![3, 4]), Elements::I64(expected.to_vec()));
        assert_eq!(classes(&[3, 4]).unwrap().absolute, 0.0);
        assert!(classes(&[3, 5]).is_err());
        let found = NamedTensor { name: "y".into(), shape: vec![2, 1], values: Tensor::I64(vec![3, 4]) };
        let error = deviation(&found, &Array { shape: vec![2], elements: Elements::I64(vec![3, 4]) }).unwrap_err();
        assert!(error.contains("`y` has the shape [2]; the graph computes [2, 1]"), "{error}");
        assert!(compared(Tensor::Bool(vec![true, false]), Elements::Bool(vec![true, true])).is_err());
        let error = compared(Tensor::F32(vec![3.0, 4.0]), Elements::I64(vec![3, 4])).unwrap_err();
        assert!(error.contains("the expected output `y` is int64"), "{error}");
    }
}
