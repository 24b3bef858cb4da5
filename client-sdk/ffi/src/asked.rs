//! Status queries for apps in other languages, and the types of this library that they return.

use client_sdk::participant::machine::Machine;
pub(crate) use client_sdk::runner::asked::{id, names, privacy_lifetime, privacy_spent, refusals};

use crate::app::conditions::{DataUse, HeldUp};

pub(crate) fn held_up(machine: &Machine) -> Option<HeldUp> {
    machine.held_up().map(Into::into)
}

pub(crate) fn data_use(machine: &Machine) -> DataUse {
    machine.data_use().into()
}
