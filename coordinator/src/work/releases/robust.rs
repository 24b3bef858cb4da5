//! Combines the unmasked inputs of a round, or the means of its masked groups, by a robust rule.
//!
//! Inputs are not folded on arrival: a rule needs all of them together. It processes slices of coordinates, so memory does not grow with
//! model or cohort: a slice of all inputs takes at most [`SLICE_BYTES`]. The aggregator computes sorting and inner products on its device;
//! `learning` decides. The result is converted back into a sum, and the round then proceeds like any other.
//!
//! Every blob is read completely and verified before any slice of it is used.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aggregation::robust::Inputs;
use aggregation::{Aggregator, Answered, Effort, FallbackEvent};
use federation::id::{Digest, ParticipantId};
use learning::robust::{self, CoordinateRule, Gram, Judgement, Method, anomaly_scores, centre, coordinates};
use learning::{Codec, ExactSum, MeanUpdate, NoisedSum};
use secure_agg::modular::Modulus;
use secure_agg::packing::{Unpacker, packed_len, unpack};
use store::entity::admitted::Admitted;
use store::entity::noised_sum::SumWork;
use store::{BlobRead, StoreError, VerifiedRead};
use task_spec::RobustSpec;

use crate::rounds::inputs::open_input;
use crate::work::summing::sums::blocking;
use crate::work::{Environment, StepError};
use recipe::TaskModel;
use recipe::server::RobustAggregation;

/// Maximum memory for one slice of all inputs.
const SLICE_BYTES: usize = 32 << 20;
/// Bytes per coordinate of an input: a word, a value, and the value in 16 bits.
const BYTES_PER_COORDINATE: usize = 4 + 4 + 2;
/// Slices start at whole bytes for every modulus.
const ALIGNMENT: usize = 8;
/// Maximum number of open blobs.
const OPEN_AT_ONCE: usize = 64;
/// Headroom for distances: up to this factor beyond the others, an outlier is distinguished from a farther one.
const HEADROOM: f64 = 8.0;

/// Result of a robust rule over a round's inputs.
pub(super) struct Combined {
    pub(super) sum: NoisedSum,
    /// Anomaly score of each input.
    pub(super) scores: Vec<(ParticipantId, f64)>,
    /// Work of unmasking the groups' sums, or of comparing unmasked inputs.
    pub(super) work: Option<SumWork>,
}

/// Result of a robust rule over updates.
pub(super) struct Ruled {
    pub(super) sum: NoisedSum,
    /// How unusual each update is.
    pub(super) scores: Vec<f64>,
    pub(super) compared: Compared,
}

/// The work on comparing updates, slice by slice.
#[derive(Default)]
pub(super) struct Compared {
    /// The device of the last slice, and the time for all of them.
    pub(super) effort: Option<Effort>,
    /// The first failure of a device, if any; another took over.
    pub(super) failed: Option<FallbackEvent>,
}

impl Compared {
    /// Adds the work of one more slice.
    fn note<T>(&mut self, Answered { answers, effort, fallback }: Answered<T>) -> Vec<T> {
        let before = self.effort.take().map_or(Duration::ZERO, |effort| effort.took);
        self.effort = Some(Effort { took: before + effort.took, ..effort });
        if fallback.is_some() {
            metrics::counter!("tributary_device_fallbacks_total").increment(1);
            self.failed = self.failed.take().or(fallback);
        }
        answers
    }
}

/// The updates compared by a rule.
struct Updates<'a> {
    env: &'a Environment,
    codec: Codec,
    source: Source,
    /// For each update its weight, and the words after its parameters.
    tails: Vec<(u32, Vec<u32>)>,
}

/// Source of the values.
enum Source {
    /// Stored inputs with their sizes and their modulus.
    Blobs(Vec<(Digest, u64)>, Modulus),
    /// Means of groups, unmasked in memory.
    Means(Arc<[Vec<f32>]>),
}

/// Combines the inputs of a round.
///
/// # Errors
/// [`StepError::is_loss`] if an input is unreadable.
pub(super) async fn combine(
    env: &Environment,
    model: &TaskModel,
    robust: RobustAggregation,
    inputs: &[Admitted],
) -> Result<Ruled, StepError> {
    let codec = *model.codec.plain().ok_or_else(|| StepError::unworkable("a robust rule needs updates as they are"))?;
    let attackers = robust.spec.attackers_among(u32::try_from(inputs.len()).unwrap_or(u32::MAX));
    let blobs = inputs.iter().map(|input| (input.sha256, input.bytes)).collect();
    let mut updates = Updates { env, codec, source: Source::Blobs(blobs, model.modulus), tails: Vec::new() };
    updates.read_tails().await?;
    updates.combine(&robust.spec, attackers).await
}

/// Combines the means of groups with equal weights. The sum is one of `codec`.
///
/// # Errors
/// [`StepError::Unworkable`] for too few groups.
pub(super) async fn combine_means(
    env: &Environment,
    codec: Codec,
    spec: &RobustSpec,
    attackers: u32,
    means: Vec<MeanUpdate>,
) -> Result<Ruled, StepError> {
    let tails = means.iter().map(|mean| (1, codec.tail_of(&mean.metrics))).collect();
    let values = means.into_iter().map(|mean| mean.delta).collect();
    Updates { env, codec, source: Source::Means(values), tails }.combine(spec, attackers).await
}

impl Updates<'_> {
    /// The result of the rule, in the form of a sum.
    async fn combine(&self, spec: &RobustSpec, attackers: u32) -> Result<Ruled, StepError> {
        let count = u32::try_from(self.tails.len()).unwrap_or(u32::MAX);
        robust::check(spec.rule, count, attackers).map_err(StepError::unworkable)?;
        // Claimed weights only determine the resolution of the encoded result.
        let weight = self.tails.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut compared = Compared::default();
        let (mut words, distances) = match robust::method(spec.rule) {
            Method::Coordinates(rule) => self.by_coordinate(rule, attackers, weight, &mut compared).await?,
            Method::Distances(weigh) => {
                let gram = self.gram(attackers, &mut compared).await?;
                let judged = robust::judge(spec, weigh, &gram, attackers);
                let Judgement { weights, distances } = judged.map_err(StepError::unworkable)?;
                (self.weighted(weights, weight).await?, distances)
            }
        };
        let scores = anomaly_scores(&distances);
        words.extend(self.codec.tail_of_sum(weight, self.believed(&scores, attackers)));
        let bits = self.codec.params().modulus_bits;
        let sum = ExactSum::new(words, bits, count).map_err(StepError::unworkable)?;
        Ok(Ruled { sum: sum.release_without_noise(), scores, compared })
    }

    fn parameters(&self) -> usize {
        self.codec.params().parameters
    }

    fn slices(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (inputs, parameters) = (self.tails.len().max(1), self.parameters());
        let length = (SLICE_BYTES / BYTES_PER_COORDINATE / inputs / ALIGNMENT).max(1) * ALIGNMENT;
        (0..parameters).step_by(length).map(move |start| start..parameters.min(start + length))
    }

    /// Reads every input completely.
    async fn read_tails(&mut self) -> Result<(), StepError> {
        let Source::Blobs(blobs, modulus) = &self.source else { return Ok(()) };
        for &(blob, bytes) in blobs {
            let packed = VerifiedRead::new(open_input(&self.env.blobs, blob, bytes).await?, blob);
            let (codec, modulus) = (self.codec, *modulus);
            self.tails.push(blocking(move || read_tail(packed, blob, codec, modulus)).await?);
        }
        Ok(())
    }

    /// The values of one slice of all inputs.
    async fn load(&self, slice: &Range<usize>) -> Result<Vec<Vec<f32>>, StepError> {
        let (blobs, modulus) = match &self.source {
            Source::Blobs(blobs, modulus) => (blobs, *modulus),
            Source::Means(means) => return Ok(means.iter().map(|mean| mean[slice.clone()].to_vec()).collect()),
        };
        let mut rows = Vec::with_capacity(blobs.len());
        for (blobs, tails) in blobs.chunks(OPEN_AT_ONCE).zip(self.tails.chunks(OPEN_AT_ONCE)) {
            let mut open = Vec::with_capacity(blobs.len());
            for (&(blob, bytes), (weight, _)) in blobs.iter().zip(tails) {
                open.push((open_input(&self.env.blobs, blob, bytes).await?, *weight));
            }
            let (codec, slice) = (self.codec, slice.clone());
            let read = move || {
                open.into_iter().map(|(blob, weight)| read_slice(blob, weight, codec, modulus, &slice)).collect()
            };
            let loaded: Vec<Vec<f32>> = blocking(read).await?;
            rows.extend(loaded);
        }
        Ok(rows)
    }

    /// The result's words of parameters, and each input's distance from it.
    async fn by_coordinate(
        &self,
        rule: CoordinateRule,
        attackers: u32,
        weight: u64,
        compared: &mut Compared,
    ) -> Result<(Vec<u32>, Vec<f64>), StepError> {
        let mut words = vec![0; self.parameters()];
        let mut squares = vec![0.0; self.tails.len()];
        for slice in self.slices() {
            let rows = self.load(&slice).await?;
            let (aggregator, codec) = (Arc::clone(&self.env.aggregator), self.codec);
            let (answered, distances) = blocking(move || {
                let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
                let Answered { answers: values, effort, fallback } =
                    of_coordinates(&*aggregator, rule, attackers as usize, &rows)?;
                let mut made = vec![0; values.len()];
                codec.words_of_mean(&values, weight, &mut made);
                let distances = coordinates::distances(&rows, &values);
                Ok::<_, StepError>((Answered { answers: made, effort, fallback }, distances))
            })
            .await?;
            let made = compared.note(answered);
            words[slice].copy_from_slice(&made);
            squares.iter_mut().zip(&distances).for_each(|(sum, distance)| *sum += distance * distance);
        }
        Ok((words, squares.into_iter().map(f64::sqrt).collect()))
    }

    /// The inner products of all pairs.
    async fn gram(&self, attackers: u32, compared: &mut Compared) -> Result<Gram, StepError> {
        let mut gram = Gram::zero(self.tails.len());
        for slice in self.slices() {
            let rows = self.load(&slice).await?;
            let aggregator = Arc::clone(&self.env.aggregator);
            let (products, unit) = blocking(move || {
                let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
                let mut centred = vec![vec![0; rows[0].len()]; rows.len()];
                let unit = centre(&rows, attackers as usize, HEADROOM, &mut centred);
                let centred: Vec<_> = centred.iter().map(Vec::as_slice).collect();
                Ok::<_, StepError>((aggregator.measured_gram(Inputs::new(&centred)?)?, unit))
            })
            .await?;
            gram.add(&compared.note(products), unit).map_err(StepError::unworkable)?;
        }
        Ok(gram)
    }

    /// The words of parameters of the inputs' mean with these weights.
    async fn weighted(&self, weights: Vec<f64>, weight: u64) -> Result<Vec<u32>, StepError> {
        let mut words = vec![0; self.parameters()];
        let weights = Arc::new(weights);
        for slice in self.slices() {
            let rows = self.load(&slice).await?;
            let (weights, codec) = (Arc::clone(&weights), self.codec);
            let made = blocking(move || {
                let rows: Vec<_> = rows.iter().map(Vec::as_slice).collect();
                let mut values = vec![0.0; rows[0].len()];
                coordinates::weighted_sum(&rows, &weights, &mut values);
                let mut made = vec![0; values.len()];
                codec.words_of_mean(&values, weight, &mut made);
                Ok::<_, StepError>(made)
            })
            .await?;
            words[slice].copy_from_slice(&made);
        }
        Ok(words)
    }

    /// The metrics of all except the most unusual inputs; excludes as many as may be hostile.
    fn believed(&self, scores: &[f64], attackers: u32) -> impl Iterator<Item = &[u32]> {
        let mut order: Vec<_> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        order.truncate(scores.len().saturating_sub(attackers as usize));
        order.into_iter().map(|input| self.tails[input].1.as_slice())
    }
}

fn of_coordinates(
    aggregator: &dyn Aggregator,
    rule: CoordinateRule,
    attackers: usize,
    rows: &[&[f32]],
) -> Result<Answered<f32>, StepError> {
    let mut centred = vec![vec![0; rows[0].len()]; rows.len()];
    let unit = centre(rows, attackers, 1.0, &mut centred);
    let centred: Vec<_> = centred.iter().map(Vec::as_slice).collect();
    let inputs = Inputs::new(&centred)?;
    let (Answered { answers: sums, effort, fallback }, parts) = match rule {
        CoordinateRule::TrimmedMean => {
            (aggregator.measured_trimmed_mean(inputs, attackers)?, rows.len() - 2 * attackers)
        }
        CoordinateRule::Median => (aggregator.measured_median(inputs)?, 2),
    };
    let unit = unit / f64::from(u32::try_from(parts).unwrap_or(u32::MAX));
    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
    let answers = sums.iter().map(|&sum| (f64::from(sum) * unit) as f32).collect();
    Ok(Answered { answers, effort, fallback })
}

/// The weight of an update, and the words after its parameters.
fn read_tail(
    mut packed: VerifiedRead,
    blob: Digest,
    codec: Codec,
    modulus: Modulus,
) -> Result<(u32, Vec<u32>), StepError> {
    let what = || format!("blob {blob} is no update");
    let parameters = codec.params().parameters;
    let (mut unpacker, mut seen) = (Unpacker::new(codec.len(), modulus), 0);
    let mut tail = Vec::with_capacity(codec.len() - parameters);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = packed.read(&mut buffer).map_err(|error| error.downcast().unwrap_or_else(StoreError::from))?;
        if got == 0 {
            break;
        }
        let keep = |word| {
            if seen >= parameters {
                tail.push(word);
            }
            seen += 1;
        };
        unpacker.push(&buffer[..got], keep).map_err(|error| StoreError::unreadable(what(), error))?;
    }
    let weight = tail.first().filter(|_| seen == codec.len()).and_then(|&word| codec.weight_of(word));
    let weight =
        weight.ok_or_else(|| StoreError::unreadable(what(), "it has another length, or a weight that nobody has"))?;
    Ok((weight, tail))
}

/// The values of one slice of an update.
fn read_slice(
    mut blob: Box<dyn BlobRead>,
    weight: u32,
    codec: Codec,
    modulus: Modulus,
    slice: &Range<usize>,
) -> Result<Vec<f32>, StepError> {
    // A slice also ends at a whole byte, or with the vector.
    let end = slice.end.next_multiple_of(ALIGNMENT).min(codec.len());
    let bytes = packed_len(end - slice.start, modulus);
    let mut packed = vec![0; bytes];
    let start = packed_len(slice.start, modulus) as u64;
    blob.seek(SeekFrom::Start(start)).and_then(|_| blob.read_exact(&mut packed)).map_err(StoreError::from)?;
    let words = unpack(&packed, end - slice.start, modulus).map_err(StoreError::corrupt)?;
    let mut values = vec![0.0; slice.len()];
    codec.values_of(&words[..slice.len()], weight, &mut values);
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_take_their_time_together_and_the_first_failure_is_kept() {
        let answered = |device: &str, failure: Option<&str>| Answered {
            answers: vec![1],
            effort: Effort { device: device.to_owned(), took: Duration::from_millis(2) },
            fallback: failure.map(|reason| FallbackEvent {
                device: "gpu".to_owned(),
                reason: reason.to_owned(),
                taken_over_by: device.to_owned(),
            }),
        };
        let mut compared = Compared::default();
        for (device, failure) in [("gpu", None), ("cpu", Some("lost")), ("cpu", Some("hung")), ("gpu", None)] {
            assert_eq!(compared.note(answered(device, failure)), [1]);
        }
        let effort = Effort { device: "gpu".to_owned(), took: Duration::from_millis(8) };
        assert_eq!((compared.effort, compared.failed.unwrap().reason.as_str()), (Some(effort), "lost"));
    }
}
