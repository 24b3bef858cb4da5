//! `--attack`: hostile participants, for robust rules.

use std::borrow::Cow;

use client_sdk::Constraints;
use client_sdk::learning::{Adapters, MetricValue, Parameters, Table};
use client_sdk::{Trained, Trainer, TrainerError, TrainingJob};

use crate::trainer::SlottedTrainer;

/// Factor of a malicious participant's update.
const FLIP: f32 = -10.0;

/// A trainer that multiplies its update by -10 if its participant is malicious.
pub(super) struct Suspect {
    pub(super) trainer: SlottedTrainer,
    pub(super) is_hostile: bool,
}

impl Suspect {
    fn bend(&self, model: &Parameters, trained: Trained) -> Result<Trained, TrainerError> {
        if self.is_hostile { flipped(model, trained) } else { Ok(trained) }
    }
}

/// The update multiplied by -10.
fn flipped(model: &Parameters, trained: Trained) -> Result<Trained, TrainerError> {
    let pairs = model.values().iter().zip(trained.parameters.values());
    let values = pairs.map(|(before, after)| before + FLIP * (after - before)).collect();
    let layout = trained.parameters.layout().clone();
    let parameters = Parameters::new(layout, values).map_err(|error| TrainerError::Failed(Box::new(error)))?;
    Ok(Trained { parameters, ..trained })
}

impl Trainer for Suspect {
    fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train(model, job)?;
        self.bend(model, trained)
    }

    fn train_within(
        &mut self,
        model: &Parameters,
        job: &TrainingJob,
        constraints: Constraints<'_>,
    ) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train_within(model, job, constraints)?;
        self.bend(model, trained)
    }

    fn train_adapters(
        &mut self,
        base: &Parameters,
        start: &Parameters,
        job: &TrainingJob,
        adapters: &Adapters,
    ) -> Result<Trained, TrainerError> {
        let trained = self.trainer.train_adapters(base, start, job, adapters)?;
        self.bend(start, trained)
    }

    fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
        self.trainer.base_model(job)
    }

    fn evaluate(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
        self.trainer.evaluate(model, job)
    }

    fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
        self.trainer.table(job)
    }

    fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
        self.trainer.predictions(model, job)
    }

    fn examples(&self) -> u64 {
        self.trainer.examples()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client_sdk::learning::{Layout, TensorSpec};

    use super::*;

    #[test]
    fn a_hostile_participant_sends_ten_times_the_opposite_of_what_it_learned() {
        let tensor = TensorSpec { name: "w".to_owned(), shape: vec![2] };
        let layout = Arc::new(Layout::new(vec![tensor]).unwrap());
        let with = |values: [f32; 2]| Parameters::new(Arc::clone(&layout), values.to_vec()).unwrap();
        let trained = Trained { parameters: with([1.5, 1.0]), examples: 7, metrics: vec![] };
        let bent = flipped(&with([1.0, 2.0]), trained).unwrap();
        assert_eq!((bent.parameters.values(), bent.examples), (&[-4.0, 12.0][..], 7));
    }
}
