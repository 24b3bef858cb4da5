//! FedPer (Arivazhagan et al. 2019): base layers are shared, personal layers stay local, both are trained jointly.

use std::sync::Arc;

use learning::{InitError, Parameters, Partition, WrongLayout, initialize};
use task_spec::ModelSpec;

use super::{LocalError, LocalResult, LocalRound, Method, PersonalTensors};

/// A model split by the task's patterns.
#[derive(Clone, Debug)]
pub struct FedPer {
    partition: Arc<Partition>,
}

impl FedPer {
    /// Of a model that the task's patterns part like this.
    #[must_use]
    pub fn new(partition: Arc<Partition>) -> Self {
        Self { partition }
    }

    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether each tensor of the whole model stays local, in layout order.
    pub(super) fn is_personal(&self) -> Vec<bool> {
        let shared = self.partition.shared().tensors();
        self.partition.whole().tensors().iter().map(|tensor| !shared.contains(tensor)).collect()
    }

    /// The model at the start of a round: the received part joined with the stored one.
    pub(super) fn whole(&self, round: &LocalRound<'_>) -> Result<Parameters, LocalError> {
        let kept = round.kept.ok_or(WrongLayout)?;
        Ok(self.join(round.received, kept)?)
    }

    /// The initial personal part, before this device has ever trained, drawn from the task's seed.
    ///
    /// # Errors
    /// [`InitError`] for invalid bounds.
    pub fn initial(&self, model: &ModelSpec) -> Result<PersonalTensors, InitError> {
        let whole = self.partition.whole();
        let parameters = initialize(whole.clone(), &model.tensors, model.seed)?;
        let (_, personal) = self.partition.split(&parameters).map_err(|_| InitError::Mismatch(0))?;
        Ok(PersonalTensors::new(personal))
    }

    /// The whole model to train: the received part joined with the local one.
    ///
    /// # Errors
    /// [`WrongLayout`] if either is not this model's part.
    pub fn join(&self, shared: &Parameters, personal: &PersonalTensors) -> Result<Parameters, WrongLayout> {
        self.partition.join(shared, &personal.0)
    }

    /// Splits the trained model: the part for the pipeline, and the part for the journal.
    ///
    /// # Errors
    /// [`WrongLayout`] if it is another model.
    pub fn split(&self, trained: &Parameters) -> Result<(Parameters, PersonalTensors), WrongLayout> {
        let (shared, personal) = self.partition.split(trained)?;
        Ok((shared, PersonalTensors::new(personal)))
    }
}

impl Method for FedPer {
    fn run(&self, round: &mut LocalRound<'_>) -> Result<LocalResult, LocalError> {
        let model = self.whole(round)?;
        let evaluated = round.evaluate(&model)?;
        let mut update = round.train(&model)?;
        let own = round.own(&update.parameters)?;
        let (shared, personal) = self.split(&update.parameters)?;
        update.parameters = shared;
        Ok(LocalResult { update, personal: Some(personal), evaluated, own })
    }
}

#[cfg(test)]
mod tests {
    use recipe::Tensors;
    use task_spec::{Initial, TensorDeclaration};

    use super::*;

    fn model() -> ModelSpec {
        let tensor = |name: &str, shape: u64| TensorDeclaration {
            name: name.into(),
            shape: vec![shape],
            init: Initial::Uniform { bound: 0.5 },
        };
        ModelSpec {
            architecture: None,
            graph: None,
            loss: None,
            batch_norm: None,
            table: None,
            tensors: vec![tensor("base", 3), tensor("head", 2)],
            personal: vec!["head*".into()],
            seed: 9,
            initial: None,
        }
    }

    fn parted() -> FedPer {
        FedPer::new(Tensors::of_model(&model(), None, None).unwrap().partition.unwrap())
    }

    #[test]
    fn the_personal_part_survives_a_journey_through_the_journal() {
        let fed_per = parted();
        let whole = fed_per.partition().whole();
        let trained = Parameters::new(Arc::clone(whole), vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let (shared, personal) = fed_per.split(&trained).unwrap();
        assert_eq!(shared.values(), [1.0, 2.0, 3.0]);
        let record = personal.to_record().unwrap();
        let back = PersonalTensors::from_record(&record, fed_per.partition().personal()).unwrap();
        assert_eq!(fed_per.join(&shared, &back).unwrap(), trained);
        assert!(PersonalTensors::from_record(&record, fed_per.partition().shared()).is_err());
    }

    #[test]
    fn the_first_personal_part_follows_the_task_seed() {
        let fed_per = parted();
        let shared = Parameters::zeros(Arc::clone(fed_per.partition().shared()));
        let first = fed_per.join(&shared, &fed_per.initial(&model()).unwrap()).unwrap();
        let again = fed_per.join(&shared, &fed_per.initial(&model()).unwrap()).unwrap();
        assert_eq!(first, again);
        assert!(first.tensor(1).iter().all(|value| *value != 0.0 && value.abs() <= 0.5));
    }
}
