//! Randomness for keys, shares, masks and noise, always from the system.
//!
//! A seed (`seed`) makes training repeatable, and rounding in tasks without privacy. Secrets must not be repeatable. The state machine
//! keeps the two sources separate, so settings cannot mix them.

use std::convert::Infallible;

use rand::{TryCryptoRng, TryRng};
use ring::rand::{SecureRandom, SystemRandom};

/// The source of secrets.
pub type Secrets = Box<dyn secure_agg::CryptoRng + Send>;

/// The system's randomness, queried for every draw, so that this process holds no state that could be read, copied or
/// repeated.
pub(crate) struct SystemSecrets(SystemRandom);

impl SystemSecrets {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }

    fn draw<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Panics on a failure: continuing with a predictable key is unsafe, and callers could not handle the failure.
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes).expect("the system gave randomness when the participant was built");
    }
}

impl TryRng for SystemSecrets {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_ne_bytes(self.draw()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_ne_bytes(self.draw()))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.fill(bytes);
        Ok(())
    }
}

impl TryCryptoRng for SystemSecrets {}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn every_draw_differs() {
        let (mut one, mut other) = (SystemSecrets::new(), SystemSecrets::new());
        let (mut first, mut second) = ([0; 32], [0; 32]);
        one.fill_bytes(&mut first);
        other.fill_bytes(&mut second);
        assert_ne!(first, second);
        assert_ne!(one.next_u64(), one.next_u64());
        assert_ne!((one.next_u32(), one.next_u32()), (other.next_u32(), other.next_u32()));
    }
}
