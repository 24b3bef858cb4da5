//! What a participant is told that decides its update.

use task_spec::{ModelSpec, TrainingPlan};
use wire::Digest;
use wire::participant::{Assignment, Encoding, PrivacyTerms};

use crate::digest::{application_digest, round_digest, training_digest};

/// What decides an update besides data, version and chance.
#[derive(Clone, Copy, Debug)]
pub struct AssignmentTerms<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// The tensors, and which of them stay local.
    pub model: &'a ModelSpec,
    /// How the model is trained, with the μ of the round.
    pub training: &'a TrainingPlan,
    /// How the update is encoded.
    pub encoding: &'a Encoding,
    /// Names of the metrics that travel, in their order.
    pub metrics: &'a [String],
    /// What a privacy mechanism promises in the round.
    pub privacy: Option<&'a PrivacyTerms>,
}

impl<'a> From<&'a Assignment> for AssignmentTerms<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        let Assignment { task_name, model, training, encoding, metrics, privacy, .. } = assignment;
        Self { task: task_name, model, training, encoding, metrics, privacy: privacy.as_ref() }
    }
}

impl AssignmentTerms<'_> {
    /// [`application_digest`] of it.
    #[must_use]
    pub fn application(&self) -> Digest {
        application_digest(self.encoding, self.metrics, self.privacy)
    }

    /// [`training_digest`] of it.
    #[must_use]
    pub fn training(&self) -> Digest {
        training_digest(&self.application(), self.task, self.model, self.training)
    }

    /// [`round_digest`] of it, in a round that starts from this version.
    #[must_use]
    pub fn in_round(&self, version: u32, earlier: &[Digest]) -> Digest {
        round_digest(&self.training(), version, earlier)
    }
}
