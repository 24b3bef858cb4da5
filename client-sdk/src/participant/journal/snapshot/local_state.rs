//! Local state that a round leaves on the device: personal tensors, the personalized model and the codec's residual.
//!
//! All are written with the update, before it is sent, and take effect when the round is over. Personal tensors and
//! models do so however the round ended; the residual only if the update was accepted, otherwise the content of the
//! update would be missing from both the sum and the residual.

use serde::{Deserialize, Serialize};
use wire::TaskId;
use zeroize::Zeroizing;

use super::{OWN, Parts, RESIDUAL};
use crate::journal::JournalError;
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot;

/// Local state, in the journal's encoding.
pub(in crate::participant) struct LocalState {
    pub(in crate::participant) personal: Option<Zeroizing<Vec<u8>>>,
    /// The personalized model, stored in a record of its own.
    pub(in crate::participant) own: Option<Zeroizing<Vec<u8>>>,
    pub(in crate::participant) residual: Option<Zeroizing<Vec<u8>>>,
}

impl LocalState {
    pub(in crate::participant) const NOTHING: Self = Self { personal: None, own: None, residual: None };

    /// The part that takes effect when the update is not in the sum.
    pub(in crate::participant) fn not_sent(self) -> Self {
        Self { residual: None, ..self }
    }

    /// The records to write when the round is over.
    pub(in crate::participant) fn records(self, task: TaskId) -> impl Iterator<Item = Record> {
        let personal = self.personal.map(|bytes| Record::new(snapshot::personal(task), bytes));
        let own = self.own.map(|bytes| Record::new(snapshot::own(task), bytes));
        let residual = self.residual.map(|bytes| Record::new(snapshot::residual(task), bytes));
        personal.into_iter().chain(own).chain(residual)
    }

    /// Copies of the records that take effect even if the update is not in the sum.
    pub(in crate::participant) fn copies(&self, task: TaskId) -> Vec<Record> {
        let parts = [(snapshot::personal(task), &self.personal), (snapshot::own(task), &self.own)];
        let copy = |(name, bytes): (String, &Option<Zeroizing<Vec<u8>>>)| {
            bytes.as_ref().map(|bytes| Record::new(name, bytes.clone()))
        };
        parts.into_iter().filter_map(copy).collect()
    }

    /// Lengths of its parts.
    pub(super) fn lengths(&self) -> Lengths {
        let length = |part: &Option<Zeroizing<Vec<u8>>>| part.as_ref().map(|bytes| bytes.len());
        Lengths {
            personal_bytes: length(&self.personal),
            residual_bytes: length(&self.residual),
            own_bytes: length(&self.own),
        }
    }

    pub(super) fn parts(&self) -> [&[u8]; 3] {
        let parts = [&self.personal, &self.residual, &self.own];
        parts.map(|part| part.as_ref().map_or(&[][..], |bytes| bytes.as_slice()))
    }

    /// Reads the local state from a record's parts.
    pub(super) fn read(parts: &mut Parts<'_>, lengths: Lengths) -> Result<Self, JournalError> {
        let mut take = |bytes: Option<usize>| bytes.map(|bytes| parts.secret(bytes)).transpose();
        let (personal, residual) = (take(lengths.personal_bytes)?, take(lengths.residual_bytes)?);
        Ok(Self { personal, residual, own: take(lengths.own_bytes)? })
    }
}

/// Lengths of its parts in a record, in the order in which they follow each other.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Lengths {
    personal_bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    residual_bytes: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_bytes: Option<usize>,
}

impl Lengths {
    /// The lowest version that can read a record with these parts; `least` without any.
    pub(super) fn version(&self, least: u16) -> u16 {
        match self {
            Self { own_bytes: Some(_), .. } => OWN,
            Self { residual_bytes: Some(_), .. } => RESIDUAL,
            _ => least,
        }
    }
}
