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
    /// Numbers in a row: one, or a probability for each class.
    pub(crate) width: usize,
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

/// The predictions of `parameters` for the examples.
///
/// # Errors
/// As [`super::evaluate`]; [`TrainError::Inputs`] for a model that predicts several numbers.
pub(crate) fn predictions(
    architecture: &Architecture,
    parameters: &Parameters,
    examples: &Examples<'_>,
    device: &Device,
) -> Result<Predictions, TrainError> {
    check(architecture, parameters, examples)?;
    let meaning = meaning(architecture)?;
    let size = chunk(architecture, examples, EVALUATION_BATCH.min(examples.count()), ::graph::MAX_MEMORY)?;
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, examples, &plan, device, size)?;
    let mut found = Predictions { width: meaning.width(), ..Predictions::default() };
    let all: Vec<usize> = (0..examples.count()).collect();
    let mut targets = targets(examples).into_iter();
    for chosen in all.chunks(size) {
        let outputs = learner.logits(examples, chosen)?;
        if outputs.iter().any(|value| !value.is_finite()) {
            return Err(TrainError::NotFinite);
        }
        for (row, target) in outputs.chunks_exact(meaning.outputs()).zip(targets.by_ref()) {
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
    fn of_loss(loss: Loss) -> Predictions {
        let Imported { graph, parameters, .. } =
            import(include_bytes!("../graph/imported/table.onnx"), &Options::default()).unwrap();
        let values = parameters.iter().flat_map(|tensor| &tensor.values).copied().collect();
        let model = Architecture::Graph(Arc::new(GraphModel::new(graph, loss).unwrap()));
        let parameters = Parameters::new(Arc::new(model.layout().unwrap()), values).unwrap();
        let numbers: Vec<f32> = (0_u8..12).map(|number| f32::from(number) / 5.0).collect();
        let inputs = [Column::F32(&numbers), Column::I64(&[0, 3, 4])];
        let targets = TargetColumn::Numbers(&[0.0, 1.0, 1.0]);
        let examples = Examples::Tensors { inputs: &inputs, targets, count: 3, length: 1 };
        predictions(&model, &parameters, &examples, &Device::Cpu).unwrap()
    }

    #[test]
    fn outputs_become_what_the_loss_means() {
        let (plain, rates) = (of_loss(Loss::Mse), of_loss(Loss::Poisson));
        let classes = of_loss(Loss::BceWithLogits { positive_weight: 1.0 });
        assert_eq!((plain.width, rates.width, classes.width), (1, 1, 2));
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
