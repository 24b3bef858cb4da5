//! What a participant is asked about itself, in the forms that apps in other languages take: of one that has a thread of its own, and of
//! one that its app drives.

use serde_json::Value;

use crate::participant::machine::Machine;
use crate::participant::{KeptModel, Refusal};
use crate::privacy::PrivacySpent;

/// Its id, once it is enrolled.
#[must_use]
pub fn id(machine: &Machine) -> Option<String> {
    machine.identity().map(|identity| identity.certified.participant.to_string())
}

/// What was spent on each private task, as a JSON array.
#[must_use]
pub fn privacy_spent(machine: &Machine) -> String {
    Value::from_iter(machine.privacy_spent().iter().map(PrivacySpent::data)).to_string()
}

/// What was spent on all tasks together, and the limit on it, as a JSON object.
#[must_use]
pub fn privacy_lifetime(machine: &Machine) -> String {
    machine.privacy_lifetime().data().to_string()
}

/// What was refused, and why, the latest last, as a JSON array of [`Refusal::data`].
#[must_use]
pub fn refusals(machine: &Machine) -> String {
    Value::from_iter(machine.refusals().iter().map(Refusal::data)).to_string()
}

/// Names of the tasks that there is a model of, in the order of the models.
#[must_use]
pub fn names(kept: Vec<KeptModel>) -> Vec<String> {
    kept.into_iter().map(|kept| kept.name).collect()
}
