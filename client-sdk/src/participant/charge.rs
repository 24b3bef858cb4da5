//! What an update costs is recorded before it is written, let alone sent.

use super::core::Core;
use super::plan::Plan;
use super::record::Record;
use super::session::{Session, SessionError};
use super::snapshot;
use super::used_bases::{BaseId, PastInput};
use crate::journal::JournalError;

/// Why the cost of an update could not be recorded.
pub(super) enum ChargeError {
    Refused(SessionError),
    Journal(JournalError),
}

impl Core {
    /// Charges this round's update to the privacy ledger if the task is private. Returns the record to be written
    /// before the update.
    pub(super) fn charge(&mut self, plan: &Plan) -> Result<Option<Record>, ChargeError> {
        let Some(round) = plan.private() else { return Ok(None) };
        let charged = self.account.charge(plan.place, &plan.assignment.task_name, round);
        if !charged.map_err(|refusal| ChargeError::Refused(refusal.into()))? {
            return Ok(None);
        }
        let bytes = snapshot::encode_account(&self.account).map_err(ChargeError::Journal)?;
        Ok(Some(Record::new(snapshot::PRIVACY.to_owned(), bytes)))
    }

    /// Records the base of an input hidden by masks alone. Returns the record to be written before the input.
    pub(super) fn record_base(
        &mut self,
        plan: &Plan,
        session: Option<&Session>,
    ) -> Result<Option<Record>, ChargeError> {
        let Some(base) = plan.base().map(BaseId::from) else { return Ok(None) };
        let Some(session) = session else {
            // The coordinator can read the input and learns nothing from a second one: nothing to record.
            return self.used_bases.check(base, plan.place).map(|()| None).map_err(ChargeError::Refused);
        };
        let session = session.id().map_err(ChargeError::Refused)?;
        self.used_bases.record(PastInput { base, place: plan.place, session }).map_err(ChargeError::Refused)?;
        let bytes = self.used_bases.encode().map_err(ChargeError::Journal)?;
        Ok(Some(Record::new(snapshot::USED_BASES.to_owned(), bytes)))
    }
}
