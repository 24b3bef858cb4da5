//! Random streams derived from one seed: one per purpose and subject, so that each device's draws are independent of
//! the others'.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use rand_distr::{Distribution as _, LogNormal};

/// Purpose of a stream.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// Speed, links and habits of a device.
    Profile,
    /// A device's key.
    Key,
    /// A participant's pauses and shuffling.
    Entropy,
    /// A participant's keys and masks of secure aggregation.
    Secrets,
    /// When a device is available on one day.
    Day,
    /// Whether, where and for how long a device vanishes in one round.
    Fate,
    /// A device's examples.
    Data,
    /// Everything the coordinator draws.
    Coordinator,
    /// What goes wrong.
    Schedule,
    /// A round of a region.
    Region,
}

/// The stream of `seed` for a purpose and a subject, given by two numbers.
pub fn stream(seed: u64, purpose: Purpose, about: u64, more: u64) -> ChaCha20Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..15].copy_from_slice(b"simulat");
    key[15] = purpose as u8;
    key[16..24].copy_from_slice(&about.to_le_bytes());
    key[24..].copy_from_slice(&more.to_le_bytes());
    ChaCha20Rng::from_seed(key)
}

/// Draws from a lognormal distribution, given its median and the standard deviation of its logarithm.
pub(crate) fn lognormal(median: f64, sigma: f64, rng: &mut ChaCha20Rng) -> f64 {
    // Both were checked: a positive median and a finite, non-negative sigma.
    LogNormal::new(median.ln(), sigma).map_or(median, |distribution| distribution.sample(rng))
}

/// Uniform in [0, 1).
pub(crate) fn uniform(rng: &mut ChaCha20Rng) -> f64 {
    // 53 bits, as many as a double holds.
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
