//! What a model says of inputs: the use of a model, as opposed to its training.

use learning::Parameters;
use task_spec::TrainingPlan;

use super::device::Device;
use super::error::TrainError;
use super::examples::Examples;
use super::{EVALUATION_BATCH, check, learner};
use crate::models::{Architecture, InputKind};

/// What a model is asked about.
#[derive(Clone, Copy, Debug)]
pub enum Inputs<'a> {
    /// Rows of the model's input length, one after the other, at least one.
    Rows(&'a [f32]),
    /// One sequence of characters, at least one.
    Characters(&'a [u32]),
}

/// Scores of each class: one row for each row of the input, or for each character.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    classes: usize,
    values: Vec<f32>,
}

impl Scores {
    /// Number of classes, the length of a row.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The scores before softmax, row after row.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The scores of each row.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.classes)
    }

    /// The class with the highest score in each row; the first of several.
    #[must_use]
    pub fn best(&self) -> Vec<u32> {
        let best = |row: &[f32]| {
            let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // Classes are counted in 32 bits by every architecture.
            (0..).zip(row).find(|(_, score)| **score >= highest).map_or(0, |(class, _)| class)
        };
        self.rows().map(best).collect()
    }
}

/// The scores of `inputs` by the model of these `parameters`.
///
/// # Errors
/// [`TrainError`]: parameters of another model, inputs that do not fit it, a device failure.
pub fn scores(
    architecture: &Architecture,
    parameters: &Parameters,
    inputs: Inputs<'_>,
    device: &Device,
) -> Result<Scores, TrainError> {
    // Learners take labelled examples; here nothing looks at the labels.
    let labels;
    let takes = |what: String| TrainError::Inputs { kind: architecture.kind(), what };
    let examples = match (inputs, architecture.input()) {
        (Inputs::Rows(features), InputKind::Features(width)) => {
            if features.is_empty() || !features.len().is_multiple_of(width) {
                return Err(takes(format!("rows of {width} numbers; these are {} numbers", features.len())));
            }
            labels = vec![0; features.len() / width];
            Examples::Labelled { features, labels: &labels, width }
        }
        (Inputs::Characters(inputs), InputKind::Characters) => {
            let classes = architecture.classes();
            if inputs.is_empty() || inputs.iter().any(|&character| character >= classes) {
                return Err(takes(format!("characters numbered below {classes}, at least one")));
            }
            Examples::Text { inputs, targets: inputs, length: inputs.len() }
        }
        (Inputs::Rows(_), InputKind::Characters) => return Err(takes("characters, not rows of numbers".to_owned())),
        (Inputs::Characters(_), InputKind::Features(_)) => {
            return Err(takes("rows of numbers, not characters".to_owned()));
        }
    };
    check(architecture, parameters, &examples)?;
    let all: Vec<usize> = (0..examples.count()).collect();
    let size = EVALUATION_BATCH.min(all.len());
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, &examples, &plan, device, size)?;
    let mut values = Vec::new();
    for chosen in all.chunks(size) {
        values.extend(learner.logits(&examples, chosen)?);
    }
    Ok(Scores { classes: architecture.classes() as usize, values })
}
