//! Removes the checkpoint of a training from the journal once its round is over.

use crate::journal::JournalError;
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::State;
use crate::participant::task::work::RoundWork;

impl Core {
    /// Continues with `then` once the journal is free of checkpoints; `work` is the training that is over, if one was.
    pub(in crate::participant) fn without_checkpoint(&mut self, work: Option<&RoundWork>, then: State) -> State {
        match self.no_checkpoint(work) {
            Ok(None) => then,
            Ok(Some(record)) => persist(Ok(vec![record]), then),
            Err(error) => State::Finished(Err(error.into())),
        }
    }

    /// The record that removes the checkpoint from the journal, if there may be one.
    pub(super) fn no_checkpoint(&mut self, work: Option<&RoundWork>) -> Result<Option<Record>, JournalError> {
        self.unfinished = None;
        let is_written = std::mem::take(&mut self.has_checkpoint) || work.is_some_and(RoundWork::has_checkpoint);
        if !is_written {
            return Ok(None);
        }
        Ok(Some(Record::new(snapshot::TRAINING.to_owned(), snapshot::encode_no_training()?)))
    }
}
