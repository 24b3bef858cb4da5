//! Noise shared by two runs, to compare a run with killed processes to one without, byte for byte. Only with the feature
//! `deliberate-faults`, for tests only: the seed reveals the noise.

use std::sync::LazyLock;

use ring::digest::{Context, SHA256};

/// The environment variable with the number from which all seeds of noise are derived; without it noise is random.
pub const VARIABLE: &str = "TRIBUTARY_NOISE_SEED";

#[expect(clippy::disallowed_methods, reason = "a test's way into the executable, which has no setting for it")]
static SEED: LazyLock<Option<u64>> = LazyLock::new(|| std::env::var(VARIABLE).ok()?.parse().ok());

/// The seed for a purpose in an attempt at a round, the same in every process with the same [`VARIABLE`]; `None` without it.
///
/// `SHA-256("tributary/repeatable noise/1" || u64be(seed) || u32be(round) || u32be(attempt) || purpose)`.
#[must_use]
pub fn seed(round: u32, attempt: u32, purpose: &str) -> Option<[u8; 32]> {
    SEED.map(|seed| derive(seed, round, attempt, purpose))
}

fn derive(seed: u64, round: u32, attempt: u32, purpose: &str) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    context.update(b"tributary/repeatable noise/1");
    context.update(&seed.to_be_bytes());
    context.update(&round.to_be_bytes());
    context.update(&attempt.to_be_bytes());
    context.update(purpose.as_bytes());
    let mut derived = [0; 32];
    derived.copy_from_slice(context.finish().as_ref());
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_shares_nothing_with_others() {
        let one = derive(1, 2, 3, "noise");
        assert_eq!(one, derive(1, 2, 3, "noise"));
        let others =
            [derive(2, 2, 3, "noise"), derive(1, 3, 3, "noise"), derive(1, 2, 4, "noise"), derive(1, 2, 3, "update")];
        assert!(others.iter().all(|other| *other != one));
    }
}
