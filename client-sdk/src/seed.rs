//! A round's randomness: from the system, or repeatable from a seed.
//!
//! With a seed, all draws of a participant are a function of (seed, round, name), whatever the process and however
//! often it was restarted, so a demo and separate processes publish the same model. A seed makes rounding predictable
//! and is for experiments; masks, noise and the rounding of private updates never use it.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use ring::digest;

/// The purpose of a derived key; each purpose has its own stream.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Training,
    Rounding,
}

/// The keys of one round.
pub(crate) struct RoundSeeds {
    /// For the trainer: shuffling and dropout.
    pub(crate) training: u64,
    pub(crate) rounding: ChaCha20Rng,
}

impl RoundSeeds {
    /// The same arguments give the same keys on every device.
    pub(crate) fn repeatable(seed: u64, round: u32, name: &str) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = derive(seed, round, name, Purpose::Training);
        let rounding = ChaCha20Rng::from_seed(derive(seed, round, name, Purpose::Rounding));
        Self { training: u64::from_le_bytes([a, b, c, d, e, f, g, h]), rounding }
    }

    /// Fresh keys; `rng` must be cryptographic.
    pub(crate) fn fresh(rng: &mut ChaCha20Rng) -> Self {
        Self { training: rng.next_u64(), rounding: ChaCha20Rng::from_rng(rng) }
    }
}

fn derive(seed: u64, round: u32, name: &str, purpose: Purpose) -> [u8; 32] {
    let purpose: &[u8] = match purpose {
        Purpose::Training => b"training",
        Purpose::Rounding => b"rounding",
    };
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [b"tributary client-sdk seed".as_slice(), purpose, &seed.to_le_bytes(), &round.to_le_bytes()] {
        context.update(&[u8::try_from(part.len()).unwrap_or(u8::MAX)]);
        context.update(part);
    }
    context.update(name.as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(context.finish().as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, round: u32, name: &str) -> (u64, u64) {
        let mut seeds = RoundSeeds::repeatable(seed, round, name);
        (seeds.training, seeds.rounding.next_u64())
    }

    #[test]
    fn a_round_repeats_and_shares_nothing_with_others() {
        assert_eq!(drawn(1, 2, "a"), drawn(1, 2, "a"));
        for other in [drawn(2, 2, "a"), drawn(1, 3, "a"), drawn(1, 2, "b")] {
            assert_ne!(drawn(1, 2, "a").0, other.0);
            assert_ne!(drawn(1, 2, "a").1, other.1);
        }
    }

    #[test]
    fn without_a_seed_every_round_differs() {
        let mut rng = ChaCha20Rng::from_seed([7; 32]);
        let (mut first, mut second) = (RoundSeeds::fresh(&mut rng), RoundSeeds::fresh(&mut rng));
        assert_ne!(first.training, second.training);
        assert_ne!(first.rounding.next_u64(), second.rounding.next_u64());
    }
}
