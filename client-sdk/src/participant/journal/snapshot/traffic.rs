//! The record of traffic.

use zeroize::Zeroizing;

use super::{PLAIN, TRAFFIC, decode, encode};
use crate::journal::JournalError;
use crate::participant::journal::traffic::DataUse;

impl DataUse {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        encode(TRAFFIC, PLAIN, self, &[])
    }

    /// Restores the record; without one the traffic is 0.
    pub(in crate::participant) fn restore(record: Option<&[u8]>) -> Result<Self, JournalError> {
        let Some(record) = record else { return Ok(Self::default()) };
        let (used, parts) = decode(TRAFFIC, record)?;
        parts.end()?;
        Ok(used)
    }
}
