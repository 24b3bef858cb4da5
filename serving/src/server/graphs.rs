//! Graphs that are served: their inputs and outputs, the sizes of an answer, and the computation.

use std::sync::Arc;

use client_sdk::models::{GraphModel, Loss};
use client_sdk::train::{GraphPredictor, Tensor, TrainError};
use graph::{Element, Point, Port, infer};
use learning::Parameters;

use super::input::{Examples, Prediction, append};

/// Maximum number of numbers in the outputs of an answer (16 MiB of 32-bit floats).
pub(crate) const ANSWER_MAX: usize = 1 << 22;
/// Elements of all values up to which examples are computed together (256 MiB); a single example may need more.
const TOGETHER: usize = 1 << 26;
/// Length of the sequences of samples, if the graph computes it.
const WARM_LENGTH: u32 = 16;
/// Elements of all values up to which a prepared state stays in memory (64 MiB).
const KEPT: usize = 1 << 24;

/// The inputs of a graph, and its served outputs with their positions.
type Ports = (Vec<Port>, Vec<(usize, Port)>);

/// The inputs of a graph, and its outputs that have elements of their own for each example.
///
/// # Errors
/// Which input depends on other examples.
pub(crate) fn ports(model: &GraphModel) -> Result<Ports, String> {
    let inputs = model.graph().input_ports();
    if let Some(port) = inputs.iter().find(|port| !port.is_by_example()) {
        return Err(format!("its input `{}` has another axis than the first that depends on the batch", port.name));
    }
    let outputs = model.graph().output_ports().map_err(|error| error.to_string())?;
    Ok((inputs, outputs.into_iter().enumerate().filter(|(_, port)| port.is_by_example()).collect()))
}

/// A graph that is served.
pub(crate) struct Served {
    model: Arc<GraphModel>,
    /// Positions of the outputs that are served.
    outputs: Vec<usize>,
}

impl Served {
    /// The graph with the outputs that can be served.
    ///
    /// # Errors
    /// As [`ports`].
    pub(crate) fn new(model: &Arc<GraphModel>) -> Result<Self, String> {
        let (_, outputs) = ports(model)?;
        let outputs = outputs.into_iter().map(|(position, _)| position).collect();
        Ok(Self { model: Arc::clone(model), outputs })
    }

    pub(crate) fn model(&self) -> &GraphModel {
        &self.model
    }

    /// Two examples for each pair of numbers, of which floats are made; integers are 0 in the first and 1 in the second, and 0 in
    /// both in a variant.
    pub(crate) fn samples<const N: usize>(&self, numbers: [[f32; 2]; N]) -> [[Examples; 2]; N] {
        let graph = self.model.graph();
        let length = graph.lengths.map_or(1, |lengths| WARM_LENGTH.clamp(lengths.least, lengths.most));
        let size = |input: &graph::Input| {
            let sizes = input.shape.iter().map(|size| size.at(Point { batch: 1, length }).unwrap_or(1));
            sizes.fold(1, |product, size| product * usize::try_from(size).unwrap_or(1))
        };
        let tensor = |input: &graph::Input, numbers: [f32; 2], integers: [i64; 2]| {
            let each = size(input);
            // The first example repeats the first number; the second one alternates between both.
            let second = |at: usize| usize::from(at >= each && at % 2 == 1);
            match input.element {
                Element::F32 => Tensor::F32((0..2 * each).map(|at| numbers[second(at)]).collect()),
                Element::I64 => Tensor::I64((0..2 * each).map(|at| integers[usize::from(at >= each)]).collect()),
                Element::Bool => Tensor::Bool((0..2 * each).map(|at| at >= each).collect()),
            }
        };
        numbers.map(|numbers| {
            [[0, 1], [0, 0]].map(|integers| {
                let tensors = graph.inputs.iter().map(|input| tensor(input, numbers, integers)).collect();
                Examples { tensors, count: 2, length }
            })
        })
    }

    /// The shapes of the outputs for this many examples of a length.
    ///
    /// # Errors
    /// The graph does not compute the length, one example is beyond its limits, or the answer would be too large.
    pub(crate) fn shapes(&self, Point { batch, length }: Point) -> Result<Vec<Vec<usize>>, String> {
        let one = infer(self.model.graph(), Point { batch: 1, length }).map_err(|error| error.to_string())?;
        let count = batch as usize;
        let outputs = self.outputs.iter().map(|position| one.get(self.model.graph().outputs[*position].value));
        let each: usize = outputs.clone().map(graph::TensorType::elements).sum();
        if each.checked_mul(count).is_none_or(|numbers| numbers > ANSWER_MAX) {
            let most = ANSWER_MAX / each.max(1);
            return Err(format!(
                "an answer has at most {ANSWER_MAX} numbers, and an example has {each}: ask about {most} such examples at once"
            ));
        }
        Ok(outputs.map(|kind| [&[count], &kind.shape[1..]].concat()).collect())
    }

    /// Number of examples of a length that are computed together, at most `most`.
    fn chunk(&self, length: u32, most: usize) -> usize {
        let elements = |batch| {
            let shapes = infer(self.model.graph(), Point { batch, length });
            shapes.map_or(usize::MAX, |shapes| shapes.all().iter().map(graph::TensorType::elements).sum())
        };
        let one = elements(1);
        let each = elements(2).saturating_sub(one).max(1);
        (TOGETHER.saturating_sub(one) / each + 1).clamp(1, most.max(1))
    }

    /// What predictions and those of another version are compared by: the class with the highest score, or whether a logit is
    /// above 0; nothing for numbers.
    fn classes(&self, scores: &[f32]) -> Vec<u32> {
        let best = |row: &[f32]| {
            let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            (0..).zip(row).find(|(_, score)| **score >= highest).map_or(0, |(class, _)| class)
        };
        match (self.model.classes(), self.model.loss()) {
            (Some(classes), _) => scores.chunks_exact(classes.max(1)).map(best).collect(),
            (None, Loss::BceWithLogits { .. }) => scores.iter().map(|score| u32::from(*score > 0.0)).collect(),
            (
                None,
                Loss::CrossEntropy { .. } | Loss::NextToken { .. } | Loss::Mse | Loss::Huber { .. } | Loss::Poisson,
            ) => Vec::new(),
        }
    }
}

/// A graph that one thread computes.
pub(crate) struct Prepared {
    predictor: GraphPredictor,
    /// A length, and the number of its examples that are computed together.
    chunk: Option<(u32, usize)>,
}

impl Prepared {
    /// A state without memory for values.
    ///
    /// # Errors
    /// Parameters of another model.
    pub(crate) fn new(served: &Served, parameters: &Arc<Parameters>) -> Result<Self, TrainError> {
        let predictor = GraphPredictor::new(Arc::clone(&served.model), Arc::clone(parameters))?;
        Ok(Self { predictor, chunk: None })
    }

    /// Predicts examples, at most `batch` at a time.
    ///
    /// # Errors
    /// As [`GraphPredictor::compute`].
    pub(crate) fn compute(
        &mut self,
        served: &Served,
        asked: &Examples,
        batch: usize,
    ) -> Result<Prediction, TrainError> {
        let chunk = match self.chunk {
            Some((length, chunk)) if length == asked.length => chunk,
            Some(_) | None => self.chunk.insert((asked.length, served.chunk(asked.length, batch))).1,
        };
        let mut outputs: Vec<Tensor> = Vec::new();
        for start in (0..asked.count).step_by(chunk) {
            let range = start..asked.count.min(start + chunk);
            let point = Point { batch: u32::try_from(range.len()).unwrap_or(u32::MAX), length: asked.length };
            let part: Vec<_> = asked.tensors.iter().map(|tensor| tensor.column().part(&range, asked.count)).collect();
            let found = self.predictor.compute(&part, point)?;
            let found = found.into_iter().enumerate().filter(|(position, _)| served.outputs.contains(position));
            for (number, (_, tensor)) in found.enumerate() {
                match outputs.get_mut(number) {
                    Some(all) => append(all, &tensor),
                    None => outputs.push(tensor),
                }
            }
        }
        let mut outputs = outputs.into_iter();
        // The first output is one of floats, and served: the loss needs it.
        let scores = match outputs.next() {
            Some(Tensor::F32(scores)) => scores,
            Some(Tensor::I64(_) | Tensor::Bool(_)) | None => Vec::new(),
        };
        let classes = served.classes(&scores);
        Ok(Prediction { scores, classes, others: outputs.collect() })
    }

    /// Whether its memory is small enough to wait for the next prediction.
    pub(crate) fn is_kept(&self) -> bool {
        self.predictor.elements() <= KEPT
    }
}

#[cfg(test)]
mod tests;
