//! Predictions of a model: scores for an app, and for an evaluation predictions with the true classes or numbers.

mod scores;

use graph::{GraphModel, Loss, Point};
use learning::Parameters;
use task_spec::TrainingPlan;

use super::device::Device;
use super::error::TrainError;
use super::examples::{Examples, TargetColumn};
use super::{EVALUATION_BATCH, check, chunk, learner};
use crate::models::Architecture;

pub use self::scores::{Inputs, Predictor, Scores, scores};

/// Predictions of some examples, row by row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Predictions {
    /// One number for each row, or a probability for each class.
    pub(crate) values: Vec<f64>,
    /// The true class or number of each row.
    pub(crate) targets: Vec<f64>,
}

/// What a model's outputs mean.
#[derive(Clone, Copy)]
enum Meaning {
    /// Scores of classes. Rows with the ignored class are left out.
    Scores {
        classes: usize,
        ignored: Option<u32>,
    },
    /// The logit of the second of two classes.
    Logit,
    Number,
    /// The logarithm of a rate.
    Rate,
}

/// Most numbers of predictions that are kept: 1 GiB.
const MAX_PREDICTED: usize = 1 << 27;

/// The predictions of `parameters` for the chosen examples, `width` numbers for each.
///
/// # Errors
/// As [`super::evaluate`]; [`TrainError::Inputs`] for a model that predicts several numbers or others than `width`, and for more than 2^27
/// numbers in all. Nothing is computed then.
pub(crate) fn predictions(
    architecture: &Architecture,
    parameters: &Parameters,
    examples: &Examples<'_>,
    chosen: &[usize],
    width: usize,
    device: &Device,
) -> Result<Predictions, TrainError> {
    check(architecture, parameters, examples)?;
    let meaning = meaning(architecture)?;
    let targets = targets(examples);
    let of_each = targets.len() / examples.count().max(1);
    let (own, kind) = (meaning.width(), architecture.kind());
    let numbers = chosen.len().saturating_mul(of_each).saturating_mul(own);
    if own != width {
        let what = format!("part in an evaluation with {own} numbers for each prediction, and this one is of {width}");
        return Err(TrainError::Inputs { kind, what });
    }
    if numbers > MAX_PREDICTED {
        let what = format!("part in an evaluation with at most {MAX_PREDICTED} numbers; max_rows asks for {numbers}");
        return Err(TrainError::Inputs { kind, what });
    }
    let size = chunk(architecture, examples, EVALUATION_BATCH.min(examples.count()), ::graph::MAX_MEMORY)?;
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, examples, &plan, device, size)?;
    let mut found = Predictions::default();
    for chosen in chosen.chunks(size) {
        let outputs = learner.logits(examples, chosen)?;
        if outputs.iter().any(|value| !value.is_finite()) {
            return Err(TrainError::NotFinite);
        }
        let targets = chosen.iter().flat_map(|example| &targets[example * of_each..(example + 1) * of_each]);
        for (row, &target) in outputs.chunks_exact(meaning.outputs()).zip(targets) {
            meaning.push(row, target, &mut found);
        }
    }
    Ok(found)
}

fn meaning(architecture: &Architecture) -> Result<Meaning, TrainError> {
    match architecture {
        Architecture::Graph(model) => of_graph(model),
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => {
            Ok(Meaning::Scores { classes: architecture.classes() as usize, ignored: None })
        }
    }
}

fn of_graph(model: &GraphModel) -> Result<Meaning, TrainError> {
    let ignored = if let Loss::NextToken { ignore } = model.loss() { *ignore } else { None };
    if let Some(classes) = model.classes() {
        return Ok(Meaning::Scores { classes, ignored });
    }
    if model.predictions(Point { batch: 1, length: 1 }) != 1 {
        let what = "part in an evaluation only with one number or the scores of classes as its output".to_owned();
        return Err(TrainError::Inputs { kind: "graph", what });
    }
    Ok(match model.loss() {
        Loss::BceWithLogits { .. } => Meaning::Logit,
        Loss::Poisson => Meaning::Rate,
        Loss::Mse | Loss::Huber { .. } | Loss::CrossEntropy { .. } | Loss::NextToken { .. } => Meaning::Number,
    })
}

/// The target of each prediction, in order.
fn targets(examples: &Examples<'_>) -> Vec<f64> {
    let of_classes = |classes: &[u32]| classes.iter().map(|&class| f64::from(class)).collect();
    match examples {
        Examples::Labelled { labels, .. } => of_classes(labels),
        Examples::Text { targets, .. } => of_classes(targets),
        Examples::Tensors { targets: TargetColumn::Classes(classes), .. } => of_classes(classes),
        Examples::Tensors { targets: TargetColumn::Numbers(numbers), .. } => {
            numbers.iter().map(|&number| f64::from(number)).collect()
        }
    }
}

impl Meaning {
    /// Outputs of the model for a prediction.
    fn outputs(self) -> usize {
        match self {
            Self::Scores { classes, .. } => classes,
            Self::Logit | Self::Number | Self::Rate => 1,
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Scores { classes, .. } => classes,
            Self::Logit => 2,
            Self::Number | Self::Rate => 1,
        }
    }

    fn push(self, outputs: &[f32], target: f64, to: &mut Predictions) {
        let mut target = target;
        match self {
            Self::Scores { ignored, .. } => {
                if ignored.is_some_and(|ignored| target == f64::from(ignored)) {
                    return;
                }
                let highest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let odds: Vec<f64> = outputs.iter().map(|&score| f64::from(score - highest).exp()).collect();
                let all: f64 = odds.iter().sum();
                to.values.extend(odds.iter().map(|odds| odds / all));
            }
            Self::Logit => {
                let probability = 1.0 / (1.0 + (-f64::from(outputs[0])).exp());
                to.values.extend([1.0 - probability, probability]);
                target = f64::from(u8::from(target > 0.5));
            }
            Self::Number => to.values.push(outputs[0].into()),
            Self::Rate => to.values.push(f64::from(outputs[0]).exp()),
        }
        to.targets.push(target);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graph_import::{Imported, Options, import};

    use super::*;
    use crate::train::Column;

    /// The predictions of a graph with one output under this loss, for three examples.
    fn of_loss(loss: Loss, width: usize, chosen: &[usize]) -> Result<Predictions, TrainError> {
        let Imported { graph, parameters, .. } =
            import(include_bytes!("../graph/imported/table.onnx"), &Options::default()).unwrap();
        let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
        let model = Architecture::Graph(Arc::new(GraphModel::new(graph, loss).unwrap()));
        let parameters = Parameters::new(Arc::new(model.layout().unwrap()), values).unwrap();
        let numbers: Vec<f32> = (0_u8..12).map(|number| f32::from(number) / 5.0).collect();
        let inputs = [Column::F32(&numbers), Column::I64(&[0, 3, 4])];
        let targets = TargetColumn::Numbers(&[0.0, 1.0, 1.0]);
        let examples = Examples::Tensors { inputs: &inputs, targets, count: 3, length: 1 };
        predictions(&model, &parameters, &examples, chosen, width, &Device::Cpu)
    }

    #[test]
    fn outputs_become_what_the_loss_means() {
        let all = |loss, width| of_loss(loss, width, &[0, 1, 2]).unwrap();
        let (plain, rates) = (all(Loss::Mse, 1), all(Loss::Poisson, 1));
        let classes = all(Loss::BceWithLogits { positive_weight: 1.0 }, 2);
        let last = of_loss(Loss::Mse, 1, &[2]).unwrap();
        assert_eq!((&last.values[..], &last.targets[..]), (&plain.values[2..], &[1.0][..]));
        let error = of_loss(Loss::Mse, 2, &[0]).unwrap_err().to_string();
        assert!(error.contains("1 numbers for each prediction, and this one is of 2"), "{error}");
        assert_eq!((plain.values.len(), rates.values.len(), classes.values.len()), (3, 3, 6));
        for (row, &output) in plain.values.iter().enumerate() {
            assert!((rates.values[row] - output.exp()).abs() < 1e-9);
            assert!((classes.values[2 * row + 1] - 1.0 / (1.0 + (-output).exp())).abs() < 1e-9);
            assert!((classes.values[2 * row] + classes.values[2 * row + 1] - 1.0).abs() < 1e-12);
        }
        for found in [plain, rates, classes] {
            assert_eq!(found.targets, [0.0, 1.0, 1.0]);
        }
    }
}
