//! Independent streams of randomness from one seed.
//!
//! Each purpose and each participant draws from its own stream, so that draws do not affect each other, and a process
//! can generate a single participant's data.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The purpose of a stream; distinct purposes give independent streams.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Partition,
    Split,
    Synthetic,
}

/// The stream of `seed` for one purpose and one index (a participant, or 0).
pub(crate) fn stream(seed: u64, purpose: Purpose, index: u64) -> ChaCha8Rng {
    let name: &[u8; 16] = match purpose {
        Purpose::Partition => b"data/partition  ",
        Purpose::Split => b"data/split      ",
        Purpose::Synthetic => b"data/synthetic  ",
    };
    let mut key = [0; 32];
    key[..16].copy_from_slice(name);
    key[16..24].copy_from_slice(&seed.to_le_bytes());
    key[24..].copy_from_slice(&index.to_le_bytes());
    ChaCha8Rng::from_seed(key)
}

/// `real` truncated to a whole number: negative numbers and NaN give 0, larger ones `most`.
pub(crate) fn whole(real: f64, most: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float to integer casts saturate, and the next step bounds the result"
    )]
    let whole = real as usize;
    whole.min(most)
}
