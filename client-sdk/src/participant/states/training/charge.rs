//! Records the cost of an update before it is written, let alone sent.

use crate::journal::JournalError;
use crate::participant::journal::record::Record;
use crate::participant::journal::session::SessionError;
use crate::participant::journal::snapshot;
use crate::participant::states::core::Core;
use crate::participant::task::plan::Plan;

/// Why the cost of an update could not be recorded.
pub(in crate::participant) enum ChargeError {
    Refused(SessionError),
    Journal(JournalError),
}

impl Core {
    /// Charges this round's update to the privacy ledger if the task is private. Returns the record to be written
    /// before the update.
    pub(in crate::participant) fn charge(&mut self, plan: &Plan) -> Result<Option<Record>, ChargeError> {
        let Some(round) = plan.private() else { return Ok(None) };
        let charged = self.account.charge(plan.place, &plan.assignment.task_name, round);
        if !charged.map_err(|refusal| ChargeError::Refused(refusal.into()))? {
            return Ok(None);
        }
        let bytes = snapshot::encode_account(&self.account).map_err(ChargeError::Journal)?;
        Ok(Some(Record::new(snapshot::PRIVACY.to_owned(), bytes)))
    }
}
