//! Participants of a session: their positions in the roster, and sets of positions in canonical encoding.

use tls_codec::{DeserializeBytes, Error, Serialize, Size, TlsByteVecU8};

use crate::crypto::transcript::{Digest, Transcript};

/// A participant's position in the roster, from 1 to n.
pub type Index = u16;

/// Maximum number of participants in a session; larger cohorts are split into several sessions.
pub const MAX_COHORT: u16 = 1024;

/// A set of positions in a roster of n. Encoded as `u16be(n)`, then a bitmap of ceil(n/8) bytes with a one-byte length
/// prefix: position i is bit (i - 1) mod 8, lowest first, of byte (i - 1) div 8; unused bits are zero. So each set has
/// one encoding.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IndexSet {
    universe: u16,
    bits: Vec<u8>,
}

impl IndexSet {
    /// The empty set of a roster of `universe` participants.
    #[must_use]
    pub fn empty(universe: u16) -> Self {
        Self { universe, bits: vec![0; usize::from(universe).div_ceil(8)] }
    }

    /// The set of all positions.
    #[must_use]
    pub fn full(universe: u16) -> Self {
        Self::of(universe, 1..=universe)
    }

    /// The set of `members`; positions outside 1..=universe are ignored.
    #[must_use]
    pub fn of(universe: u16, members: impl IntoIterator<Item = Index>) -> Self {
        let mut set = Self::empty(universe);
        for member in members {
            set.insert(member);
        }
        set
    }

    /// n: the number of positions.
    #[must_use]
    pub const fn universe(&self) -> u16 {
        self.universe
    }

    /// Adds a position; false if it was already present or is not in 1..=n.
    pub fn insert(&mut self, index: Index) -> bool {
        if index == 0 || index > self.universe || self.contains(index) {
            return false;
        }
        self.bits[usize::from(index - 1) / 8] |= 1 << ((index - 1) % 8);
        true
    }

    pub fn remove(&mut self, index: Index) {
        if self.contains(index) {
            self.bits[usize::from(index - 1) / 8] &= !(1 << ((index - 1) % 8));
        }
    }

    #[must_use]
    pub fn contains(&self, index: Index) -> bool {
        index != 0 && self.bits.get(usize::from(index - 1) / 8).is_some_and(|byte| byte >> ((index - 1) % 8) & 1 == 1)
    }

    #[must_use]
    pub fn len(&self) -> u16 {
        // At most 1024 bits.
        self.bits.iter().map(|byte| u16::try_from(byte.count_ones()).unwrap_or(0)).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|byte| *byte == 0)
    }

    /// The positions of its members, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Index> + '_ {
        (1..=self.universe).filter(|index| self.contains(*index))
    }

    /// Whether every member is in `other`, a set of the same roster.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.universe == other.universe && self.bits.iter().zip(&other.bits).all(|(own, other)| own & !other == 0)
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let others = other.bits.iter().copied().chain(std::iter::repeat(0));
        Self { universe: self.universe, bits: self.bits.iter().zip(others).map(|(own, other)| own & other).collect() }
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.universe, (1..=self.universe).filter(|index| self.contains(*index) || other.contains(*index)))
    }

    /// The members of this set that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self::of(self.universe, self.iter().filter(|index| !other.contains(*index)))
    }

    /// `SHA-256(u32be(n) || bitmap)`: H(U) in signed texts.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Transcript::bare().u32(self.universe.into()).raw(&self.bits).finish()
    }

    fn is_canonical(&self) -> bool {
        let used = self.universe % 8;
        self.universe <= MAX_COHORT
            && self.bits.len() == usize::from(self.universe).div_ceil(8)
            && (used == 0 || self.bits.last().is_none_or(|byte| byte >> used == 0))
    }
}

impl std::fmt::Debug for IndexSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl Size for IndexSet {
    fn tls_serialized_len(&self) -> usize {
        3 + self.bits.len()
    }
}

impl Serialize for IndexSet {
    fn tls_serialize<W: std::io::Write>(&self, writer: &mut W) -> Result<usize, Error> {
        Ok(self.universe.tls_serialize(writer)? + TlsByteVecU8::from_slice(&self.bits).tls_serialize(writer)?)
    }
}

impl DeserializeBytes for IndexSet {
    fn tls_deserialize_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (universe, rest) = u16::tls_deserialize_bytes(bytes)?;
        let (bits, rest) = TlsByteVecU8::tls_deserialize_bytes(rest)?;
        let set = Self { universe, bits: bits.into_vec() };
        if set.is_canonical() { Ok((set, rest)) } else { Err(Error::InvalidVectorLength) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_outside_the_roster_never_get_in() {
        let mut set = IndexSet::empty(9);
        assert!(!set.insert(0) && !set.insert(10) && set.insert(9) && !set.insert(9));
        assert!(set.contains(9) && !set.contains(0) && !set.contains(10) && !set.contains(1024));
        assert_eq!(set.len(), 1);
        set.remove(9);
        assert!(set.is_empty());
    }

    #[test]
    fn a_set_has_one_encoding() {
        let set = IndexSet::of(9, [1, 9]);
        assert_eq!(set.tls_serialize_detached().unwrap(), [0, 9, 2, 1, 1]);
        for bad in [[0, 9, 2, 1, 2], [0, 9, 2, 1, 0x81], [0, 17, 2, 1, 1], [0, 8, 2, 1, 1]] {
            assert!(IndexSet::tls_deserialize_exact_bytes(&bad).is_err(), "{bad:?}");
        }
        assert_ne!(IndexSet::of(9, [1]).digest(), IndexSet::of(10, [1]).digest(), "the roster's size is part of it");
    }

    proptest! {
        #[test]
        fn sets_survive_their_encoding_and_obey_set_algebra(
            universe in 0u16..=1024,
            a in proptest::collection::vec(1u16..=1024, 0..40),
            b in proptest::collection::vec(1u16..=1024, 0..40),
        ) {
            let (a, b) = (IndexSet::of(universe, a), IndexSet::of(universe, b));
            let bytes = a.tls_serialize_detached().unwrap();
            prop_assert_eq!(IndexSet::tls_deserialize_exact_bytes(&bytes).unwrap(), a.clone());
            prop_assert_eq!(a.intersection(&b).len() + a.union(&b).len(), a.len() + b.len());
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.intersection(&b).is_subset(&a) && a.is_subset(&a.union(&b)));
        }
    }
}
