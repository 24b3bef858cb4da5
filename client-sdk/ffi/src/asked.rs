//! What a participant is asked about itself: the SDK's answers for apps in other languages, and those with types of this library.

use client_sdk::participant::machine::Machine;
pub(crate) use client_sdk::runner::asked::{id, names, privacy_lifetime, privacy_spent, refusals};

use crate::conditions::{DataUse, HeldUp};

pub(crate) fn held_up(machine: &Machine) -> Option<HeldUp> {
    machine.held_up().map(Into::into)
}

pub(crate) fn data_use(machine: &Machine) -> DataUse {
    machine.data_use().into()
}
