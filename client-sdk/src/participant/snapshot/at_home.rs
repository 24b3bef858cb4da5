//! What a round leaves on the device: personal tensors, and what the codec left out of the update.
//!
//! Both are written with the update, before it is sent, and take effect when the round is done with. Personal tensors do so
//! however it ended; the residual only if the update was taken, or what it holds would be missing from both.

use wire::TaskId;
use zeroize::Zeroizing;

use super::Parts;
use crate::journal::JournalError;
use crate::participant::machine::Record;
use crate::participant::snapshot;

/// As the journal keeps them.
pub(in crate::participant) struct AtHome {
    pub(in crate::participant) personal: Option<Zeroizing<Vec<u8>>>,
    pub(in crate::participant) residual: Option<Zeroizing<Vec<u8>>>,
}

impl AtHome {
    /// Nothing stayed.
    pub(in crate::participant) const NOTHING: Self = Self { personal: None, residual: None };

    /// What is left of it when the update is not in the sum.
    pub(in crate::participant) fn not_sent(self) -> Self {
        Self { residual: None, ..self }
    }

    /// What takes effect.
    pub(in crate::participant) fn records(self, task: TaskId) -> impl Iterator<Item = Record> {
        let personal = self.personal.map(|bytes| Record { name: snapshot::personal(task), bytes });
        let residual = self.residual.map(|bytes| Record { name: snapshot::residual(task), bytes });
        personal.into_iter().chain(residual)
    }

    /// Lengths of its two parts.
    pub(super) fn lengths(&self) -> (Option<usize>, Option<usize>) {
        let length = |part: &Option<Zeroizing<Vec<u8>>>| part.as_ref().map(|bytes| bytes.len());
        (length(&self.personal), length(&self.residual))
    }

    /// Its two parts.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [&self.personal, &self.residual].map(|part| part.as_ref().map_or(&[][..], |bytes| bytes.as_slice()))
    }

    /// Takes it off a record.
    pub(super) fn read(
        parts: &mut Parts<'_>,
        personal: Option<usize>,
        residual: Option<usize>,
    ) -> Result<Self, JournalError> {
        let personal = personal.map(|bytes| parts.secret(bytes)).transpose()?;
        let residual = residual.map(|bytes| parts.secret(bytes)).transpose()?;
        Ok(Self { personal, residual })
    }
}
