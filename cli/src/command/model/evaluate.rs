//! Accuracy and loss of a model on held-out data, computed here: the file need not come from a coordinator.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client_sdk::models::Architecture;
use client_sdk::train::{self, Device, Examples};
use datasets::Dataset;
use learning::contribution::scaffold;
use learning::{Parameters, checkpoint};
use task_spec::TableSpec;

use crate::data::DataArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, number};
use crate::table_file::{Keep, TablePath, Wanted};
use crate::task_file;

/// Arguments of `tributary model evaluate`.
#[derive(clap::Args)]
pub(crate) struct Evaluate {
    /// Model file (safetensors)
    file: PathBuf,
    /// Task file that names the table's columns, for --data csv:FILE, parquet:FILE or 'command:COMMAND LINE'
    #[arg(long, value_name = "FILE")]
    task: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

/// Quality of a model on a data set.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Score {
    /// Fraction of correct predictions.
    pub(crate) accuracy: f64,
    /// Mean cross-entropy, in nats.
    pub(crate) loss: f64,
    /// Number of examples evaluated.
    pub(crate) examples: u64,
}

/// Figures of a model on a table of one's own.
#[derive(Debug, serde::Serialize)]
struct Measured {
    /// Fraction of correct predictions, of a model that predicts classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    /// Mean loss over the rows.
    loss: f64,
    /// Other measures that fit the loss.
    #[serde(flatten)]
    measures: BTreeMap<&'static str, f64>,
    /// Number of rows evaluated.
    examples: u64,
    /// Rows that could not be used.
    skipped: usize,
}

impl Evaluate {
    pub(super) fn run(self, output: Output) -> Outcome {
        let bytes = read(&self.file)?;
        if let Some(table) = self.data.table()? {
            return self.on_table(&table, &bytes, output);
        }
        let architecture = architecture_of(&self.file, &bytes)?;
        let score = Score::of(&architecture, &bytes, &self.data.load()?.test)?;
        output.answer(&score, || {
            let Score { accuracy, loss, examples } = score;
            format!("accuracy {:.2} %, loss {loss:.4}, on {} examples", 100.0 * accuracy, number(examples))
        });
        Ok(())
    }

    /// Evaluates a model on a whole table.
    fn on_table(&self, table: &TablePath, safetensors: &[u8], output: Output) -> Outcome {
        let task = self.task.as_deref().ok_or_else(|| {
            Failure::new(Exit::Usage, "--data names a table: add --task FILE, the task's file, which names its columns")
        })?;
        let spec = task_file::read(task)?;
        let has_label = |table: &TableSpec| table.label.is_some();
        let wanted = Wanted::of_task(&spec).filter(|_| spec.model.table.as_ref().is_some_and(has_label));
        let wanted = wanted.ok_or_else(|| {
            task_file::wrong(task, "names no columns with a label").with_error(
                "model.table",
                "must name the columns that the model takes and the one that it predicts".to_owned(),
            )
        })?;
        let named = spec.model.architecture.map(serde_json::from_value::<Architecture>).and_then(Result::ok);
        let architecture = match named {
            Some(graph @ Architecture::Graph(_)) => graph,
            _ => architecture_of(&self.file, safetensors)?,
        };
        let (fitted, report) = table.open()?.fitted(&wanted, Keep::ForModel)?;
        let parameters = parameters_of(&architecture, safetensors)?;
        let found = fitted.dataset().with_examples(|examples| {
            train::evaluate(&architecture, &parameters, examples, &Device::Cpu)
                .map_err(Failure::because(Exit::Data, "the model cannot be evaluated on this data"))
        })?;
        // In units of the label, which training scales.
        let scale =
            |name: &str| if ["rmse", "mae"].contains(&name) { wanted.label_scale().unwrap_or(1.0) } else { 1.0 };
        let measured = Measured {
            accuracy: architecture.has_accuracy().then_some(found.accuracy),
            loss: found.loss,
            measures: found.measures.named().map(|(name, value)| (name, value * scale(name))).collect(),
            examples: found.examples,
            skipped: report.skipped,
        };
        output.answer(&measured, || measured.words());
        Ok(())
    }
}

impl Measured {
    fn words(&self) -> String {
        let accuracy = self.accuracy.map(|accuracy| format!("accuracy {:.2} %, ", 100.0 * accuracy));
        let measures: String = self.measures.iter().map(|(name, value)| format!("{name} {value:.4}, ")).collect();
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!("; {skipped} rows cannot be used"),
        };
        let (accuracy, loss) = (accuracy.unwrap_or_default(), self.loss);
        format!("{accuracy}loss {loss:.4}, {measures}on {} examples{skipped}", number(self.examples))
    }
}

impl Score {
    /// Evaluates a published `safetensors` model on the CPU.
    pub(crate) fn of(architecture: &Architecture, safetensors: &[u8], data: &Dataset) -> Outcome<Self> {
        Self::of_parameters(architecture, &parameters_of(architecture, safetensors)?, data)
    }

    /// Evaluates parameters on the CPU.
    pub(crate) fn of_parameters(architecture: &Architecture, parameters: &Parameters, data: &Dataset) -> Outcome<Self> {
        let found = train::evaluate(architecture, parameters, examples(data), &Device::Cpu)
            .map_err(Failure::because(Exit::Data, "the model cannot be evaluated on this data"))?;
        Ok(Self { accuracy: found.accuracy, loss: found.loss, examples: found.examples })
    }
}

/// The bytes of a model's file.
pub(super) fn read(file: &Path) -> Outcome<Vec<u8>> {
    std::fs::read(file).map_err(Failure::because(Exit::Data, format!("cannot read {}", file.display())))
}

/// The ready model that a file's tensors tell.
pub(super) fn architecture_of(file: &Path, safetensors: &[u8]) -> Outcome<Architecture> {
    let unreadable = || format!("{} is not a readable model", file.display());
    let layout = checkpoint::read_layout(safetensors).map_err(Failure::because(Exit::Data, unreadable()))?;
    let layout = scaffold::without_control(&layout).map_err(Failure::because(Exit::Data, unreadable()))?;
    Architecture::of_tensors(&layout)
        .ok_or_else(|| Failure::new(Exit::Data, format!("{}: its tensors match no ready model", file.display())))
}

/// The parameters of a ready model in a published file.
pub(super) fn parameters_of(architecture: &Architecture, safetensors: &[u8]) -> Outcome<Parameters> {
    let layout = architecture.layout().map_err(Failure::because(Exit::Data, "the model's sizes"))?;
    architecture
        .read_published(safetensors, &Arc::new(layout))
        .map_err(Failure::because(Exit::Data, "the file does not hold this model"))
}

/// A data set in the trainer's form.
pub(crate) fn examples(data: &Dataset) -> Examples<'_> {
    match data {
        Dataset::Labelled(data) => {
            Examples::Labelled { features: &data.features, labels: &data.labels, width: data.width }
        }
        Dataset::Text(data) => Examples::Text { inputs: &data.inputs, targets: &data.targets, length: data.length },
    }
}

#[cfg(test)]
mod tests {
    use client_sdk::models::Linear;

    use super::*;

    #[test]
    fn a_control_variate_beside_a_model_does_not_hide_it() {
        let linear = Architecture::Linear(Linear { inputs: 7, classes: 3 });
        let published = scaffold::layout(&linear.layout().unwrap()).unwrap();
        assert_eq!(Architecture::of_tensors(&scaffold::without_control(&published).unwrap()), Some(linear));
    }
}
