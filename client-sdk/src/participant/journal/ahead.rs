//! Training ahead of rounds: a participant trains early, keeps the finished update in its journal and reports it with its check-ins. A
//! round that requests the update aggregates it without further training. The participant deletes the update once a masked input is made
//! of it.

use wire::participant::TrainingReport;
use wire::{Attempt, Digest, TaskId};

use super::record::Record;
use super::snapshot::{self, HeldRecord, HeldUpdateId, LocalState};
use crate::journal::JournalError;

/// State of training ahead of rounds.
#[derive(Default)]
pub(in crate::participant) struct Ahead {
    /// The finished update in the journal.
    pub(in crate::participant) held: Option<HeldUpdate>,
    /// The last training without an update: it failed or was abandoned, or its update was sent or discarded.
    pub(in crate::participant) gone: Option<(TaskId, u32)>,
    /// The training in progress.
    pub(in crate::participant) under_way: Option<Attempt>,
}

/// What is known of a finished update without its values.
pub(in crate::participant) struct HeldUpdate {
    pub(in crate::participant) id: HeldUpdateId,
    /// Local state of the same training.
    pub(in crate::participant) local_state: LocalState,
    /// Digest of the record of the model that the update is made of, if the trainer is a region.
    pub(in crate::participant) below: Option<Digest>,
}

/// Why an update trained ahead is not sent to a round that requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::participant) enum UpdateMismatch {
    #[error("the round wants an update that this device does not hold")]
    NotHeld,
    #[error("the update was not trained as the round says")]
    OtherTraining,
    #[error(
        "the update was trained from other bytes of version {version} than the round's members agree on; with such bytes a \
         coordinator can make all other updates small and read this one in the sum"
    )]
    OtherBase { version: u32 },
}

impl Ahead {
    /// Restores the state from the journal's record.
    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let record = record.map(HeldRecord::decode).transpose()?.flatten();
        let held = record.map(|HeldRecord { held: id, local_state, below, .. }| HeldUpdate { id, local_state, below });
        Ok(Self { held, ..Self::default() })
    }

    /// The report for the next check-in.
    pub(in crate::participant) fn report(&self) -> Option<TrainingReport> {
        let held = self.held.as_ref().map(|held| held.id);
        let held = held.map(|HeldUpdateId { task, serial, .. }| TrainingReport { task, serial, ready: true });
        held.or_else(|| self.gone.map(|(task, serial)| TrainingReport { task, serial, ready: false }))
    }

    /// Why the requested update cannot be sent; `None` if it is held and was trained as the round's members agree.
    pub(in crate::participant) fn refusal(&self, wanted: HeldUpdateId) -> Option<UpdateMismatch> {
        match self.held.as_ref().map(|held| held.id) {
            Some(held) if held == wanted => None,
            Some(held) if (HeldUpdateId { base: wanted.base, ..held }) == wanted => {
                Some(UpdateMismatch::OtherBase { version: held.version })
            }
            Some(held) if (held.task, held.serial, held.version) == (wanted.task, wanted.serial, wanted.version) => {
                Some(UpdateMismatch::OtherTraining)
            }
            _ => Some(UpdateMismatch::NotHeld),
        }
    }

    /// Whether `place` was a training rather than a round; if so, it ends without an update.
    pub(in crate::participant) fn end(&mut self, place: Attempt) -> bool {
        let is_training = self.under_way.take_if(|under_way| *under_way == place).is_some();
        if is_training {
            self.gone = Some((place.task, place.attempt));
        }
        is_training
    }

    /// The local state that takes effect whether or not the update is aggregated, to be written before the update is
    /// deleted.
    pub(in crate::participant) fn local_copies(&self) -> Vec<Record> {
        self.held.as_ref().map(|held| held.local_state.copies(held.id.task)).unwrap_or_default()
    }

    /// Releases the update, if there is one: returns the record to be written before an input is made of it, and the update.
    pub(in crate::participant) fn let_go(&mut self) -> Result<Option<(Record, HeldUpdate)>, JournalError> {
        let Some(held) = self.held.take() else { return Ok(None) };
        self.gone = Some((held.id.task, held.id.serial));
        let bytes = snapshot::encode_nothing_held()?;
        Ok(Some((Record::new(snapshot::UPDATE.to_owned(), bytes), held)))
    }
}
