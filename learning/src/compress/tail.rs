//! The tail after the coordinates of a summable upload: weight, metrics and measured distortion, in limbs.
//!
//! The modulus may be too small for a total weight, so the weight is split into limbs as metrics are.

use super::input::Distortion;
use crate::metrics::{MAX_METRICS, MetricValue};
use crate::quantize::limbs::Limbs;
use crate::quantize::{DecodeError, HeadroomError, ImplausibleUpdate, QuantizationParams};

/// Metrics that a codec adds to the task's: norm and relative error of the update.
pub(super) const OWN_METRICS: usize = 2;
/// The count of every distortion metric, so that participants count alike; as large as possible for a sum with a
/// resolution of 2^-32.
const OWN_COUNT: u64 = 1 << 16;

/// The distortion as metrics.
pub(super) fn own_metrics(distortion: &Distortion) -> [MetricValue; OWN_METRICS] {
    [distortion.norm, distortion.added_error].map(|value| MetricValue { value, count: OWN_COUNT })
}

/// Removes the codec's metrics again. The error is the index of a metric beyond the possible sum of this many participants.
pub(super) fn split_own(metrics: &mut Vec<MetricValue>, participants: u32) -> Result<Distortion, usize> {
    let task = metrics.len() - OWN_METRICS;
    let count = u64::from(participants) * OWN_COUNT;
    match metrics.iter().skip(task).position(|metric| metric.count != count || metric.value < 0.0) {
        Some(index) => Err(task + index),
        None => {
            let distortion = Distortion { norm: metrics[task].value, added_error: metrics[task + 1].value };
            metrics.truncate(task);
            Ok(distortion)
        }
    }
}

/// Layout of the tail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    limbs: Limbs,
    modulus_bits: u8,
    max_weight: u32,
    metrics: usize,
}

impl Tail {
    /// For a modulus with at least six bits more than the cohort's.
    pub(super) fn new(params: &QuantizationParams, modulus_bits: u8) -> Result<Self, HeadroomError> {
        let metrics = params.metrics;
        if metrics > MAX_METRICS {
            return Err(HeadroomError::Metrics(metrics));
        }
        let limbs = Limbs::new(modulus_bits, params.max_cohort);
        Ok(Self { limbs, modulus_bits, max_weight: params.max_weight, metrics })
    }

    pub(super) fn words(&self) -> usize {
        self.of_weight() + (self.metrics + OWN_METRICS) * self.limbs.per_metric()
    }

    /// Largest magnitude of a word.
    pub(super) fn bound(&self) -> u64 {
        self.limbs.largest()
    }

    fn of_weight(&self) -> usize {
        self.limbs.for_bits(u32::BITS - self.max_weight.leading_zeros())
    }

    pub(super) fn encode(&self, weight: u32, metrics: &[MetricValue], distortion: &Distortion, words: &mut [u32]) {
        let mask = u32::MAX >> (32 - u32::from(self.modulus_bits));
        let (weight_words, metric_words) = words.split_at_mut(self.of_weight());
        self.limbs.split_integer(i64::from(weight), mask, weight_words);
        let own = own_metrics(distortion);
        let all = metrics.iter().chain(&own);
        for (metric, words) in all.zip(metric_words.chunks_exact_mut(self.limbs.per_metric())) {
            self.limbs.split(*metric, mask, words);
        }
    }

    /// Total weight, metrics and mean distortion of a sum.
    pub(super) fn decode(
        &self,
        words: &[u32],
        participants: u32,
    ) -> Result<(u64, Vec<MetricValue>, Distortion), DecodeError> {
        let (weight_words, metric_words) = words.split_at(self.of_weight());
        let most = u64::from(participants) * u64::from(self.max_weight);
        let weight = self.limbs.join_integer(weight_words, self.modulus_bits);
        let Some(total) = u64::try_from(weight).ok().filter(|w| (u64::from(participants)..=most).contains(w)) else {
            let weight = i64::try_from(weight).unwrap_or(i64::MAX);
            return Err(DecodeError::Weight { weight, participants, most });
        };
        let join = |(index, words)| {
            self.limbs.join(words, self.modulus_bits, participants).ok_or(DecodeError::Metric { index })
        };
        let metric_words = metric_words.chunks_exact(self.limbs.per_metric()).enumerate();
        let mut metrics = metric_words.map(join).collect::<Result<Vec<_>, _>>()?;
        let distortion = split_own(&mut metrics, participants).map_err(|index| DecodeError::Metric { index })?;
        Ok((total, metrics, distortion))
    }

    /// Checks the tail of one update.
    pub(super) fn inspect(&self, words: &[u32]) -> Result<(), ImplausibleUpdate> {
        let (weight, metrics) = words.split_at(self.of_weight());
        let limbs = metrics.chunks_exact(self.limbs.per_metric());
        if let Some(index) = limbs.into_iter().position(|words| !self.limbs.is_of_one(words, self.modulus_bits)) {
            return Err(ImplausibleUpdate::Metric { index });
        }
        let claimed = self.limbs.join_integer(weight, self.modulus_bits);
        if !self.limbs.are_of_one(weight, self.modulus_bits) || !(1..=i128::from(self.max_weight)).contains(&claimed) {
            let weight = i64::try_from(claimed).unwrap_or(i64::MAX);
            return Err(ImplausibleUpdate::Weight { weight, most: self.max_weight });
        }
        match self.decode(words, 1) {
            Ok(_) => Ok(()),
            Err(DecodeError::Metric { index }) => Err(ImplausibleUpdate::Metric { index }),
            Err(_) => Err(ImplausibleUpdate::Weight { weight: 0, most: self.max_weight }),
        }
    }
}
