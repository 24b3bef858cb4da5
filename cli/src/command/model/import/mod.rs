//! `tributary model import`: an ONNX file as a graph that devices train, with its parameters.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_sdk::models::{Architecture, GraphModel};
use client_sdk::train::{GradientCheck, Verified, verified};
use graph::Loss;
use graph_import::{BatchNorm, Dropout, Imported, Options, import};
use learning::{Parameters, checkpoint};
use recipe::digest::sha256;

use self::mode::Mode;
use self::report::{Step, Trained, Written};
use self::rows::Rows;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;

mod mode;
mod report;
mod rows;

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
    /// Value of an input that is a single number, as INPUT=NUMBER; the graph goes without it; may be repeated
    #[arg(long, value_name = "INPUT=NUMBER", value_parser = value)]
    value: Vec<(String, f64)>,
    /// Output to train, the first one counts; may be repeated [default: all outputs with the batch as first axis]
    #[arg(long, value_name = "NAME")]
    output: Vec<String>,
    /// Leave dropout out
    #[arg(long)]
    no_dropout: bool,
    /// How batch normalizations train; the task states the same in model.batch_norm
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Mode::Frozen)]
    batch_norm: Mode,
    /// Compute the outputs of the inputs in this NPZ file, and compare them with the outputs in it, both by name
    ///
    /// numpy.savez writes it. An output may deviate by 1e-4 of its largest expected value. The gradient check takes the
    /// first two examples instead of random numbers.
    #[arg(long, value_name = "FILE")]
    rows: Option<PathBuf>,
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
        let model = Arc::new(GraphModel::new(graph, loss).map_err(|error| wrong(&error))?);
        let statistics = model.graph().running_statistics().len();
        if BatchNorm::from(self.batch_norm) == BatchNorm::Batch && statistics == 0 {
            return Err(wrong(&"it has no batch normalization with running statistics: leave --batch-norm out"));
        }
        let layout = Arc::new(Architecture::Graph(Arc::clone(&model)).layout().map_err(|error| wrong(&error))?);
        let parameters = Arc::new(Parameters::new(layout, values).map_err(|error| wrong(&error))?);
        let rows = self.rows.as_deref().map(|file| Rows::read(file, model.graph())).transpose()?;
        let compared = rows.as_ref().map(|rows| rows.compared(&model, &parameters)).transpose()?;
        let check = rows.as_ref().map_or(GradientCheck::Differences, |rows| GradientCheck::Rows(rows.inputs()));
        let found = verified(model, parameters.values(), check).map_err(|why| wrong(&why))?;
        let Verified { model, json, operations, derivatives, warnings: still } = found;
        let (graph_file, weights) =
            (self.named(self.out.as_ref(), "graph.json"), self.named(self.weights.as_ref(), "safetensors"));
        write(&graph_file, &json)?;
        write(&weights, &checkpoint::write(&parameters).map_err(|error| wrong(&error))?)?;
        let written = Written {
            graph: graph_file,
            weights,
            operations,
            parameters: parameters.values().len() as u64,
            graph_bytes: json.len() as u64,
            graph_sha256: sha256(&json),
            batch_norm: self.batch_norm,
            statistics,
            step: Step::of(&model, parameters.values()),
            compared,
            warnings: warnings.iter().map(ToString::to_string).chain(still).collect(),
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
            values: self.value.iter().cloned().collect(),
            outputs: self.output.clone(),
            dropout: if self.no_dropout { Dropout::Drop } else { Dropout::Keep },
            batch_norm: self.batch_norm.into(),
            ..Options::default()
        }
    }

    /// The given file, or the ONNX file's name with another extension.
    fn named(&self, given: Option<&PathBuf>, extension: &str) -> PathBuf {
        given.cloned().unwrap_or_else(|| self.file.with_extension(extension))
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

/// Reads INPUT=NUMBER.
fn value(text: &str) -> Result<(String, f64), String> {
    let (input, number) = text.split_once('=').ok_or("it is written INPUT=NUMBER")?;
    let number = number.parse().map_err(|_| format!("{number} is no number"))?;
    Ok((input.to_owned(), number))
}
