//! Seeds of noise that is correlated over releases.

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

/// The secret seeds of noise that is correlated over a task's releases: one for each place up to that of a release, in order.
/// Each is drawn by itself when its place is first needed. One seed for all of them would make the noise of a place the same
/// whenever it is asked for, also where a backup was put back and the sum is another one: their difference has no noise then.
/// Whoever has the seeds can take the noise off: keep them like the exact sum, and never use one for two places or tasks.
pub struct PlaceSeeds(Vec<Zeroizing<[u8; 32]>>);

impl PlaceSeeds {
    /// Those of the places from 1 on, the last of which is the release's; nothing without one.
    #[must_use]
    pub fn new(seeds: Vec<Zeroizing<[u8; 32]>>) -> Option<Self> {
        (!seeds.is_empty()).then_some(Self(seeds))
    }

    /// The place of the release, from 1.
    #[must_use]
    pub fn last(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// What a place up to the [`last`](Self::last) draws from.
    pub(super) fn rng(&self, place: u32) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(*self.0[place as usize - 1])
    }
}

#[cfg(test)]
impl PlaceSeeds {
    /// Up to a place, for tests.
    pub(super) fn up_to(seed: u8, place: u32) -> Self {
        let of = |place: u32| {
            let mut bytes = [seed; 32];
            bytes[..4].copy_from_slice(&place.to_be_bytes());
            Zeroizing::new(bytes)
        };
        Self((1..=place).map(of).collect())
    }
}
