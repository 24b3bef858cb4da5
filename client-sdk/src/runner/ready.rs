//! The ready models for apps in other languages: the app gives rows, and the task says which model it is.

use learning::{MetricValue, Parameters};

use super::manner::Manner;
use super::update::UpdateError;
use crate::model_trainer::{Dataset, ModelTrainer};
use crate::train::Device;
use crate::trainer::{Purpose, Trained, Trainer as _, TrainerError, TrainingJob};

/// Rows of `width` numbers, row after row, each with a class.
///
/// # Errors
/// [`UpdateError::Rows`] if there is none, or the numbers are not as many.
pub fn labelled(features: Vec<f32>, labels: Vec<u32>, width: usize) -> Result<Dataset, UpdateError> {
    if labels.is_empty() || labels.len().checked_mul(width) != Some(features.len()) {
        return Err(UpdateError::Rows { numbers: features.len(), rows: labels.len(), width });
    }
    Ok(Dataset::Labelled { features, labels, width })
}

/// Trains the job's ready model on one core as its plan and `manner` say, beginning with `parameters`. With `held_out`, which are none of
/// `rows`, a job of the shared model also says what the model that it begins with is worth: `loss` and `accuracy`.
///
/// # Errors
/// [`TrainerError::Paused`] if it saved a checkpoint and rests: the job comes again. Others if the examples do not fit the model, or
/// the task names no ready model.
pub fn train_ready(
    rows: Dataset,
    held_out: Option<Dataset>,
    parameters: &Parameters,
    job: &TrainingJob,
    manner: &Manner,
) -> Result<Trained, TrainerError> {
    let nothing = Dataset::Labelled { features: Vec::new(), labels: Vec::new(), width: 1 };
    let mut trainer = ModelTrainer::new(rows, held_out.unwrap_or(nothing), Device::Cpu);
    // Before it trains, so that rows which do not fit are told at once; after a pause not again in each slice, but at the end.
    let is_fresh = !job.checkpoints.has_state();
    let mut measured = if is_fresh { measure(&mut trainer, parameters, job, manner)? } else { Vec::new() };
    let mut trained = manner.train(&mut trainer, parameters, job)?;
    if !is_fresh {
        measured = measure(&mut trainer, parameters, job, manner)?;
    }
    trained.metrics.extend(measured);
    Ok(trained)
}

/// What the shared model that a job begins with is worth on the trainer's held-out rows; nothing without any, and of another model.
fn measure(
    trainer: &mut ModelTrainer,
    parameters: &Parameters,
    job: &TrainingJob,
    manner: &Manner,
) -> Result<Vec<(String, MetricValue)>, TrainerError> {
    match job.purpose {
        Purpose::Shared => {
            let model = manner.model(parameters).map_err(TrainerError::failed)?;
            trainer.evaluate(&model, job)
        }
        Purpose::Own => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests;
