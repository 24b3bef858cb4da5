//! Predictions of a model, as opposed to its training.

use std::sync::Arc;

use learning::Parameters;
use task_spec::TrainingPlan;

use crate::models::{Architecture, InputKind};
use crate::train::device::Device;
use crate::train::error::TrainError;
use crate::train::examples::Examples;
use crate::train::learner::Learner;
use crate::train::{EVALUATION_BATCH, check, check_examples, chunk, cpu, learner};

/// Inputs of a prediction.
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
    let mut labels = Vec::new();
    let examples = examples(architecture, inputs, &mut labels)?;
    check(architecture, parameters, &examples)?;
    let size = chunk(architecture, &examples, EVALUATION_BATCH.min(examples.count()), graph::MAX_MEMORY)?;
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, &examples, &plan, device, size)?;
    score_all(architecture, &mut *learner, &examples, size)
}

/// A model that one thread scores repeatedly. On the CPU, the preparation of [`scores`] is kept between calls; to
/// another device the parameters are copied in each call.
pub struct Predictor {
    device: Device,
    architecture: Architecture,
    parameters: Arc<Parameters>,
    batch: usize,
    /// For examples with this many predictions each.
    prepared: Option<(usize, Box<dyn Learner + Send>)>,
}

impl Predictor {
    /// A model whose rows are computed `batch` at a time on the CPU, at least one; sequences come one at a time.
    ///
    /// # Errors
    /// [`TrainError`]: parameters of another model.
    pub fn new(
        architecture: Architecture,
        parameters: Arc<Parameters>,
        batch: usize,
        device: Device,
    ) -> Result<Self, TrainError> {
        if architecture.layout()? != **parameters.layout() {
            return Err(TrainError::OtherModel { kind: architecture.kind() });
        }
        Ok(Self { device, architecture, parameters, batch: batch.max(1), prepared: None })
    }

    /// The same as [`scores`] gives, to rounding.
    ///
    /// # Errors
    /// [`TrainError`]: inputs that do not fit the model, a device failure.
    pub fn scores(&mut self, inputs: Inputs<'_>) -> Result<Scores, TrainError> {
        match &self.device {
            Device::Cpu => self.on_cpu(inputs),
            #[cfg(feature = "candle")]
            Device::Candle(_) => scores(&self.architecture, &self.parameters, inputs, &self.device),
        }
    }

    fn on_cpu(&mut self, inputs: Inputs<'_>) -> Result<Scores, TrainError> {
        let mut labels = Vec::new();
        let examples = examples(&self.architecture, inputs, &mut labels)?;
        check_examples(&self.architecture, &examples)?;
        let length = examples.length();
        let batch = match inputs {
            Inputs::Rows(_) => self.batch,
            // The caller chooses the length, so memory is for one sequence only.
            Inputs::Characters(_) => 1,
        };
        if self.prepared.as_ref().is_none_or(|(of, _)| *of != length) {
            let (plan, values) = (TrainingPlan::default(), self.parameters.values());
            self.prepared = Some((length, cpu::learner(&self.architecture, values, &plan, &examples, batch)));
        }
        match &mut self.prepared {
            Some((_, learner)) => score_all(&self.architecture, &mut **learner, &examples, batch),
            None => unreachable!("it was prepared above"),
        }
    }
}

/// Inputs in the form of labelled examples, with placeholder labels.
fn examples<'a>(
    architecture: &Architecture,
    inputs: Inputs<'a>,
    labels: &'a mut Vec<u32>,
) -> Result<Examples<'a>, TrainError> {
    let takes = |what: String| TrainError::Inputs { kind: architecture.kind(), what };
    match (inputs, architecture.input()) {
        (Inputs::Rows(features), InputKind::Features(width)) => {
            if features.is_empty() || !features.len().is_multiple_of(width) {
                return Err(takes(format!("rows of {width} numbers; these are {} numbers", features.len())));
            }
            labels.resize(features.len() / width, 0);
            Ok(Examples::Labelled { features, labels, width })
        }
        (Inputs::Characters(inputs), InputKind::Characters) => {
            let classes = architecture.classes();
            if inputs.is_empty() || inputs.iter().any(|&character| character >= classes) {
                return Err(takes(format!("characters numbered below {classes}, at least one")));
            }
            Ok(Examples::Text { inputs, targets: inputs, length: inputs.len() })
        }
        (Inputs::Rows(_), InputKind::Characters) => Err(takes("characters, not rows of numbers".to_owned())),
        (Inputs::Characters(_), InputKind::Features(_)) => Err(takes("rows of numbers, not characters".to_owned())),
        (_, InputKind::Tensors) => Err(takes("its inputs by name, not rows or characters".to_owned())),
    }
}

/// The scores of all examples, at most `size` at a time.
fn score_all(
    architecture: &Architecture,
    learner: &mut dyn Learner,
    examples: &Examples<'_>,
    size: usize,
) -> Result<Scores, TrainError> {
    let all: Vec<usize> = (0..examples.count()).collect();
    let mut values = Vec::new();
    for chosen in all.chunks(size) {
        values.extend(learner.logits(examples, chosen)?);
    }
    Ok(Scores { classes: architecture.classes() as usize, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Gru, Mlp};

    #[test]
    fn a_predictor_gives_the_scores_of_the_model_however_often_and_in_what_batches() {
        let model = Architecture::Mlp(Mlp { inputs: 5, hidden: vec![7], classes: 3 });
        let parameters = Arc::new(model.initial(3).unwrap());
        let rows: Vec<f32> = (0_u8..50).map(|number| f32::from(number) / 50.0).collect();
        let all = scores(&model, &parameters, Inputs::Rows(&rows), &Device::Cpu).unwrap();
        let mut predictor = Predictor::new(model.clone(), Arc::clone(&parameters), 4, Device::Cpu).unwrap();
        for _ in 0..2 {
            assert_eq!(predictor.scores(Inputs::Rows(&rows)).unwrap().classes(), 3);
            let alone: Vec<_> =
                rows.chunks(5).flat_map(|row| predictor.scores(Inputs::Rows(row)).unwrap().values).collect();
            for (one, of_all) in alone.iter().zip(all.values()) {
                assert!((one - of_all).abs() <= 1e-6, "{one} and {of_all}");
            }
        }
        assert!(predictor.scores(Inputs::Rows(&[0.0; 4])).is_err());
        assert!(Predictor::new(Architecture::Mlp(Mlp::default()), parameters, 4, Device::Cpu).is_err());
    }

    #[cfg(feature = "candle")]
    #[test]
    fn a_predictor_gives_the_scores_of_the_model_on_candles_devices() {
        let device = Device::Candle(candle_core::Device::Cpu);
        let mlp = Architecture::Mlp(Mlp { inputs: 5, hidden: vec![7], classes: 3 });
        let rows: Vec<f32> = (0_u8..50).map(|number| f32::from(number) / 50.0).collect();
        for (model, inputs) in [
            (mlp, Inputs::Rows(&rows)),
            (Architecture::Gru(Gru::with_vocabulary(5)), Inputs::Characters(&[0, 1, 2, 4])),
        ] {
            let parameters = Arc::new(model.initial(3).unwrap());
            let mut predictor = Predictor::new(model.clone(), Arc::clone(&parameters), 4, device.clone()).unwrap();
            let expected = scores(&model, &parameters, inputs, &Device::Cpu).unwrap();
            for _ in 0..2 {
                let said = predictor.scores(inputs).unwrap();
                assert_eq!(said.values().len(), expected.values().len());
                for (one, other) in said.values().iter().zip(expected.values()) {
                    assert!((one - other).abs() <= 1e-5, "{one} and {other}");
                }
            }
        }
        let parameters = Arc::new(Architecture::Gru(Gru::with_vocabulary(5)).initial(3).unwrap());
        let mut predictor = Predictor::new(Architecture::Gru(Gru::with_vocabulary(5)), parameters, 4, device).unwrap();
        assert!(predictor.scores(Inputs::Rows(&rows)).is_err());
    }

    #[test]
    fn a_predictor_takes_sequences_of_any_length() {
        let model = Architecture::Gru(Gru::with_vocabulary(5));
        let parameters = Arc::new(model.initial(3).unwrap());
        let mut predictor = Predictor::new(model.clone(), Arc::clone(&parameters), 4, Device::Cpu).unwrap();
        for text in [&[0, 1, 2][..], &[4], &[1, 1, 2, 3], &[0, 1, 2]] {
            let expected = scores(&model, &parameters, Inputs::Characters(text), &Device::Cpu).unwrap();
            assert_eq!(predictor.scores(Inputs::Characters(text)).unwrap(), expected);
        }
    }

    #[test]
    fn a_predictor_prepares_for_one_sequence_whatever_the_batch_of_rows() {
        let model = Architecture::Gru(Gru::with_vocabulary(5));
        let parameters = Arc::new(model.initial(3).unwrap());
        // Memory for so many sequences is nowhere.
        let mut predictor = Predictor::new(model, parameters, usize::MAX / 2, Device::Cpu).unwrap();
        assert_eq!(predictor.scores(Inputs::Characters(&[0, 1, 2])).unwrap().rows().len(), 3);
    }
}
