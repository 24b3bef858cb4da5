//! Fixed batches: groups of participants whose updates are unmasked only together (So et al. 2023, "Securing Secure Aggregation: Mitigating
//! Multi-Round Privacy Leakage in Federated Learning").
//!
//! Secure aggregation hides an update inside one opened sum. Sums of different rounds can be subtracted, and a coordinator that chooses
//! cohorts can solve for one member. A participant in a batch of T states its batch with its keys, in every session, and every member
//! checks two rules:
//!
//! 1. A roster contains a batch whole or not at all ([`Batches::of`]).
//! 2. A set of survivors contains a batch whole or not at all ([`Batches::torn`]). Every signer checks all batches, which also protects a
//!    survivor that receives no request to sign.
//!
//! Then every opened sum is a sum of batch sums, and so is every linear combination of opened sums of any sessions, as long as participants
//! keep their batches. [`draw`] forms batches such that a coordinator cannot choose a member's companions.

pub mod draw;

use std::collections::BTreeMap;

use crate::crypto::transcript::{Digest, Transcript};
use crate::messages::RosterEntry;
use crate::participants::{Index, IndexSet};

/// Fewest members of a batch: with two, each member knows the other's update from the batch's sum.
pub const MIN_BATCH: u16 = 3;

/// The id of the batch with these members: a digest of their ids, in ascending order.
///
/// `SHA-256(enc(P) || enc("batch") || u32be(T) || enc(id_1) || … || enc(id_T))`.
pub fn batch_id<'a>(ids: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut ids: Vec<&[u8]> = ids.into_iter().collect();
    ids.sort_unstable();
    let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let start = Transcript::labelled("batch").u32(count);
    ids.into_iter().fold(start, Transcript::enc).finish()
}

/// The batches of a roster, as positions; without participants outside batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batches(Vec<IndexSet>);

impl Batches {
    /// Groups a roster's entries by their stated batches.
    ///
    /// A batch's id is a digest of its members' ids, so a missing, additional or exchanged member changes it.
    ///
    /// # Errors
    /// The position of the first member of a batch that is not whole in this roster.
    pub fn of(entries: &[RosterEntry]) -> Result<Self, Index> {
        let universe = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let mut stated: BTreeMap<Digest, Vec<Index>> = BTreeMap::new();
        for (index, entry) in (1..).zip(entries) {
            if let Some(batch) = entry.client_id.batch() {
                stated.entry(*batch).or_default().push(index);
            }
        }
        let mut batches = Vec::with_capacity(stated.len());
        for (batch, members) in stated {
            let ids = members.iter().filter_map(|index| entries.get(usize::from(*index) - 1));
            if batch_id(ids.map(|entry| entry.client_id.as_slice())) != batch {
                return Err(members.first().copied().unwrap_or(0));
            }
            batches.push(IndexSet::of(universe, members));
        }
        batches.sort_by_key(|batch| batch.iter().next());
        Ok(Self(batches))
    }

    /// Batches restored from a snapshot.
    pub(crate) const fn restored(batches: Vec<IndexSet>) -> Self {
        Self(batches)
    }

    pub(crate) fn as_slice(&self) -> &[IndexSet] {
        &self.0
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The position of the first participant of `universe` outside all batches of at least `min` members.
    #[must_use]
    pub fn first_outside(&self, universe: u16, min: u16) -> Option<Index> {
        let large = self.0.iter().filter(|batch| batch.len() >= min);
        let inside = large.fold(IndexSet::empty(universe), |inside, batch| inside.union(batch));
        IndexSet::full(universe).difference(&inside).iter().next()
    }

    /// A batch with some, but not all, of its members in `set`.
    #[must_use]
    pub fn torn(&self, set: &IndexSet) -> Option<&IndexSet> {
        self.0.iter().find(|batch| {
            let inside = batch.intersection(set).len();
            inside != 0 && inside != batch.len()
        })
    }

    /// `set` without the members of torn batches.
    #[must_use]
    pub fn whole(&self, set: &IndexSet) -> IndexSet {
        let torn = self.0.iter().filter(|batch| !batch.is_subset(set));
        torn.fold(set.clone(), |set, batch| set.difference(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: u8, batch: Option<Digest>) -> RosterEntry {
        RosterEntry {
            client_id: crate::messages::ClientId::new(vec![id], batch),
            certificate: Vec::new().into(),
            c_pk: [id; 32],
            s_pk: [id; 32],
            b_commit: [0; 32],
            signature: [0; 64],
        }
    }

    fn roster(batches: &[&[u8]], alone: &[u8]) -> Vec<RosterEntry> {
        let of = |ids: &&[u8]| {
            let batch = batch_id(ids.iter().map(std::slice::from_ref));
            ids.iter().map(move |id| entry(*id, Some(batch))).collect::<Vec<_>>()
        };
        let mut entries: Vec<_> = batches.iter().flat_map(of).collect();
        entries.extend(alone.iter().map(|id| entry(*id, None)));
        entries.sort_by_key(|entry| entry.client_id.as_slice().to_vec());
        entries
    }

    #[test]
    fn batch_ids_depend_on_members_and_not_on_their_order() {
        let id = |ids: &[&[u8]]| batch_id(ids.iter().copied());
        assert_eq!(id(&[b"a", b"b", b"c"]), id(&[b"c", b"a", b"b"]));
        assert_ne!(id(&[b"a", b"b", b"c"]), id(&[b"a", b"b"]));
        assert_ne!(id(&[b"ab", b"c"]), id(&[b"a", b"bc"]));
    }

    #[test]
    fn roster_with_incomplete_batch_is_refused() {
        let whole = roster(&[&[1, 4, 6], &[2, 3, 5]], &[7]);
        let batches = Batches::of(&whole).unwrap();
        assert_eq!(batches.as_slice(), [IndexSet::of(7, [1, 4, 6]), IndexSet::of(7, [2, 3, 5])]);
        assert_eq!(batches.first_outside(7, 3), Some(7));
        assert_eq!(batches.first_outside(6, 3), None);
        assert_eq!(batches.first_outside(6, 4), Some(1));
        for missing in 0..6 {
            let mut entries = whole.clone();
            entries.remove(missing);
            assert!(Batches::of(&entries).is_err(), "without entry {missing}");
        }
        let mut exchanged = whole;
        exchanged[3].client_id = crate::messages::ClientId::new(vec![9], exchanged[3].client_id.batch().copied());
        assert_eq!(Batches::of(&exchanged), Err(1));
    }

    #[test]
    fn every_subset_keeps_only_whole_batches() {
        let batches = Batches::of(&roster(&[&[1, 4, 6], &[2, 3, 5]], &[7])).unwrap();
        for bits in 0u8..128 {
            let set = IndexSet::of(7, (1..=7).filter(|index| bits >> (index - 1) & 1 == 1));
            let whole = batches.whole(&set);
            assert_eq!(batches.torn(&whole), None, "{set:?}");
            assert!(whole.is_subset(&set) && whole.contains(7) == set.contains(7), "{set:?}");
            assert_eq!(batches.torn(&set).is_none(), whole == set, "{set:?}");
        }
    }
}
