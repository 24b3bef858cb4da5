//! Uploads in bytes: their common format, and their expansion to words of the task's ordinary grid.
//!
//! Format: version, weight, measured relative error and norm, the task's metrics, then the codec's own part. All
//! lengths are fixed for a task; numbers are little-endian. Expansion rounds to the nearest word without randomness, so
//! every replica adds the same words.

use rand::Rng;

use super::codecs::Expanded;
use super::error::{CodecError, UploadError, VERSION};
use super::input::{Distortion, Input};
use super::tail::{OWN_METRICS, own_metrics, split_own};
use crate::metrics::MetricValue;
use crate::privacy::SumHeader;
use crate::quantize::limbs::{MAX_COUNT, MAX_VALUE};
use crate::quantize::{Codec, DecodeError, QuantizationParams, SumTail, to_word};

/// Version and weight.
const HEAD_BYTES: usize = 5;
/// Value as `f64`, count as `u32`.
const METRIC_BYTES: usize = 12;

/// A codec with uploads that must be expanded.
#[derive(Clone, Debug)]
pub(super) struct Compact {
    codec: Expanded,
    dense: Codec,
    metrics: usize,
}

impl Compact {
    pub(super) fn new(codec: Expanded, params: QuantizationParams) -> Result<Self, CodecError> {
        let dense = Codec::new(QuantizationParams { metrics: params.metrics.saturating_add(OWN_METRICS), ..params })?;
        Ok(Self { codec, dense, metrics: params.metrics })
    }

    /// The codec of the expanded words, with the distortion as two more metrics.
    pub(super) fn dense(&self) -> &Codec {
        &self.dense
    }

    pub(super) fn keeps_residual(&self) -> bool {
        self.codec.keeps_residual()
    }

    pub(super) fn bytes(&self) -> usize {
        self.head_bytes() + self.codec.bytes()
    }

    fn head_bytes(&self) -> usize {
        HEAD_BYTES + METRIC_BYTES * (self.metrics + OWN_METRICS)
    }

    /// The upload, and its decoding if it were the only update.
    pub(super) fn encode(&self, input: &Input<'_>, rng: &mut impl Rng) -> (Vec<u8>, Vec<f64>) {
        let mut body = Vec::with_capacity(self.bytes() - self.head_bytes());
        let range = f64::from(self.dense.params().clip_range);
        let sent = self.codec.encode(&input.values, range, &mut body, rng);
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.push(VERSION);
        bytes.extend_from_slice(&input.weight.to_le_bytes());
        let own = own_metrics(&input.distortion(&sent));
        for metric in own.iter().chain(input.metrics) {
            let count = u32::try_from(metric.count.min(MAX_COUNT)).unwrap_or(u32::MAX);
            let value = if count == 0 { 0.0 } else { metric.value.clamp(-MAX_VALUE, MAX_VALUE) };
            bytes.extend_from_slice(&value.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        bytes.append(&mut body);
        (bytes, sent)
    }

    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), UploadError> {
        let (head, body) = self.split(bytes)?;
        self.read_head(head)?;
        self.codec.expand(body, |_, _| ())
    }

    fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), UploadError> {
        if bytes.len() == self.bytes() {
            Ok(bytes.split_at(self.head_bytes()))
        } else {
            Err(UploadError::Length { expected: self.bytes(), got: bytes.len() })
        }
    }

    pub(super) fn expand(&self, bytes: &[u8]) -> Result<Vec<u32>, UploadError> {
        let (head, body) = self.split(bytes)?;
        let (weight, metrics) = self.read_head(head)?;
        let params = self.dense.params();
        let limit = f64::from(weight) * f64::from(self.dense.levels());
        let scale = limit / f64::from(params.clip_range);
        let mask = self.dense.mask();
        let word = |value: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "below 2^31 and rounded")]
            let nearest = (value * scale).clamp(-limit, limit).round() as i64;
            to_word(nearest, mask)
        };
        let mut words = vec![0; self.dense.len()];
        let (values, rest) = words.split_at_mut(params.parameters);
        self.codec.expand(body, |index, value| values[index] = word(value))?;
        let (weight_word, metric_words) = rest.split_at_mut(1);
        weight_word[0] = weight;
        let limbs = self.dense.limbs();
        for (metric, words) in metrics.iter().zip(metric_words.chunks_exact_mut(limbs.per_metric())) {
            limbs.split(*metric, mask, words);
        }
        Ok(words)
    }

    /// The weight and the metrics, the task's first.
    fn read_head(&self, head: &[u8]) -> Result<(u32, Vec<MetricValue>), UploadError> {
        let (&[version, ref weight @ ..], metrics) = head
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(UploadError::Length { expected: self.bytes(), got: head.len() })?;
        if version != VERSION {
            return Err(UploadError::Version(version));
        }
        let (weight, most) = (u32::from_le_bytes(*weight), self.dense.params().max_weight);
        if !(1..=most).contains(&weight) {
            return Err(UploadError::Weight { weight, most });
        }
        let mut read: Vec<MetricValue> = Vec::with_capacity(self.metrics + OWN_METRICS);
        for (index, metric) in metrics.as_chunks::<METRIC_BYTES>().0.iter().enumerate() {
            let [a, b, c, d, e, f, g, h, count @ ..] = *metric;
            let value = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let count = u64::from(u32::from_le_bytes(count));
            if !(-MAX_VALUE..=MAX_VALUE).contains(&value) || count > MAX_COUNT {
                let tasks = self.metrics;
                let index = if index < OWN_METRICS { tasks + index } else { index - OWN_METRICS };
                return Err(UploadError::Metric { index });
            }
            read.push(MetricValue { value, count });
        }
        read.rotate_left(OWN_METRICS);
        split_own(&mut read.clone(), 1).map_err(|index| UploadError::Metric { index })?;
        Ok((weight, read))
    }

    /// The decoded words after the values of a sum, and the distortion.
    pub(super) fn decode_tail(&self, sum: SumHeader, tail: &[u32]) -> Result<(SumTail, Distortion), DecodeError> {
        let mut tail = self.dense.decode_tail(sum, tail)?;
        let distortion =
            split_own(&mut tail.metrics, tail.participants).map_err(|index| DecodeError::Metric { index })?;
        Ok((tail, distortion))
    }
}
