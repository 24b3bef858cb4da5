//! Output of an import.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client_sdk::models::GraphModel;
use client_sdk::train::{Derivative, training_speed};
use graph::{Point, cost, infer};
use wire::Digest;

use super::mode::Mode;
use super::rows::Compared;
use crate::output::{Cells, Table, bytes, duration, number};

/// Time below which two digits show nothing.
const SHORT: Duration = Duration::from_millis(10);

/// Output of an import.
#[derive(serde::Serialize)]
pub(super) struct Written {
    pub(super) graph: PathBuf,
    pub(super) weights: PathBuf,
    /// Names of the operations, each once.
    pub(super) operations: Vec<&'static str>,
    pub(super) parameters: u64,
    pub(super) graph_bytes: u64,
    /// Digest of the graph's file, which apps can pin.
    pub(super) graph_sha256: Digest,
    /// `model.batch_norm` of the task.
    pub(super) batch_norm: Mode,
    /// Number of running means and variances among the tensors.
    pub(super) statistics: usize,
    /// Cost of a training step with the longest sequences; absent if one example exceeds the limits at that length.
    pub(super) step: Option<Step>,
    /// Outputs of the sample rows; absent without `--rows`.
    pub(super) compared: Option<Compared>,
    pub(super) warnings: Vec<String>,
    pub(super) tensors: Vec<Trained>,
}

/// The cost of a training step with the longest sequences.
#[derive(serde::Serialize)]
pub(super) struct Step {
    /// Length of the sequences; 1 for a graph without.
    length: u32,
    /// Multiply-adds of forward and backward pass for each example.
    multiply_adds: u64,
    /// Number of examples that `memory` is for.
    batch: u32,
    /// Bytes that a device needs at once.
    memory: u64,
    /// Estimate for training on 1,000 examples on one core of this machine, from the speed of short steps; absent if the
    /// graph does not compute random inputs.
    seconds_per_1000_examples: Option<f64>,
}

impl Step {
    /// Number of examples whose memory is shown, if the limits allow it.
    const BATCH: u32 = 32;

    pub(super) fn of(model: &Arc<GraphModel>, parameters: &[f32]) -> Option<Self> {
        let graph = model.graph();
        let length = graph.lengths.map_or(1, |lengths| lengths.most);
        let at = |batch| Some(cost(graph, &infer(graph, Point { batch, length }).ok()?));
        let one = at(1)?;
        let (batch, memory) = at(Self::BATCH).map_or((1, one.memory), |cost| (Self::BATCH, cost.memory));
        let multiply_adds = one.multiply_adds;
        #[expect(clippy::disallowed_methods, reason = "the speed of this machine is measured")]
        let began = Instant::now();
        let speed = training_speed(model, parameters, || began.elapsed()).ok();
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let seconds_per_1000_examples = speed.map(|speed| 1000.0 * multiply_adds as f64 / speed);
        Some(Self { length, multiply_adds, batch, memory, seconds_per_1000_examples })
    }
}

/// A parameter with the result of its gradient check.
#[derive(serde::Serialize)]
pub(super) struct Trained {
    name: String,
    shape: Vec<u32>,
    /// The derivative along a random direction, by the gradient and by a difference.
    gradient: f64,
    difference: f64,
}

impl From<Derivative> for Trained {
    fn from(Derivative { parameter, shape, computed, difference }: Derivative) -> Self {
        Self { name: parameter, shape, gradient: computed, difference }
    }
}

impl Written {
    pub(super) fn report(&self) -> String {
        let mut table = Table::new(&[
            ("PARAMETER", Cells::Key),
            ("SHAPE", Cells::Text),
            ("GRADIENT", Cells::Number),
            ("DIFFERENCE", Cells::Number),
        ]);
        for tensor in &self.tensors {
            let shape = tensor.shape.iter().map(u32::to_string).collect::<Vec<_>>().join(" x ");
            let derivative = |value: f64| format!("{value:.4}");
            table.row(vec![tensor.name.clone(), shape, derivative(tensor.gradient), derivative(tensor.difference)]);
        }
        let mut lines = vec![table.render(None, "")];
        lines.extend(self.warnings.iter().map(|warning| format!("Warning: {warning}")));
        lines.push(format!("Operations: {}", self.operations.join(", ")));
        if let Some(Step { length, multiply_adds, batch, memory, seconds_per_1000_examples }) = self.step {
            let at = if length > 1 { format!(" of {length} positions") } else { String::new() };
            let (adds, memory) = (number(multiply_adds), bytes(memory));
            lines.push(format!("Training step: {adds} multiply-adds an example{at}; {memory} for {batch} of them"));
            if let Some(seconds) = seconds_per_1000_examples.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
                let shown =
                    if seconds < SHORT { "less than 0.01 s".into() } else { format!("about {}", duration(seconds)) };
                lines.push(format!("Training on 1,000 examples: {shown} on one core of this machine"));
            }
        }
        lines.extend(self.compared.as_ref().map(Compared::report));
        lines.extend(self.batch_norm.stated().map(|mode| {
            format!(
                "The task needs batch_norm = \"{mode}\" in [model]: {} tensors are running statistics",
                self.statistics
            )
        }));
        lines.push(format!(
            "{}: the graph, {}, sha256 {}\n{}: {} parameters",
            self.graph.display(),
            bytes(self.graph_bytes),
            self.graph_sha256,
            self.weights.display(),
            number(self.parameters)
        ));
        lines.join("\n")
    }
}
