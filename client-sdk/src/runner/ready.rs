//! The ready models for apps in other languages: the app gives rows, and the task says which model it is.

use learning::Parameters;

use super::update::UpdateError;
use crate::model_trainer::{Dataset, ModelTrainer};
use crate::train::Device;
use crate::trainer::{Trained, Trainer as _, TrainerError, TrainingJob};

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

/// Trains the job's ready model on one core as its plan says, beginning with `model`. It evaluates nothing.
///
/// # Errors
/// [`TrainerError::Paused`] if it saved a checkpoint and rests: the job comes again. Others if the examples do not fit the model, or
/// the task names no ready model.
pub fn train_ready(rows: Dataset, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
    let nothing = Dataset::Labelled { features: Vec::new(), labels: Vec::new(), width: 1 };
    ModelTrainer::new(rows, nothing, Device::Cpu).train(model, job)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_none_are_refused() {
        let made = |numbers, rows, width| labelled(vec![0.0; numbers], vec![0; rows], width);
        assert!(made(6, 2, 3).is_ok());
        for (numbers, rows, width) in [(0, 0, 3), (5, 2, 3), (6, 2, 2), (6, 2, usize::MAX), (6, 2, 0)] {
            assert_eq!(made(numbers, rows, width), Err(UpdateError::Rows { numbers, rows, width }));
        }
        let told = made(5, 2, 3).unwrap_err().to_string();
        assert_eq!(told, "5 numbers and 2 classes are no 2 rows of 3 numbers, at least one");
    }
}
