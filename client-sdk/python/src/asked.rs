//! What a participant is asked about itself, whether it has a thread of its own or its caller drives it.

use client_sdk::participant::machine::Machine;
use client_sdk::{KeptModel, PrivacySpent, Refusal};
use serde_json::Value;

pub(crate) fn id(machine: &Machine) -> Option<String> {
    machine.identity().map(|identity| identity.certified.participant.to_string())
}

/// As JSON.
pub(crate) fn privacy_spent(machine: &Machine) -> String {
    Value::from_iter(machine.privacy_spent().iter().map(PrivacySpent::data)).to_string()
}

/// As JSON.
pub(crate) fn privacy_lifetime(machine: &Machine) -> String {
    machine.privacy_lifetime().data().to_string()
}

/// As JSON.
pub(crate) fn refusals(machine: &Machine) -> String {
    Value::from_iter(machine.refusals().iter().map(Refusal::data)).to_string()
}

/// Name and description of the condition that holds it up.
pub(crate) fn held_up(machine: &Machine) -> Option<(&'static str, String)> {
    machine.held_up().map(|unmet| (unmet.name(), unmet.to_string()))
}

/// What was sent and received: today, then ever.
pub(crate) fn data_use(machine: &Machine) -> [u64; 4] {
    let used = machine.data_use();
    [used.today.sent, used.today.received, used.total.sent, used.total.received]
}

/// Names of the tasks that there is a model of.
pub(crate) fn names(kept: Vec<KeptModel>) -> Vec<String> {
    kept.into_iter().map(|kept| kept.name).collect()
}
