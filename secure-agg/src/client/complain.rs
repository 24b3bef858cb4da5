//! The end of a participant that could not open a dealer's share: it has revealed one single-use key and sends no input.

use super::COMPLAINED;
use super::snapshot::{BadSnapshot, Reader, Writer};
use crate::messages::{Complaint, Round};

/// Has complained. All other secrets of the session are erased.
pub struct Complained {
    pub(super) round: Round,
    pub(super) sent: Complaint,
}

impl Complained {
    pub(super) fn write(&self) -> Writer {
        Writer::new(COMPLAINED).public(&self.round).message(&self.sent)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadSnapshot> {
        Ok(Self { round: reader.public()?, sent: reader.message()? })
    }
}
