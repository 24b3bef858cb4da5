//! The residual of error feedback: the dropped part of an update, to be added to the next one.
//!
//! It reveals as much about a participant's data as an update does, so it stays in the participant's own journal. It serializes to a record
//! for that, is wiped when dropped, and its `Debug` output shows sizes only.

use zeroize::Zeroizing;

use crate::parameters::{WrongLength, first_not_finite};

const MAGIC: [u8; 4] = *b"TRES";
const VERSION: u8 = 1;
/// Magic, version, three zeros, values as little-endian `u64`.
const HEADER_BYTES: usize = 16;

/// One value per parameter of the shared layout.
pub struct Residual(Zeroizing<Vec<f32>>);

impl std::fmt::Debug for Residual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Residual").field("parameters", &self.0.len()).finish_non_exhaustive()
    }
}

/// Reasons a record is not a residual of this model. The participant then starts without one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadResidual {
    /// Not written by [`Residual::to_record`], or by an unknown version.
    #[error("these bytes are not a residual of version {VERSION}")]
    Format,
    /// It belongs to another model.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
    /// A value is NaN or infinite.
    #[error("value {index} of the residual is NaN or infinite")]
    NotFinite { index: usize },
}

impl Residual {
    /// `wanted - sent`, rounded once per value.
    pub(super) fn between(wanted: &[f64], sent: &[f64]) -> Self {
        let limit = f64::from(f32::MAX);
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let left = wanted.iter().zip(sent).map(|(wanted, sent)| (wanted - sent).clamp(-limit, limit) as f32);
        Self(Zeroizing::new(left.collect()))
    }

    pub(super) fn add_to(&self, values: &mut [f64]) -> Result<(), WrongLength> {
        if self.0.len() != values.len() {
            return Err(WrongLength { expected: values.len(), got: self.0.len() });
        }
        values.iter_mut().zip(self.0.iter()).for_each(|(value, &left)| *value += f64::from(left));
        Ok(())
    }

    /// The values, in the order of the shared layout.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Serializes the residual for the journal.
    #[must_use]
    pub fn to_record(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER_BYTES + 4 * self.0.len()));
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        bytes.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
        self.0.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        bytes
    }

    /// Reads a record of [`to_record`](Self::to_record) for a model with this many shared parameters.
    ///
    /// # Errors
    /// Any [`BadResidual`]; the length is checked before anything is allocated.
    pub fn from_record(bytes: &[u8], parameters: usize) -> Result<Self, BadResidual> {
        let (header, values) = bytes.split_at_checked(HEADER_BYTES).ok_or(BadResidual::Format)?;
        let (head, length) = header.split_at(8);
        if head[..4] != MAGIC || head[4..] != [VERSION, 0, 0, 0] || values.len() % 4 != 0 {
            return Err(BadResidual::Format);
        }
        let got = values.len() / 4;
        if length != (got as u64).to_le_bytes() {
            return Err(BadResidual::Format);
        }
        if got != parameters {
            return Err(WrongLength { expected: parameters, got }.into());
        }
        let values: Vec<f32> = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let values = Zeroizing::new(values);
        match first_not_finite(&values) {
            Some(index) => Err(BadResidual::NotFinite { index }),
            None => Ok(Self(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_others_are_refused() {
        let residual = Residual::between(&[1.0, -2.5, 0.1], &[0.5, 0.0, 0.1]);
        let record = residual.to_record();
        assert_eq!(Residual::from_record(&record, 3).unwrap().values(), residual.values());
        assert_eq!(residual.values(), [0.5, -2.5, 0.0]);
        let wrong = WrongLength { expected: 4, got: 3 };
        assert_eq!(Residual::from_record(&record, 4).unwrap_err(), BadResidual::WrongLength(wrong));
        for cut in 0..record.len() {
            assert_eq!(Residual::from_record(&record[..cut], 3).unwrap_err(), BadResidual::Format, "{cut}");
        }
        let mut bad = record.to_vec();
        bad[16..20].copy_from_slice(&f32::NAN.to_le_bytes());
        assert_eq!(Residual::from_record(&bad, 3).unwrap_err(), BadResidual::NotFinite { index: 0 });
        assert_eq!(format!("{residual:?}"), "Residual { parameters: 3, .. }");
    }
}
