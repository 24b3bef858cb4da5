//! The record of the participant's fixed batch.

use secure_agg::batch::draw::{Batch, Drawing};
use secure_agg::client::Snapshot;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{BATCH, PLAIN, decode, encode};
use crate::journal::JournalError;
use crate::participant::journal::batch::{BatchState, BatchStatus};

#[derive(Serialize, Deserialize)]
struct Header {
    unfinished: u32,
    /// Lengths of the following parts; 0 if absent. At most one is positive.
    member: usize,
    drawing: usize,
}

impl BatchState {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let member = self.member().map(Batch::to_bytes).unwrap_or_default();
        let drawing = self.drawing().map(Drawing::persist);
        let drawing = drawing.as_ref().map_or(&[][..], Snapshot::expose);
        let header = Header { unfinished: self.unfinished, member: member.len(), drawing: drawing.len() };
        encode(BATCH, PLAIN, &header, &[&member, drawing])
    }

    /// Restores the record; without one the participant has no batch.
    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let Some(record) = record else { return Ok(Self::default()) };
        let (Header { unfinished, member, drawing }, mut parts) = decode(BATCH, record)?;
        let (member, drawing) = (parts.take(member)?, parts.secret(drawing)?);
        parts.end()?;
        let corrupt = |error: &dyn std::fmt::Display| JournalError::corrupt(BATCH, error.to_string());
        let member = Some(member).filter(|bytes| !bytes.is_empty()).map(Batch::from_bytes).transpose();
        let drawing = Some(&*drawing).filter(|bytes| !bytes.is_empty());
        let drawing = drawing.map(|bytes| Drawing::restore(bytes)).transpose();
        let (member, drawing) = (member.map_err(|error| corrupt(&error))?, drawing.map_err(|error| corrupt(&error))?);
        let status = match (member, drawing) {
            (None, None) => BatchStatus::Without,
            (None, Some(drawing)) => BatchStatus::Drawing(drawing),
            (Some(batch), None) => BatchStatus::Member(batch),
            (Some(_), Some(_)) => return Err(corrupt(&"both a batch and a draw")),
        };
        Ok(Self { status, unfinished })
    }
}
