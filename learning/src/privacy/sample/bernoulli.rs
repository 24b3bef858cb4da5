//! Coin flips with the exact probability of a floating-point number, and the cohorts drawn by them.

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use task_spec::SAMPLING_RATE_MIN;

/// A sampling rate above 0 and at most 1: each enrolled participant is drawn with this probability, independently.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SamplingRate(f64);

/// An invalid sampling rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a sampling rate must be at least 2^-60 and at most 1, not {0}")]
pub struct BadRate(pub f64);

impl SamplingRate {
    pub const ALL: Self = Self(1.0);

    /// # Errors
    /// [`BadRate`] outside 2^-60 to 1.
    pub fn new(rate: f64) -> Result<Self, BadRate> {
        if (SAMPLING_RATE_MIN..=1.0).contains(&rate) { Ok(Self(rate)) } else { Err(BadRate(rate)) }
    }

    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }

    /// Poisson sampling: the drawn indices below `population`, in order. Draw from all enrolled participants, before checking
    /// availability; a participant who is drawn and absent is a dropout.
    #[must_use]
    pub fn draw<R: CryptoRng + ?Sized>(self, population: u32, rng: &mut R) -> Vec<u32> {
        (0..population).filter(|_| self.flip(rng)).collect()
    }

    /// Heads with exactly this probability. A rate has 53 significant bits, the lowest at 2^-113 or above.
    fn flip<R: CryptoRng + ?Sized>(self, rng: &mut R) -> bool {
        let scaled = self.0 * 18_446_744_073_709_551_616.0;
        if self.0 >= 1.0 {
            return true;
        }
        let whole = scaled.floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^64")]
        let high = whole as u64;
        match rng.next_u64().cmp(&high) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^64")]
                let low = ((scaled - whole) * 18_446_744_073_709_551_616.0) as u64;
                rng.next_u64() < low
            }
        }
    }
}

impl TryFrom<f64> for SamplingRate {
    type Error = BadRate;

    fn try_from(rate: f64) -> Result<Self, BadRate> {
        Self::new(rate)
    }
}

impl From<SamplingRate> for f64 {
    fn from(rate: SamplingRate) -> Self {
        rate.0
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rand::{SeedableRng as _, TryCryptoRng, TryRng};
    use rand_chacha::ChaCha20Rng;

    use super::*;

    /// A scripted generator.
    struct Script(Vec<u64>);

    impl TryRng for Script {
        type Error = Infallible;

        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            unreachable!()
        }

        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            Ok(self.0.remove(0))
        }

        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
            unreachable!()
        }
    }

    impl TryCryptoRng for Script {}

    #[test]
    fn is_exact_to_the_last_bit() {
        // 0.1 is 0x1.999999999999ap-4, so 2^64 times it is 0x1999_9999_9999_9a00 exactly.
        let rate = SamplingRate::new(0.1).unwrap();
        assert!(rate.flip(&mut Script(vec![0x1999_9999_9999_99ff])));
        assert!(!rate.flip(&mut Script(vec![0x1999_9999_9999_9a00, 0])));
        assert!(!rate.flip(&mut Script(vec![0x1999_9999_9999_9a01])));
        // 2^-60 (1 + 2^-52): 16 and then 2^-48 of a unit.
        let rate = SamplingRate::new(f64::from_bits(SAMPLING_RATE_MIN.to_bits() + 1)).unwrap();
        assert!(rate.flip(&mut Script(vec![15])));
        assert!(rate.flip(&mut Script(vec![16, 0xffff])));
        assert!(!rate.flip(&mut Script(vec![16, 0x1_0000])));
    }

    #[test]
    fn draws_independently_over_the_population() {
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let rate = SamplingRate::new(0.25).unwrap();
        let sizes: Vec<usize> = (0..400).map(|_| rate.draw(200, &mut rng).len()).collect();
        let mean = sizes.iter().sum::<usize>() as f64 / 400.0;
        let variance = sizes.iter().map(|&n| (n as f64 - mean).powi(2)).sum::<f64>() / 399.0;
        // Binomial(200, 1/4): mean 50, variance 37.5; standard errors 0.31 and 2.7.
        assert!((mean - 50.0).abs() < 1.2 && (variance - 37.5).abs() < 11.0, "{mean} {variance}");
        assert_eq!(SamplingRate::ALL.draw(5, &mut rng), [0, 1, 2, 3, 4]);
        for bad in [0.0, -0.1, 1.000_001, 1e-19, f64::NAN] {
            assert!(SamplingRate::new(bad).is_err(), "{bad}");
        }
    }
}
