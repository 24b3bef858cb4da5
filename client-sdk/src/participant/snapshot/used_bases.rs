//! The record of the bases of inputs hidden by masks alone; a base is removed only on proof that its input is in no
//! sum.
//!
//! It is written before the record of the round that holds the input, which contains the number of inputs. Fewer in
//! this one mean that it was removed or rolled back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use wire::{Attempt, Digest};
use zeroize::Zeroizing;

use super::{PLAIN, USED_BASES, decode, encode};
use crate::journal::JournalError;
use crate::participant::used_bases::{BaseId, PastInput, UsedBases};

#[derive(Serialize, Deserialize)]
struct Header {
    inputs: u64,
    /// Number of bases that follow, 16 bytes each.
    bases: usize,
    latest: Vec<Latest>,
}

#[derive(Serialize, Deserialize)]
struct Latest {
    /// Index into the bases.
    base: usize,
    place: Attempt,
    session: Digest,
}

impl UsedBases {
    pub(in crate::participant) fn encode(&self) -> Result<Zeroizing<Vec<u8>>, JournalError> {
        let bases: Vec<_> = self.bases.iter().copied().collect();
        let latest = self.latest.iter().filter_map(|input| {
            let base = bases.binary_search(&input.base).ok()?;
            Some(Latest { base, place: input.place, session: input.session })
        });
        let header = Header { inputs: self.inputs, bases: bases.len(), latest: latest.collect() };
        let bytes: Vec<u8> = bases.iter().flat_map(|base| base.0).collect();
        encode(USED_BASES, PLAIN, &header, &[&bytes])
    }

    /// Restores the record. `inputs` is the number of inputs known to the round's record.
    pub(in crate::participant) fn restore(record: Option<&[u8]>, inputs: u64) -> Result<Self, JournalError> {
        let used = record.map(read).transpose()?.unwrap_or_default();
        if used.inputs < inputs {
            return Err(JournalError::Forgotten { name: USED_BASES.to_owned(), held: used.inputs, given: inputs });
        }
        Ok(used)
    }
}

fn read(record: &[u8]) -> Result<UsedBases, JournalError> {
    let (Header { inputs, bases: count, latest }, mut parts) = decode(USED_BASES, record)?;
    let corrupt = |detail: &str| JournalError::corrupt(USED_BASES, detail);
    let bytes = parts.take(count.checked_mul(16).ok_or_else(|| corrupt("it is cut off"))?)?;
    parts.end()?;
    let bases: Vec<BaseId> = bytes.as_chunks::<16>().0.iter().copied().map(BaseId).collect();
    let latest = latest.into_iter().map(|Latest { base, place, session }| {
        let base = bases.get(base).copied().ok_or_else(|| corrupt("an input in it is from no base"))?;
        Ok(PastInput { base, place, session })
    });
    let latest = latest.collect::<Result<_, JournalError>>()?;
    let set: BTreeSet<BaseId> = bases.into_iter().collect();
    if set.len() != count {
        return Err(corrupt("a base is in it twice"));
    }
    Ok(UsedBases { inputs, bases: set, latest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used() -> UsedBases {
        let task = "00000000-0000-0000-0000-000000000001".parse().unwrap();
        let mut used = UsedBases::default();
        for number in 1..=3 {
            let place = Attempt { task, round: number.into(), attempt: 1 };
            let base = BaseId([9 - number; 16]);
            used.record(PastInput { base, place, session: Digest([number; 32]) }).unwrap();
        }
        used
    }

    #[test]
    fn it_comes_back_and_every_damage_is_found() {
        let record = used().encode().unwrap();
        assert_eq!(UsedBases::restore(Some(&record), 3).unwrap(), used());
        assert_eq!(UsedBases::restore(None, 0).unwrap(), UsedBases::default());
        for position in 0..record.len() {
            let mut damaged = record.to_vec();
            damaged[position] ^= 1;
            assert!(UsedBases::restore(Some(&damaged), 3).is_err(), "bit flipped at {position}");
            assert!(UsedBases::restore(Some(&record[..position]), 3).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn one_that_was_removed_or_rolled_back_is_found() {
        for (record, held) in [(None, 0), (Some(used().encode().unwrap()), 3)] {
            let error = UsedBases::restore(record.as_deref().map(Vec::as_slice), 4).unwrap_err();
            assert!(matches!(error, JournalError::Forgotten { held: found, given: 4, .. } if found == held), "{error}");
        }
    }

    #[test]
    fn ten_thousand_rounds_take_little_room() {
        let mut used = used();
        let start = used.encode().unwrap().len();
        used.bases.extend((0..10_000_u64).map(|number| {
            let mut base = [7; 16];
            base[..8].copy_from_slice(&number.to_le_bytes());
            BaseId(base)
        }));
        assert!(used.encode().unwrap().len() - start < 161_000);
    }
}
