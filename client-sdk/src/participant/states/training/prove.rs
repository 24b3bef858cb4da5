//! Verifies an assignment against its record first, reports the result to the app, and writes the facts to remember.

use wire::participant::{Assignment, FinalModel};
use wire::{Attempt, TaskId};

use crate::journal::JournalError;
use crate::participant::api::event::Event;
use crate::participant::checks::provenance::{Judged, News, Offered, ProvenanceError};
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot;
use crate::participant::states::core::{Core, persist};
use crate::participant::states::state::State;

/// The outcome of a check, with the records that must be written before anything depends on it.
pub(in crate::participant) struct Proof {
    pub(in crate::participant) verdict: Result<(), ProvenanceError>,
    records: Result<Vec<Record>, JournalError>,
}

impl Proof {
    /// Continues with this state once the outcome is in the journal.
    pub(in crate::participant) fn before(self, then: State) -> State {
        match self.records {
            Ok(records) if records.is_empty() => then,
            records => persist(records, then),
        }
    }
}

impl Core {
    /// Checks the provenance of an assignment's model, and reports it to the app.
    pub(in crate::participant) fn prove(&mut self, place: Attempt, assignment: &Assignment) -> Proof {
        self.judge(place.task, Some(place), &Offered::from(assignment))
    }

    /// Checks the provenance of the last version of a finished task. The caller reports the reason for a rejection.
    pub(super) fn prove_final(&mut self, task: TaskId, model: &FinalModel) -> Proof {
        self.judge(task, None, &Offered::at_the_end(task, model))
    }

    fn judge(&mut self, task: TaskId, place: Option<Attempt>, offered: &Offered<'_>) -> Proof {
        let Judged { verdict, shown } = self.shown.judge(&self.settings.coordinator_keys, offered);
        let verdict = verdict.map(|news| match news {
            Some(News::Pinned(key)) => self.events.push(Event::KeyPinned { key }),
            Some(News::Rebased { version }) => {
                self.events.extend(place.map(|place| Event::Rebased { place, version }));
            }
            None => {}
        });
        if let (Err(error), Some(place)) = (&verdict, place) {
            self.events.push(Event::Unproven { place, error: error.clone() });
        }
        let mut records = Ok(Vec::new());
        if let Some(shown) = shown {
            let is_new = shown.contradiction(task) != self.shown.contradiction(task);
            if let Some(pair) = shown.contradiction(task).filter(|_| is_new) {
                self.events.push(Event::equivocation(task, pair.clone()));
            }
            self.shown = shown;
            records = self.shown_record().map(|record| vec![record]);
        }
        Proof { verdict, records }
    }

    /// The record of the memory of models.
    pub(in crate::participant) fn shown_record(&self) -> Result<Record, JournalError> {
        self.shown.encode().map(|bytes| Record::new(snapshot::PROVENANCE.to_owned(), bytes))
    }
}
