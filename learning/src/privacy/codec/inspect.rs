//! Checks an encoded private update before it is added to a sum, in tasks with updates visible to the coordinator: without masks and
//! without their own noise.
//!
//! Clipping is the participant's duty and protects the participant. A coordinator able to read updates still rejects an unclipped one,
//! which could spoil the sum for all.

use crate::privacy::PrivateCodec;

/// Reasons [`PrivateCodec::encode`] cannot have produced an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImplausiblePrivateUpdate {
    /// The number of words is wrong.
    #[error("an update of this task has {expected} words, this one has {got}")]
    Length { expected: usize, got: usize },
    /// The update is longer than the clipping norm allows.
    #[error("its squared length is {square} in units of the grid; a clipped update has at most {most}")]
    NotClipped {
        /// Squared length of the update.
        square: u128,
        /// Maximum squared length.
        most: u64,
    },
    /// The last word is not one of its two valid values.
    #[error("its last word says neither that it was within the clipping norm nor that it was not")]
    Count,
}

/// Checks an update word by word.
#[derive(Clone, Debug)]
pub struct PrivateInspector {
    codec: PrivateCodec,
    seen: usize,
    square: u128,
    count: Option<u32>,
}

impl PrivateCodec {
    /// An inspector for one update.
    #[must_use]
    pub fn inspector(&self) -> PrivateInspector {
        PrivateInspector { codec: *self, seen: 0, square: 0, count: None }
    }
}

impl PrivateInspector {
    /// Checks the next word, which must be below 2^b.
    pub fn push(&mut self, word: u32) {
        if self.seen < self.codec.coordinates() {
            self.square += u128::from(self.codec.centred(word).unsigned_abs().pow(2));
        } else {
            self.count = Some(word);
        }
        self.seen += 1;
    }

    /// # Errors
    /// Any [`ImplausiblePrivateUpdate`].
    pub fn finish(self) -> Result<(), ImplausiblePrivateUpdate> {
        let Self { codec, seen, square, count } = self;
        if seen != codec.len() {
            return Err(ImplausiblePrivateUpdate::Length { expected: codec.len(), got: seen });
        }
        let most = codec.square_max();
        if square > u128::from(most) {
            return Err(ImplausiblePrivateUpdate::NotClipped { square, most });
        }
        match count {
            Some(word) if codec.centred(word).unsigned_abs() != u64::from(codec.count_units()) => {
                Err(ImplausiblePrivateUpdate::Count)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::privacy::PrivateCodecParams;
    use crate::update::Update;

    fn codec(count_noise: Option<f64>) -> PrivateCodec {
        PrivateCodec::new(PrivateCodecParams {
            parameters: 50,
            modulus_bits: 32,
            max_cohort: 20,
            noise_multiplier: 1.0,
            noise_ceiling: 1.0,
            rotate: false,
            wrap_sigmas: None,
            count_noise,
            max_weight: 1,
            expected_cohort: 20.0,
            expected_weight: 1.0,
        })
        .unwrap()
    }

    fn judge(codec: &PrivateCodec, words: &[u32]) -> Result<(), ImplausiblePrivateUpdate> {
        let mut inspector = codec.inspector();
        words.iter().for_each(|&word| inspector.push(word));
        inspector.finish()
    }

    #[test]
    fn takes_what_is_encoded_and_nothing_longer() {
        for codec in [codec(None), codec(Some(5.0))] {
            for length in [0.1_f32, 1.0, 30.0] {
                let update = Update { delta: vec![length; 50], examples: 3, metrics: vec![] };
                let mut rng = ChaCha20Rng::seed_from_u64(1);
                let mut words = codec.encode(&update, 1.0, &[0; 32], &mut rng).unwrap().words;
                assert_eq!(judge(&codec, &words), Ok(()));
                words[7] = 1 << 30;
                assert!(matches!(judge(&codec, &words), Err(ImplausiblePrivateUpdate::NotClipped { .. })));
                words.pop();
                assert!(matches!(judge(&codec, &words), Err(ImplausiblePrivateUpdate::Length { .. })));
            }
        }
        let codec = codec(Some(5.0));
        let update = Update { delta: vec![0.0; 50], examples: 3, metrics: vec![] };
        let mut words = codec.encode(&update, 1.0, &[0; 32], &mut ChaCha20Rng::seed_from_u64(1)).unwrap().words;
        words[50] = words[50].wrapping_add(1);
        assert_eq!(judge(&codec, &words), Err(ImplausiblePrivateUpdate::Count));
    }
}
