//! The coordinator's only source of randomness; tests seed it.

use std::sync::Arc;

use listener::PoisonFreeMutex;
use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use ring::rand::SecureRandom as _;
use uuid::Uuid;

/// A shared random generator. It must be cryptographic outside tests, since it generates tokens.
#[derive(Clone)]
pub struct Random(Arc<PoisonFreeMutex<dyn Rng + Send>>);

impl Random {
    /// A source that draws from `rng`.
    pub fn new(rng: impl Rng + Send + 'static) -> Self {
        Self(Arc::new(PoisonFreeMutex::new(rng)))
    }

    /// A ChaCha20 generator seeded by the operating system.
    ///
    /// # Errors
    /// The operating system's random source failed.
    pub fn from_system() -> Result<Self, ring::error::Unspecified> {
        let mut seed = [0; 32];
        ring::rand::SystemRandom::new().fill(&mut seed)?;
        Ok(Self::new(ChaCha20Rng::from_seed(seed)))
    }

    /// For tests and simulations: the same seed gives the same ids and tokens.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self::new(ChaCha20Rng::seed_from_u64(seed))
    }

    /// Calls `draw` with the locked generator.
    pub fn with<T>(&self, draw: impl FnOnce(&mut dyn Rng) -> T) -> T {
        // A panic cannot break a generator.
        draw(&mut *self.0.lock())
    }

    /// An array of `N` random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.with(|rng| rng.fill_bytes(&mut bytes));
        bytes
    }

    /// A random (version 4) UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid()
    }

    /// Uniform in `0..=most`, for spreading.
    #[must_use]
    pub fn up_to(&self, most: u64) -> u64 {
        let word = u64::from_le_bytes(self.bytes());
        most.checked_add(1).map_or(word, |bound| word % bound)
    }
}
