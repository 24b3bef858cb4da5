//! The decoded mean of a released sum, slice by slice.

use std::io::SeekFrom;
use std::ops::Range;

use learning::privacy::{PrivateCodec, PrivateDecoder};
use learning::{Codec, Distortion, FedNova, MetricValue, NoisedSum, SumHeader, SumTail};
use task_spec::Solver;

use super::failure::{ReadSeek, StepFailure, implausible};
use super::terms::RoundTerms;
use crate::codec::UpdateCodec;
use crate::server::TaskModel;

/// A stored sum, after its header was read.
pub(super) struct StoredSum<'a> {
    file: &'a mut dyn ReadSeek,
    header: SumHeader,
}

impl<'a> StoredSum<'a> {
    pub(super) fn open(file: &'a mut dyn ReadSeek) -> Result<Self, StepFailure> {
        let got = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut header = [0; SumHeader::BYTES];
        if got < header.len() as u64 {
            return Err(implausible(learning::SumError::Format));
        }
        file.read_exact(&mut header)?;
        let header = SumHeader::from_bytes(header).map_err(implausible)?;
        let expected = header.stored_bytes();
        if got != expected as u64 {
            let got = usize::try_from(got).unwrap_or(usize::MAX);
            return Err(implausible(learning::SumError::Truncated { expected, got }));
        }
        Ok(Self { file, header })
    }

    /// The words of a range within the sum.
    fn words(&mut self, range: Range<usize>) -> Result<NoisedSum, StepFailure> {
        self.file.seek(SeekFrom::Start((SumHeader::BYTES + 4 * range.start) as u64))?;
        self.header.read_words(&mut *self.file, range.start, range.len())?.map_err(implausible)
    }

    pub(super) fn whole(&mut self) -> Result<NoisedSum, StepFailure> {
        self.words(0..self.header.words())
    }
}

/// The results of a sum in addition to the values of its mean.
pub(super) struct SumResults {
    pub(super) participants: u32,
    /// In the order of the task's metrics.
    pub(super) metrics: Vec<MetricValue>,
    pub(super) distortion: Option<Distortion>,
    /// With adaptive clipping: the noisy fraction of updates within the norm.
    pub(super) within_clip: Option<f64>,
}

/// The values of a mean, in slices.
pub(super) struct Means<'m, 'f> {
    sum: StoredSum<'f>,
    values: Values<'m>,
    /// With FedNova: the factor on values.
    ratio: Option<f64>,
}

enum Values<'m> {
    /// Each from a word of its own.
    ByWord(Codec, SumTail),
    /// In order, from possibly rotated words.
    Private { codec: &'m PrivateCodec, clip: f64, rotation: [u8; 32], decoder: Box<PrivateDecoder<'m>> },
    /// Each from all words: decoded at once.
    Whole(Vec<f32>),
}

impl<'m, 'f> Means<'m, 'f> {
    /// Reads the data needed before the first value.
    pub(super) fn new(
        model: &'m TaskModel,
        terms: &RoundTerms,
        mut sum: StoredSum<'f>,
    ) -> Result<(Self, SumResults), StepFailure> {
        let participants = sum.header.participants();
        if participants == 0 && model.private.is_none() {
            return Err(implausible("a sum of nobody, without noise, says nothing"));
        }
        let plain = |tail: SumTail, distortion| SumResults {
            participants,
            metrics: tail.metrics,
            distortion,
            within_clip: None,
        };
        let mut weight = 0;
        let (values, mut said) = match (model.robust.and_then(|robust| robust.groups), &model.codec) {
            (Some(groups), _) => {
                let tail = sum.tail(groups.codec.params().parameters)?;
                let tail = groups.codec.decode_tail(sum.header, tail.words()).map_err(implausible)?;
                weight = tail.weight;
                (Values::ByWord(groups.codec, tail.clone()), plain(tail, None))
            }
            (None, UpdateCodec::Plain(codec)) => match codec.by_word() {
                Some(by_word) => {
                    let tail = sum.tail(by_word.params().parameters)?;
                    let (tail, distortion) = codec.decode_tail(sum.header, tail.words()).map_err(implausible)?;
                    weight = tail.weight;
                    (Values::ByWord(*by_word, tail.clone()), plain(tail, distortion))
                }
                None => {
                    let decoded = codec.decode(&sum.whole()?, &terms.codec.0).map_err(implausible)?;
                    weight = decoded.mean.weight;
                    let metrics = decoded.mean.metrics;
                    let said = SumResults { participants, metrics, distortion: decoded.distortion, within_clip: None };
                    (Values::Whole(decoded.mean.delta), said)
                }
            },
            (None, UpdateCodec::Private(quantizer)) => {
                let (codec, rotation) = (&quantizer.codec, terms.rotation.0);
                let decoder = Box::new(codec.decoder(sum.header, terms.clip, &rotation).map_err(implausible)?);
                let within_clip = match sum.header.words() - codec.value_words() {
                    0 => None,
                    _ => decoder.within_clip(sum.tail(codec.value_words())?.words()).map_err(implausible)?,
                };
                let said = SumResults { participants, metrics: Vec::new(), distortion: None, within_clip };
                (Values::Private { codec, clip: terms.clip, rotation, decoder }, said)
            }
            (None, UpdateCodec::Sums(_)) => return Err(implausible("the sum of an analysis is no mean")),
        };
        let ratio = match model.solver {
            Some(Solver::FedNova { .. }) => Some(FedNova::take_ratio(&mut said.metrics, weight).map_err(implausible)?),
            Some(Solver::Scaffold { .. }) | None => None,
        };
        Ok((Self { sum, values, ratio }, said))
    }

    /// Slices start at multiples of so many values.
    pub(super) fn slice_start(&self) -> usize {
        match &self.values {
            Values::ByWord(..) | Values::Whole(_) => 1,
            Values::Private { codec, .. } => codec.slice_start(),
        }
    }

    /// Begins with the first slice again.
    pub(super) fn rewind(&mut self) -> Result<(), StepFailure> {
        if let Values::Private { codec, clip, rotation, decoder } = &mut self.values {
            **decoder = codec.decoder(self.sum.header, *clip, rotation).map_err(implausible)?;
        }
        Ok(())
    }

    /// The values of the next slice; `is_last` if it reaches to the mean's end.
    pub(super) fn next(&mut self, slice: Range<usize>, is_last: bool) -> Result<Vec<f32>, StepFailure> {
        let mut values = match &mut self.values {
            Values::ByWord(codec, tail) => {
                let words = self.sum.words(slice.clone())?;
                codec.decode_values(tail, slice.start, words.words()).map_err(implausible)?
            }
            Values::Private { codec, decoder, .. } => {
                let end = if is_last { codec.value_words() } else { slice.end };
                decoder.next(self.sum.words(slice.start..end)?.words()).map_err(implausible)?
            }
            Values::Whole(values) => values[slice].to_vec(),
        };
        if let Some(ratio) = self.ratio {
            learning::contribution::fed_nova::scale(&mut values, ratio);
        }
        Ok(values)
    }
}

impl StoredSum<'_> {
    /// The words behind the values.
    fn tail(&mut self, values: usize) -> Result<NoisedSum, StepFailure> {
        let words = self.header.words();
        if words <= values {
            return Err(implausible(format!("the sum has {words} words, and {values} values alone")));
        }
        self.words(values..words)
    }
}
