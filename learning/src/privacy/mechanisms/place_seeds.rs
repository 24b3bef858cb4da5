//! Seeds of noise that is correlated across releases.

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

/// The secret seeds of noise that is correlated across a task's releases: one per place up to that of the current release, in order. Each
/// seed is drawn independently when its place is first needed. With a single seed for all places, a restored backup would repeat a place's
/// noise on another sum, and the difference of the two sums would be exact. The seeds suffice to remove the noise: keep them like the exact
/// sum, and never use one for two places or tasks.
pub struct PlaceSeeds(Vec<Zeroizing<[u8; 32]>>);

impl PlaceSeeds {
    /// The seeds of places 1 and up, the last of which is the release's; `None` if empty.
    #[must_use]
    pub fn new(seeds: Vec<Zeroizing<[u8; 32]>>) -> Option<Self> {
        (!seeds.is_empty()).then_some(Self(seeds))
    }

    /// The place of the release, from 1.
    #[must_use]
    pub fn last(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The generator of a place, which is at most [`last`](Self::last).
    pub(in crate::privacy) fn rng(&self, place: u32) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(*self.0[place as usize - 1])
    }
}

#[cfg(test)]
impl PlaceSeeds {
    /// Fixed seeds up to a place, for tests.
    pub(in crate::privacy) fn up_to(seed: u8, place: u32) -> Self {
        let of = |place: u32| {
            let mut bytes = [seed; 32];
            bytes[..4].copy_from_slice(&place.to_be_bytes());
            Zeroizing::new(bytes)
        };
        Self((1..=place).map(of).collect())
    }
}
