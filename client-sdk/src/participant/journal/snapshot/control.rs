//! The record of SCAFFOLD's control variate on this device: the last one accepted by the coordinator, and the one after
//! the latest update.
//!
//! An update changes the control variate only if its round completes with the update in the sum. Otherwise the
//! server's control variate would differ from the mean of the participants', a permanent bias. The result is known only
//! when the next round begins. So both are stored before the update is sent, and the assignment names the valid one.

use serde::{Deserialize, Serialize};
use wire::participant::Counted;
use zeroize::Zeroizing;

use super::{CONTROL, bytes_of, decode, encode};
use crate::journal::JournalError;

const NAME: &str = "control";

/// A control variate and its round.
pub(in crate::participant) struct Control {
    pub(in crate::participant) of: Counted,
    pub(in crate::participant) values: Zeroizing<Vec<f32>>,
}

/// A control variate before and after the latest update.
pub(in crate::participant) struct ControlRecord {
    /// `None` before the first update that counted.
    pub(in crate::participant) counted: Option<Control>,
    pub(in crate::participant) latest: Control,
}

#[derive(Serialize, Deserialize)]
struct Header {
    counted: Option<Counted>,
    latest: Counted,
    parameters: usize,
}

impl ControlRecord {
    pub(in crate::participant) fn encode(
        counted: Option<&Control>,
        latest: Counted,
        values: &[f32],
    ) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let before = bytes_of(counted.map_or(&[][..], |control| &control.values));
        let header = Header { counted: counted.map(|control| control.of), latest, parameters: values.len() };
        encode(NAME, CONTROL, &header, &[&before, &bytes_of(values)])
    }

    /// `parameters` is the model's number of parameters.
    pub(in crate::participant) fn decode(record: &[u8], parameters: usize) -> Result<Self, JournalError> {
        let (header, mut parts): (Header, _) = decode(NAME, record)?;
        if header.parameters != parameters {
            let detail = format!("it has {} values where the model has {parameters}", header.parameters);
            return Err(JournalError::corrupt(NAME, detail));
        }
        let mut take =
            |of: Counted| -> Result<Control, JournalError> { Ok(Control { of, values: parts.numbers(parameters)? }) };
        let counted = header.counted.map(&mut take).transpose()?;
        let latest = take(header.latest)?;
        parts.end()?;
        Ok(Self { counted, latest })
    }

    /// The valid control variate, given the last round accepted by the coordinator; `None` without such a round.
    ///
    /// # Errors
    /// The coordinator accepted a control variate that is missing here.
    pub(in crate::participant) fn settle(
        record: Option<Self>,
        counted: Option<Counted>,
    ) -> Result<Option<Control>, String> {
        let Some(of) = counted else { return Ok(None) };
        let (before, latest) = record.map_or((None, None), |record| (record.counted, Some(record.latest)));
        [latest, before].into_iter().flatten().find(|control| control.of == of).map(Some).ok_or_else(|| {
            format!(
                "the coordinator counts on this participant's control variate of round {} (attempt {}), and the journal does not \
                 have it: it was removed or rolled back; restore it from a backup, or enrol anew",
                of.round, of.attempt
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(round: u32) -> Counted {
        Counted { round, attempt: 1 }
    }

    fn record(counted: Option<u32>, latest: u32) -> ControlRecord {
        let before = counted.map(|round| Control { of: place(round), values: Zeroizing::new(vec![1.0, -2.0]) });
        let bytes = ControlRecord::encode(before.as_ref(), place(latest), &[3.0, 4.5]).unwrap();
        ControlRecord::decode(&bytes, 2).unwrap()
    }

    #[test]
    fn what_counts_is_what_the_coordinator_has_in_its_sum() {
        let settle = |counted, latest, said: Option<u32>| {
            let settled = ControlRecord::settle(Some(record(counted, latest)), said.map(place));
            settled.map(|control| control.map(|control| control.values.to_vec()))
        };
        assert_eq!(settle(Some(3), 5, Some(5)), Ok(Some(vec![3.0, 4.5])), "the round ended well");
        assert_eq!(settle(Some(3), 5, Some(3)), Ok(Some(vec![1.0, -2.0])), "it failed");
        assert_eq!(settle(None, 5, None), Ok(None), "the first one failed");
        assert!(settle(Some(3), 5, Some(4)).unwrap_err().contains("round 4"));
        assert!(ControlRecord::settle(None, Some(place(2))).is_err());
        assert!(matches!(ControlRecord::settle(None, None), Ok(None)));
    }

    #[test]
    fn another_models_or_a_damaged_one_is_refused() {
        let bytes = ControlRecord::encode(None, place(1), &[3.0, 4.5]).unwrap();
        assert!(ControlRecord::decode(&bytes, 3).is_err());
        for position in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[position] ^= 1;
            assert!(ControlRecord::decode(&damaged, 2).is_err(), "bit flipped at {position}");
        }
    }
}
