//! The terms of an assignment on which an update depends.

use task_spec::{ModelSpec, TrainingPlan};
use wire::Digest;
use wire::participant::{Assignment, Encoding, FinalModel, PrivacyTerms};

use crate::digest::{application_digest, round_digest, task_digest, training_digest};

/// All inputs of an update except data, model version and randomness.
#[derive(Clone, Copy, Debug)]
pub struct AssignmentTerms<'a> {
    /// Name of the task.
    pub task: &'a str,
    /// The tensors, with the subset that stays local.
    pub model: &'a ModelSpec,
    /// The training plan, with the round's μ.
    pub training: &'a TrainingPlan,
    /// The encoding of updates.
    pub encoding: &'a Encoding,
    /// Names of the sent metrics, in order.
    pub metrics: &'a [String],
    /// The round's privacy terms, if the task is private.
    pub privacy: Option<&'a PrivacyTerms>,
}

impl<'a> From<&'a Assignment> for AssignmentTerms<'a> {
    fn from(assignment: &'a Assignment) -> Self {
        let Assignment { task_name, model, training, encoding, metrics, privacy, .. } = assignment;
        Self { task: task_name, model, training, encoding, metrics, privacy: privacy.as_ref() }
    }
}

impl<'a> From<&'a FinalModel> for AssignmentTerms<'a> {
    fn from(told: &'a FinalModel) -> Self {
        let FinalModel { task_name, model, training, encoding, metrics, privacy, .. } = told;
        Self { task: task_name, model, training, encoding, metrics, privacy: privacy.as_ref() }
    }
}

impl AssignmentTerms<'_> {
    /// [`application_digest`] of these terms.
    #[must_use]
    pub fn application(&self) -> Digest {
        application_digest(self.encoding, self.metrics, self.privacy)
    }

    /// [`training_digest`] of these terms.
    #[must_use]
    pub fn training(&self) -> Digest {
        training_digest(&self.application(), self.task, self.model, self.training)
    }

    /// [`task_digest`] of these terms.
    #[must_use]
    pub fn in_every_round(&self) -> Digest {
        task_digest(&self.application(), self.task, self.model, self.training)
    }

    /// [`round_digest`] of these terms in a round based on this version.
    #[must_use]
    pub fn in_round(&self, version: u32, earlier: &[Digest]) -> Digest {
        round_digest(&self.training(), version, earlier)
    }
}
