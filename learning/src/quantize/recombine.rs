//! Decodes single updates to values and encodes values as a sum again, for robust rules in place of the mean. A rule uses the delta of each
//! update, without its claimed weight, and its result is encoded as a sum again: from there all tasks are processed alike.

use super::Codec;
use super::words::{lift, to_word};
use crate::metrics::MetricValue;

impl Codec {
    /// Decodes the parameter words of one update of this weight. Words and values have the same length.
    ///
    /// # Panics
    /// If they do not.
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    pub fn values_of(&self, words: &[u32], weight: u32, values: &mut [f32]) {
        assert_eq!(words.len(), values.len(), "a value for each word");
        let divisor = self.scale() * f64::from(weight.max(1));
        for (word, value) in words.iter().zip(values) {
            *value = (lift(*word, self.params.modulus_bits) as f64 / divisor) as f32;
        }
    }

    /// The weight of an update, from the first word after its parameter words; `None` if it is out of range.
    #[must_use]
    pub fn weight_of(&self, word: u32) -> Option<u32> {
        let weight = u32::try_from(lift(word, self.params.modulus_bits)).ok()?;
        (1..=self.params.max_weight).contains(&weight).then_some(weight)
    }

    /// The parameter words of a sum with this total weight whose mean is `values`, rounded to nearest and clamped to
    /// the clipping range. `weight` is at most that of a full cohort.
    ///
    /// # Panics
    /// Unless words and values have the same length.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to less than 2^31")]
    pub fn words_of_mean(&self, values: &[f32], weight: u64, words: &mut [u32]) {
        assert_eq!(words.len(), values.len(), "a word for each value");
        let limit = f64::from(self.levels) * weight as f64;
        let scale = self.scale() * weight as f64;
        for (value, word) in values.iter().zip(words) {
            let exact = (f64::from(*value) * scale).clamp(-limit, limit);
            *word = to_word(exact.round() as i64, self.mask());
        }
    }

    /// The words after the parameter words of an update of weight 1 with these metrics. Values are finite if their
    /// count is above 0; a count is capped at [`MAX_METRIC_COUNT`](super::MAX_METRIC_COUNT).
    ///
    /// # Panics
    /// If there are more metrics than the codec has.
    #[must_use]
    pub fn tail_of(&self, metrics: &[MetricValue]) -> Vec<u32> {
        assert!(metrics.len() <= self.params.metrics, "room for each metric");
        let mut tail = vec![0; self.len() - self.params.parameters];
        tail[0] = 1;
        for (metric, words) in metrics.iter().zip(tail[1..].chunks_exact_mut(self.limbs.per_metric())) {
            self.limbs.split(*metric, self.mask(), words);
        }
        tail
    }

    /// The words after the parameter words of a sum: this weight, and the sum of the metrics' limbs in `tails`, each
    /// the words after the parameter words of an update.
    #[must_use]
    pub fn tail_of_sum<'a>(&self, weight: u64, tails: impl IntoIterator<Item = &'a [u32]>) -> Vec<u32> {
        let mut sum = vec![0_u32; self.len() - self.params.parameters];
        for tail in tails {
            for (sum, word) in sum.iter_mut().zip(tail) {
                *sum = sum.wrapping_add(*word) & self.mask();
            }
        }
        // At most n W, with headroom even for B times as much.
        sum[0] = to_word(weight.cast_signed(), self.mask());
        sum
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha20Rng;

    use super::super::QuantizationParams;
    use super::*;
    use crate::privacy::ExactSum;
    use crate::update::Update;

    #[test]
    fn updates_taken_apart_and_put_together_by_the_mean_are_their_sum() {
        let params = QuantizationParams {
            parameters: 4,
            modulus_bits: 30,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 50,
            max_cohort: 5,
            metrics: 1,
        };
        let codec = Codec::new(params).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let deltas = [[0.5, -0.25, 0.0, 0.9], [-0.1, 0.3, 0.7, -1.0]];
        let updates: Vec<_> = deltas
            .iter()
            .zip([10, 40])
            .map(|(delta, examples)| {
                let metrics = vec![MetricValue { value: 0.5, count: examples }];
                codec.encode(&Update { delta: delta.to_vec(), examples, metrics }, &mut rng).unwrap().words
            })
            .collect();
        let mut rows = [[0.0; 4]; 2];
        for ((words, row), delta) in updates.iter().zip(&mut rows).zip(&deltas) {
            codec.values_of(&words[..4], codec.weight_of(words[4]).unwrap(), row);
            assert!(row.iter().zip(delta).all(|(a, b)| (a - b).abs() < 1e-5), "{row:?} is not {delta:?}");
        }
        let mean: Vec<f32> = rows[0].iter().zip(&rows[1]).map(|(a, b)| f32::midpoint(*a, *b)).collect();
        let mut words = vec![0; 4];
        codec.words_of_mean(&mean, 50, &mut words);
        words.extend(codec.tail_of_sum(50, updates.iter().map(|words| &words[4..])));
        let decoded = codec.decode(&ExactSum::new(words, 30, 2).unwrap().release_without_noise()).unwrap();
        assert!(decoded.delta.iter().zip(&mean).all(|(a, b)| (a - b).abs() < 1e-6));
        assert_eq!((decoded.weight, decoded.metrics[0]), (50, MetricValue { value: 0.5, count: 50 }));
    }

    #[test]
    fn what_was_measured_comes_back_from_tails() {
        let params = QuantizationParams {
            parameters: 1,
            modulus_bits: 32,
            clip_range: 1.0,
            clip_norm: None,
            max_weight: 1,
            max_cohort: 3,
            metrics: 2,
        };
        let codec = Codec::new(params).unwrap();
        let metrics = |value, count| [MetricValue { value, count }, MetricValue::default()];
        let tails = [codec.tail_of(&metrics(0.5, 300)), codec.tail_of(&metrics(-1.0, 100))];
        let mut words = vec![0];
        codec.words_of_mean(&[0.25], 2, &mut words);
        words.extend(codec.tail_of_sum(2, tails.iter().map(Vec::as_slice)));
        let decoded = codec.decode(&ExactSum::new(words, 32, 2).unwrap().release_without_noise()).unwrap();
        assert_eq!((decoded.delta[0], decoded.weight), (0.25, 2));
        assert_eq!(decoded.metrics, metrics(0.125, 400));
    }

    #[test]
    fn extremes_are_clamped_and_bad_weights_are_none() {
        let params = QuantizationParams {
            parameters: 2,
            modulus_bits: 16,
            clip_range: 0.5,
            clip_norm: None,
            max_weight: 100,
            max_cohort: 5,
            metrics: 0,
        };
        let codec = Codec::new(params).unwrap();
        let mut words = [0; 2];
        codec.words_of_mean(&[9.0, -9.0], 500, &mut words);
        let words = [words.to_vec(), codec.tail_of_sum(500, [])].concat();
        let decoded = codec.decode(&ExactSum::new(words, 16, 5).unwrap().release_without_noise()).unwrap();
        assert_eq!(decoded.delta, [0.5, -0.5]);
        assert_eq!([0, 1, 100, 101, 0xffff].map(|word| codec.weight_of(word)), [None, Some(1), Some(100), None, None]);
    }
}
