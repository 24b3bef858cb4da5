//! What a participant is asked about itself, whether it has a thread of its own or the app drives it.

use client_sdk::participant::machine::Machine;
use client_sdk::{KeptModel, PrivacySpent, Refusal};
use serde_json::Value;

use crate::conditions::{DataUse, HeldUp};

pub(crate) fn id(machine: &Machine) -> Option<String> {
    machine.identity().map(|identity| identity.certified.participant.to_string())
}

pub(crate) fn privacy_spent(machine: &Machine) -> String {
    Value::from_iter(machine.privacy_spent().iter().map(PrivacySpent::data)).to_string()
}

pub(crate) fn privacy_lifetime(machine: &Machine) -> String {
    machine.privacy_lifetime().data().to_string()
}

pub(crate) fn refusals(machine: &Machine) -> String {
    Value::from_iter(machine.refusals().iter().map(Refusal::data)).to_string()
}

pub(crate) fn held_up(machine: &Machine) -> Option<HeldUp> {
    machine.held_up().map(Into::into)
}

pub(crate) fn data_use(machine: &Machine) -> DataUse {
    machine.data_use().into()
}

/// Names of the tasks that there is a model of.
pub(crate) fn names(kept: Vec<KeptModel>) -> Vec<String> {
    kept.into_iter().map(|kept| kept.name).collect()
}
