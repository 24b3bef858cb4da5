//! The part of a trainer that is the same for every way of asking the app.

/// Methods of a [`Trainer`](crate::trainer::Trainer) with `capabilities` and a method `ask`, which hands a job to the app and returns the
/// answer. It does not evaluate models: metrics in an answer count as
/// [`Answer::finish`](crate::runner::Answer::finish) describes.
macro_rules! trainer_that_asks {
    () => {
        fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
            self.ask(model, job, JobConstraints::Free)?.trained()
        }

        fn train_within(
            &mut self,
            model: &Parameters,
            job: &TrainingJob,
            constraints: Constraints<'_>,
        ) -> Result<Trained, TrainerError> {
            let constraints = self.capabilities.manner_within(constraints)?;
            self.ask(model, job, constraints)?.trained()
        }

        fn train_adapters(
            &mut self,
            base: &Parameters,
            start: &Parameters,
            job: &TrainingJob,
            adapters: &Adapters,
        ) -> Result<Trained, TrainerError> {
            let constraints = self.capabilities.manner_of_adapters(base, adapters)?;
            self.ask(start, job, constraints)?.trained()
        }

        fn base_model(&mut self, job: &TrainingJob) -> Result<Parameters, TrainerError> {
            self.capabilities.base_model(job)
        }

        fn table(&mut self, job: &TrainingJob) -> Result<Cow<'_, Table>, TrainerError> {
            let constraints = self.capabilities.manner_of_analysis(job)?;
            self.ask(&no_model(), job, constraints)?.rows().map(Cow::Owned)
        }

        fn predictions(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Table, TrainerError> {
            let constraints = self.capabilities.manner_of_analysis(job)?;
            self.ask(model, job, constraints)?.rows()
        }

        fn evaluate(&mut self, _: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
            Ok(Vec::new())
        }

        fn pause_grace(&self) -> Duration {
            PAUSE_GRACE
        }

        fn measures_as_it_trains(&self) -> bool {
            true
        }
    };
}

pub(in crate::runner) use trainer_that_asks;
