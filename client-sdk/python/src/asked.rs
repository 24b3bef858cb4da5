//! Status queries for apps in other languages, and their results in Python's types.

use client_sdk::participant::machine::Machine;
pub(crate) use client_sdk::runner::asked::{id, names, privacy_lifetime, privacy_spent, refusals};

/// Name and description of the condition that holds it up.
pub(crate) fn held_up(machine: &Machine) -> Option<(&'static str, String)> {
    machine.held_up().map(|unmet| (unmet.name(), unmet.to_string()))
}

/// What was sent and received: today, then ever.
pub(crate) fn data_use(machine: &Machine) -> [u64; 4] {
    let used = machine.data_use();
    [used.today.sent, used.today.received, used.total.sent, used.total.received]
}
