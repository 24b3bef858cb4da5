//! Training ahead of rounds: a participant is told to train now, keeps the finished update in its journal, and says with its
//! check-ins that it holds one. A round that wants it aggregates it without training; until a masked input was made of it, it
//! is kept, and after that it is gone.

use wire::participant::TrainingReport;
use wire::{Attempt, TaskId};

use super::record::Record;
use super::snapshot::{self, HeldRecord, HeldUpdateId, LocalState};
use crate::journal::JournalError;

/// What a participant knows of trainings ahead of rounds.
#[derive(Default)]
pub(super) struct Ahead {
    /// The update that waits in the journal, and what stays at home of the same training.
    pub(super) held: Option<(HeldUpdateId, LocalState)>,
    /// The last training of which there is no update: it failed, was given up, or its update was sent or thrown away.
    pub(super) gone: Option<(TaskId, u32)>,
    /// The training that is under way.
    pub(super) under_way: Option<Attempt>,
}

/// Why a round does not get an update that was trained ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UpdateMismatch {
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
    /// As the journal has it.
    pub(super) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let record = record.map(HeldRecord::decode).transpose()?.flatten();
        Ok(Self { held: record.map(|record| (record.held, record.local_state)), ..Self::default() })
    }

    /// What to check in with.
    pub(super) fn report(&self) -> Option<TrainingReport> {
        let held = self.held.as_ref().map(|(held, _)| *held);
        let held = held.map(|HeldUpdateId { task, serial, .. }| TrainingReport { task, serial, ready: true });
        held.or_else(|| self.gone.map(|(task, serial)| TrainingReport { task, serial, ready: false }))
    }

    /// Why the update that a round wants is not given to it; nothing if it waits, and was trained as the round's members agree.
    pub(super) fn refusal(&self, wanted: HeldUpdateId) -> Option<UpdateMismatch> {
        match &self.held {
            Some((held, _)) if *held == wanted => None,
            Some((held, _)) if (HeldUpdateId { base: wanted.base, ..*held }) == wanted => {
                Some(UpdateMismatch::OtherBase { version: held.version })
            }
            Some((held, _))
                if (held.task, held.serial, held.version) == (wanted.task, wanted.serial, wanted.version) =>
            {
                Some(UpdateMismatch::OtherTraining)
            }
            _ => Some(UpdateMismatch::NotHeld),
        }
    }

    /// Whether this was a training, not a round: it is over then, without an update.
    pub(super) fn end(&mut self, place: Attempt) -> bool {
        let is_training = self.under_way.take_if(|under_way| *under_way == place).is_some();
        if is_training {
            self.gone = Some((place.task, place.attempt));
        }
        is_training
    }

    /// What takes effect at home whatever becomes of the update, to be written before it is forgotten.
    pub(super) fn local_copies(&self) -> Vec<Record> {
        self.held.as_ref().map(|(held, local_state)| local_state.copies(held.task)).unwrap_or_default()
    }

    /// Forgets the update: what has to be written before anything is done with it that cannot be done twice, and what stays at
    /// home.
    pub(super) fn let_go(&mut self) -> Result<(Option<Record>, LocalState), JournalError> {
        let Some((held, local_state)) = self.held.take() else { return Ok((None, LocalState::NOTHING)) };
        self.gone = Some((held.task, held.serial));
        let bytes = snapshot::encode_nothing_held()?;
        Ok((Some(Record::new(snapshot::UPDATE.to_owned(), bytes)), local_state))
    }
}
