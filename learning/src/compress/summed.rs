//! The summable codecs: a linear map to fewer coordinates, the same for the whole round, with few bits for each.
//!
//! Weights are applied as a factor of at most 1 *before* rounding (`w / W`), so they take no bits in the coordinates'
//! sum. The weight itself follows the coordinates and divides their sum.

use rand::Rng;

use super::CodecError;
use super::codecs::Projection;
use super::input::{Decoded, Input};
use super::lanes::Lanes;
use super::tail::Tail;
use crate::clip::FixedClip;
use crate::privacy::NoisedSum;
use crate::quantize::{
    DecodeError, HeadroomError, ImplausibleUpdate, MAX_COHORT, MeanUpdate, QuantizationParams, QuantizedUpdate,
};

/// Linear map, lanes, tail.
#[derive(Clone, Debug)]
pub(super) struct Summed {
    projection: Projection,
    /// `c`: coordinates are clamped to `±c`.
    range: f64,
    lanes: Lanes,
    tail: Tail,
    max_weight: u32,
    max_cohort: u32,
    error_feedback: bool,
}

impl Summed {
    pub(super) fn new(
        projection: Projection,
        range: f64,
        bits: u8,
        error_feedback: bool,
        params: &QuantizationParams,
    ) -> Result<Self, CodecError> {
        check(params)?;
        let lanes = Lanes::new(bits, params.max_cohort)?;
        let tail = Tail::new(params, lanes.modulus_bits())?;
        let (max_weight, max_cohort) = (params.max_weight, params.max_cohort);
        Ok(Self { projection, range, lanes, tail, max_weight, max_cohort, error_feedback })
    }

    fn coordinate_words(&self) -> usize {
        self.lanes.words(self.projection.coordinates())
    }

    pub(super) fn len(&self) -> usize {
        self.coordinate_words() + self.tail.words()
    }

    pub(super) fn modulus_bits(&self) -> u8 {
        self.lanes.modulus_bits()
    }

    pub(super) fn input_bound(&self) -> u64 {
        self.lanes.bound().max(self.tail.bound())
    }

    pub(super) fn keeps_residual(&self) -> bool {
        self.error_feedback
    }

    /// The words, and their decoding if they were the only update.
    pub(super) fn encode(&self, input: &Input<'_>, seed: &[u8; 32], rng: &mut impl Rng) -> (QuantizedUpdate, Vec<f64>) {
        let mut coordinates = self.projection.project(&input.values, seed);
        let mut words = vec![0; self.len()];
        let (coordinate_words, tail) = words.split_at_mut(self.coordinate_words());
        let share = f64::from(input.weight) / f64::from(self.max_weight);
        self.lanes.encode(&mut coordinates, self.range, share, coordinate_words, rng);
        let sent = self.projection.expand(&coordinates, seed);
        self.tail.encode(input.weight, input.metrics, &input.distortion(&sent), tail);
        (QuantizedUpdate { words }, sent)
    }

    pub(super) fn decode(&self, sum: &NoisedSum, seed: &[u8; 32]) -> Result<Decoded, DecodeError> {
        let (bits, participants) = (self.modulus_bits(), sum.participants());
        if sum.modulus_bits() != bits {
            return Err(DecodeError::ModulusBits { expected: bits, got: sum.modulus_bits() });
        }
        if sum.words().len() != self.len() {
            return Err(DecodeError::Length { expected: self.len(), got: sum.words().len() });
        }
        if !(1..=self.max_cohort).contains(&participants) {
            return Err(DecodeError::Participants { got: participants, most: self.max_cohort });
        }
        let (words, tail) = sum.words().split_at(self.coordinate_words());
        let (weight, metrics, distortion) = self.tail.decode(tail, participants)?;
        let sums = self.lanes.decode(words, participants, self.projection.coordinates(), self.range);
        let mut coordinates = sums.map_err(|index| DecodeError::OutOfRange { index })?;
        let factor = f64::from(self.max_weight) / weight as f64;
        coordinates.iter_mut().for_each(|value| *value *= factor);
        let expanded = self.projection.expand(&coordinates, seed);
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let delta = expanded.into_iter().map(|value| value as f32).collect();
        Ok(Decoded { mean: MeanUpdate { delta, weight, participants, metrics }, distortion: Some(distortion) })
    }

    pub(super) fn inspector(&self) -> LanesInspector {
        let (lanes, tail, coordinates) = (self.lanes, self.tail, self.projection.coordinates());
        LanesInspector { lanes, tail, coordinates, seen: 0, bad: None, rest: Vec::with_capacity(tail.words()) }
    }
}

fn check(params: &QuantizationParams) -> Result<(), CodecError> {
    if !params.clip_range.is_normal() || params.clip_range < 0.0 {
        return Err(HeadroomError::ClipRange(params.clip_range).into());
    }
    if params.max_weight == 0 {
        return Err(HeadroomError::MaxWeight.into());
    }
    if params.max_cohort == 0 || params.max_cohort > MAX_COHORT {
        return Err(HeadroomError::MaxCohort(params.max_cohort).into());
    }
    params.clip_norm.map(FixedClip::new).transpose().map_err(HeadroomError::from)?;
    Ok(())
}

/// Checks a summable update word by word and keeps only the tail.
#[derive(Clone, Debug)]
pub struct LanesInspector {
    lanes: Lanes,
    tail: Tail,
    coordinates: usize,
    seen: usize,
    /// Index and value of the first invalid word.
    bad: Option<(usize, u32)>,
    rest: Vec<u32>,
}

impl LanesInspector {
    pub fn push(&mut self, word: u32) {
        let words = self.lanes.words(self.coordinates);
        if self.seen < words {
            let left = self.coordinates - self.seen * self.lanes.per_word();
            if self.bad.is_none() && !self.lanes.is_of_one(word, left) {
                self.bad = Some((self.seen, word));
            }
        } else if self.rest.len() < self.tail.words() {
            self.rest.push(word);
        }
        self.seen += 1;
    }

    /// # Errors
    /// Any [`ImplausibleUpdate`].
    pub fn finish(self) -> Result<(), ImplausibleUpdate> {
        let expected = self.lanes.words(self.coordinates) + self.tail.words();
        if self.seen != expected {
            return Err(ImplausibleUpdate::Length { expected, got: self.seen });
        }
        if let Some((index, word)) = self.bad {
            return Err(ImplausibleUpdate::OutOfRange {
                index,
                value: crate::quantize::lift(word, self.lanes.modulus_bits()),
                most: self.lanes.bound().cast_signed(),
            });
        }
        self.tail.inspect(&self.rest)
    }
}
