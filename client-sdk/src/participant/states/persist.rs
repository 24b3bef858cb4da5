//! Records are written before anything that depends on them is sent.

use std::sync::Arc;

use super::action::Action;
use super::state::{Persist, State};
use crate::journal::JournalError;
use crate::participant::journal::record::Record;

impl Persist {
    pub(in crate::participant) fn new(records: Vec<Record>, then: State) -> Self {
        Self { records: records.into(), then: Box::new(then) }
    }

    pub(in crate::participant) fn action(&self) -> Action {
        Action::Persist(Arc::clone(&self.records))
    }

    pub(in crate::participant) fn persisted(self, result: Result<(), JournalError>) -> State {
        match result {
            Ok(()) => *self.then,
            Err(error) => State::Finished(Err(error.into())),
        }
    }
}
