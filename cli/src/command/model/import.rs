//! `tributary model import`: an ONNX file as a graph that devices train, with its parameters.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_sdk::models::Architecture;
use client_sdk::train::{Derivative, GradientCheck, Verified, verified};
use graph::{Graph, Loss, Point, cost, infer};
use graph_import::{Dropout, Imported, Options, import};
use learning::{Parameters, checkpoint};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Cells, Output, Table, bytes, number};

/// Arguments of `tributary model import`.
#[derive(clap::Args)]
pub(crate) struct Import {
    /// ONNX file; from PyTorch, export it with dynamo=True and optimize=False
    file: PathBuf,
    /// Loss that training minimizes: cross_entropy, next_token, bce_with_logits, mse, huber or poisson
    #[arg(long, default_value = "cross_entropy")]
    loss: String,
    /// Write the graph to this file [default: the name of the ONNX file, with .graph.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the parameters to this file, for `model.initial` [default: the name of the ONNX file, with .safetensors]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Parameter that several nodes share on purpose; may be repeated
    #[arg(long, value_name = "NAME")]
    tied: Vec<String>,
    /// Tensor that does not train; may be repeated
    #[arg(long, value_name = "NAME")]
    constant: Vec<String>,
    /// New name of a tensor, as OLD=NEW; may be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    rename: Vec<(String, String)>,
    /// Symbol of the sizes that are the length of sequences, if there are several symbols; may be repeated
    #[arg(long, value_name = "SYMBOL")]
    length: Vec<String>,
    /// Fixed value of a symbolic size, as SYMBOL=SIZE; may be repeated
    #[arg(long, value_name = "SYMBOL=SIZE", value_parser = size)]
    size: Vec<(String, u32)>,
    /// Output to train, the first one counts; may be repeated [default: all outputs with the batch as first axis]
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// Leave dropout out
    #[arg(long)]
    no_dropout: bool,
}

/// Output of an import.
#[derive(serde::Serialize)]
struct Written {
    graph: PathBuf,
    weights: PathBuf,
    /// Names of the operations, each once.
    operations: Vec<&'static str>,
    parameters: u64,
    graph_bytes: u64,
    /// Cost of a training step with the longest sequences; absent if one example exceeds the limits at that length.
    step: Option<Step>,
    warnings: Vec<String>,
    tensors: Vec<Trained>,
}

/// The cost of a training step with the longest sequences.
#[derive(serde::Serialize)]
struct Step {
    /// Length of the sequences; 1 for a graph without.
    length: u32,
    /// Multiply-adds of forward and backward pass for each example.
    multiply_adds: u64,
    /// Number of examples that `memory` is for.
    batch: u32,
    /// Bytes that a device needs at once.
    memory: u64,
}

impl Step {
    /// Number of examples whose memory is shown, if the limits allow it.
    const BATCH: u32 = 32;

    fn of(graph: &Graph) -> Option<Self> {
        let length = graph.lengths.map_or(1, |lengths| lengths.most);
        let at = |batch| Some(cost(graph, &infer(graph, Point { batch, length }).ok()?));
        let one = at(1)?;
        let (batch, memory) = at(Self::BATCH).map_or((1, one.memory), |cost| (Self::BATCH, cost.memory));
        Some(Self { length, multiply_adds: one.multiply_adds, batch, memory })
    }
}

/// A parameter with the result of its gradient check.
#[derive(serde::Serialize)]
struct Trained {
    name: String,
    shape: Vec<u32>,
    /// The derivative along a random direction, by the gradient and by a difference.
    gradient: f64,
    difference: f64,
}

impl Import {
    pub(super) fn run(self, output: Output) -> Outcome {
        let bytes = fs::read(&self.file)
            .map_err(Failure::because(Exit::Data, format!("cannot read {}", self.file.display())))?;
        let wrong =
            |error: &dyn std::fmt::Display| Failure::new(Exit::Data, format!("{}: {error}", self.file.display()));
        let loss = Loss::of_name(&self.loss).ok_or_else(|| {
            let names = "cross_entropy, next_token, bce_with_logits, mse, huber and poisson";
            Failure::new(Exit::Usage, format!("--loss {}: there are {names}", self.loss))
        })?;
        let Imported { graph, parameters, warnings } =
            import(&bytes, &self.options()).map_err(|error| wrong(&error))?;
        let values: Vec<f32> = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
        let found = verified(graph, loss, &values, GradientCheck::Differences).map_err(|why| wrong(&why))?;
        let Verified { model, json, operations, derivatives, warnings: still } = found;
        let (graph_file, weights) =
            (self.named(self.out.as_ref(), "graph.json"), self.named(self.weights.as_ref(), "safetensors"));
        write(&graph_file, &json)?;
        let step = Step::of(model.graph());
        let architecture = Architecture::Graph(model);
        let layout = Arc::new(architecture.layout().map_err(|error| wrong(&error))?);
        let count = values.len() as u64;
        let parameters = Parameters::new(layout, values).map_err(|error| wrong(&error))?;
        write(&weights, &checkpoint::write(&parameters).map_err(|error| wrong(&error))?)?;
        let warnings = warnings.iter().map(ToString::to_string).chain(still).collect();
        let written = Written {
            graph: graph_file,
            weights,
            operations,
            parameters: count,
            graph_bytes: json.len() as u64,
            step,
            warnings,
            tensors: derivatives.into_iter().map(Trained::from).collect(),
        };
        output.answer(&written, || written.report());
        Ok(())
    }

    fn options(&self) -> Options {
        Options {
            tied: self.tied.clone(),
            names: self.rename.iter().cloned().collect(),
            constants: self.constant.clone(),
            length: self.length.clone(),
            sizes: self.size.iter().cloned().collect(),
            outputs: self.output.clone(),
            dropout: if self.no_dropout { Dropout::Drop } else { Dropout::Keep },
            ..Options::default()
        }
    }

    /// The given file, or the ONNX file's name with another extension.
    fn named(&self, given: Option<&PathBuf>, extension: &str) -> PathBuf {
        given.cloned().unwrap_or_else(|| self.file.with_extension(extension))
    }
}

impl From<Derivative> for Trained {
    fn from(Derivative { parameter, shape, computed, difference }: Derivative) -> Self {
        Self { name: parameter, shape, gradient: computed, difference }
    }
}

impl Written {
    fn report(&self) -> String {
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
        if let Some(Step { length, multiply_adds, batch, memory }) = self.step {
            let at = if length > 1 { format!(" of {length} positions") } else { String::new() };
            let (adds, memory) = (number(multiply_adds), bytes(memory));
            lines.push(format!("Training step: {adds} multiply-adds an example{at}; {memory} for {batch} of them"));
        }
        lines.push(format!(
            "{}: the graph, {}\n{}: {} parameters",
            self.graph.display(),
            bytes(self.graph_bytes),
            self.weights.display(),
            number(self.parameters)
        ));
        lines.join("\n")
    }
}

fn write(path: &Path, content: &[u8]) -> Outcome {
    fs::write(path, content).map_err(Failure::because(Exit::Io, format!("cannot write {}", path.display())))
}

/// Reads OLD=NEW.
fn pair(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("it is written OLD=NEW")?;
    Ok((old.to_owned(), new.to_owned()))
}

/// Reads SYMBOL=SIZE.
fn size(text: &str) -> Result<(String, u32), String> {
    let (symbol, size) = text.split_once('=').ok_or("it is written SYMBOL=SIZE")?;
    let size = size.parse().map_err(|_| format!("{size} is no size"))?;
    Ok((symbol.to_owned(), size))
}
