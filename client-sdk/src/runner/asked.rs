//! Status queries for the language bindings, for participants with their own thread and for those that the app drives.

use serde_json::Value;

use crate::participant::machine::Machine;
use crate::participant::{KeptModel, Refusal};
use crate::privacy::PrivacySpent;

/// The participant's id, once it is enrolled.
#[must_use]
pub fn id(machine: &Machine) -> Option<String> {
    machine.identity().map(|identity| identity.certified.participant.to_string())
}

/// The privacy spent on each private task, as a JSON array.
#[must_use]
pub fn privacy_spent(machine: &Machine) -> String {
    Value::from_iter(machine.privacy_spent().iter().map(PrivacySpent::data)).to_string()
}

/// The total privacy spent and its limit, as a JSON object.
#[must_use]
pub fn privacy_lifetime(machine: &Machine) -> String {
    machine.privacy_lifetime().data().to_string()
}

/// Refusals with reasons, oldest first, as a JSON array of [`Refusal::data`].
#[must_use]
pub fn refusals(machine: &Machine) -> String {
    Value::from_iter(machine.refusals().iter().map(Refusal::data)).to_string()
}

/// Names of the tasks with a model, in the order of the models.
#[must_use]
pub fn names(kept: Vec<KeptModel>) -> Vec<String> {
    kept.into_iter().map(|kept| kept.name).collect()
}
