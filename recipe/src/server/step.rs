//! From an opened sum and the base model to the next version: equal inputs give equal bytes on every replica.
//!
//! All data go slice by slice from files to files, so memory does not grow with the model. Exceptions, whole in memory, are the states of
//! analyses, and sums of codecs with values that depend on all words.

mod failure;
mod mean;
mod terms;

use std::io::{self, SeekFrom, Write};
use std::ops::Range;

use learning::analytics::{Advanced, Analysis, AnalyticsError, NoisedForms};
use learning::checkpoint::TensorFile;
use learning::contribution::Scaffold;
use learning::optimizer::{self, OptimizerState, StateFile};
use learning::{Distortion, Layout, MetricValue, NoisedSum, StateError, StepError};
use task_spec::{CODEC_METRICS, ServerOptimizer, Solver};

pub use self::failure::{ReadSeek, StepFailure};
use self::failure::{implausible, unusable};
use self::mean::{Means, StoredSum, SumResults};
pub use self::terms::RoundTerms;
use super::TaskModel;

/// The input files of a step, verified by the caller.
pub struct StepFiles<'a> {
    /// The sum of the updates, with noise if the task adds any.
    pub sum: &'a mut dyn ReadSeek,
    /// The base version of the step.
    pub base: &'a mut dyn ReadSeek,
    /// The server optimizer's state of that version, if it has any.
    pub optimizer_state: Option<&'a mut dyn ReadSeek>,
}

/// Where a step writes.
pub struct StepOut<'a> {
    /// The next model version.
    pub version: &'a mut dyn Write,
    /// The server optimizer's state, if it has any.
    pub optimizer_state: &'a mut dyn Write,
}

/// Facts about a computed version before its publication.
#[derive(Debug)]
pub struct NextVersion {
    /// The round's metrics, by name.
    pub metrics: Vec<(String, MetricValue)>,
    /// L2 clipping norm of the next round's updates, in a private task.
    pub clip: Option<f64>,
    /// Whether the server optimizer has a state.
    pub has_state: bool,
}

/// Computes the next version from an opened sum and version `base_version`, in slices of at most `slice` values (or the codec's minimum).
/// The written bytes are independent of the slice length. Discard them if this function fails.
///
/// # Errors
/// [`StepFailure`].
pub fn step(
    model: &TaskModel,
    terms: &RoundTerms,
    base_version: u32,
    files: StepFiles<'_>,
    out: StepOut<'_>,
    slice: usize,
) -> Result<NextVersion, StepFailure> {
    let mut sum = StoredSum::open(files.sum)?;
    if let Some(analysis) = &model.tensors.analysis {
        return advance(analysis, model, terms, &sum.whole()?, files.base, out.version);
    }
    let (means, said) = Means::new(model, terms, sum)?;
    let unread = unusable("the base model cannot be read");
    let file = TensorFile::of_model(&model.tensors.published).map_err(|error| unread(&error))?;
    file.open(files.base)?.map_err(|error| unread(&error))?;
    let (state_file, state) = resume(&model.optimizer, &model.tensors.shared, base_version, files.optimizer_state)?
        .map_err(|error| unusable("the server optimizer cannot go on from the base model")(&error))?;
    let has_state = state_file.vectors() > 0;
    let steps = Steps { model, means, participants: said.participants, file, base: files.base, state_file, state };
    steps.write(out, slice)?;
    let SumResults { participants, metrics, distortion, within_clip } = said;
    let clip = model.private.as_ref().map(|private| private.next_clip(terms.clip, within_clip));
    let mut metrics = measured(model.metrics.iter().cloned().zip(metrics));
    metrics.extend(distortion.into_iter().flat_map(|distortion| codec_metrics(&distortion, participants)));
    Ok(NextVersion { metrics, clip, has_state })
}

/// The next state of an analysis.
fn advance(
    analysis: &Analysis,
    model: &TaskModel,
    terms: &RoundTerms,
    sum: &NoisedSum,
    base: &mut dyn ReadSeek,
    out: &mut dyn Write,
) -> Result<NextVersion, StepFailure> {
    let stuck = unusable("the state cannot be advanced");
    let mut before = Vec::new();
    base.seek(SeekFrom::Start(0))?;
    base.read_to_end(&mut before)?;
    let state = analysis.read(&before).map_err(|error| stuck(&error))?;
    let advanced = match &model.private {
        None => analysis.advance(&state, sum),
        Some(private) => {
            let codec = &private.quantizer.codec;
            let mean = codec.decode(sum, terms.clip, &terms.rotation.0).map_err(implausible)?;
            let forms = NoisedForms {
                mean: &mean.delta,
                cohort: codec.params().expected_cohort,
                noise: private.noise_of_sum() / codec.scale(terms.clip),
            };
            analysis.advance_noised(&state, &forms)
        }
    };
    let Advanced { state, metrics } = advanced.map_err(|error| match error {
        AnalyticsError::Sum(problem) => StepFailure::ImplausibleSum(problem),
        other => stuck(&other),
    })?;
    out.write_all(&state.to_bytes().map_err(|error| stuck(&error))?)?;
    let clip = model.private.as_ref().map(|_| terms.clip);
    Ok(NextVersion { metrics: measured(metrics), clip, has_state: false })
}

/// Collects metrics by name, omitting unmeasured ones.
fn measured(metrics: impl IntoIterator<Item = (String, MetricValue)>) -> Vec<(String, MetricValue)> {
    metrics.into_iter().filter(|(_, value)| value.count > 0).collect()
}

/// Metrics of the distortion by compression.
fn codec_metrics(distortion: &Distortion, participants: u32) -> [(String, MetricValue); 2] {
    let [norm, added_error] = CODEC_METRICS.map(str::to_owned);
    [(norm, distortion.norm), (added_error, distortion.added_error)]
        .map(|(name, value)| (name, MetricValue { value, count: participants.into() }))
}

/// A step, slice by slice.
struct Steps<'m, 'f> {
    model: &'m TaskModel,
    means: Means<'m, 'f>,
    participants: u32,
    /// Of the model versions.
    file: TensorFile,
    base: &'f mut dyn ReadSeek,
    state_file: StateFile,
    /// Absent before the first step.
    state: Option<&'f mut dyn ReadSeek>,
}

/// A slice after its step.
struct Stepped {
    /// Start of its values among the published ones.
    start: usize,
    values: Vec<f32>,
    /// State for the values stepped by the server optimizer.
    state: OptimizerState,
}

impl Steps<'_, '_> {
    /// Writes the version and the state, one vector after the other, each computed from the steps. Vectors not held in memory are computed
    /// again.
    fn write(mut self, out: StepOut<'_>, slice: usize) -> Result<(), StepFailure> {
        let slice = slice.max(1).next_multiple_of(self.means.slice_start());
        let (published, vectors) = (self.file.values(), self.state_file.vectors());
        out.version.write_all(self.file.header())?;
        if vectors > 0 {
            out.optimizer_state.write_all(self.state_file.header())?;
        }
        let mut only = None;
        for vector in 0..vectors.max(1) {
            self.means.rewind()?;
            for start in (0..published).step_by(slice) {
                let stepped = match only.take() {
                    Some(stepped) => stepped,
                    None => self.step(start..published.min(start + slice))?,
                };
                if vector == 0 {
                    self.file.write_values(out.version, stepped.start, &stepped.values)?.map_err(implausible)?;
                }
                if vectors > 0 && stepped.start < self.model.tensors.shared.len() {
                    let written = self.state_file.write(out.optimizer_state, vector, stepped.start, &stepped.state)?;
                    written.map_err(implausible)?;
                }
                only = (published <= slice).then_some(stepped);
            }
        }
        Ok(())
    }

    /// Steps the next slice of the published values: first those of the model, then the server's control variate, if the solver has
    /// one.
    fn step(&mut self, slice: Range<usize>) -> Result<Stepped, StepFailure> {
        let (start, is_last) = (slice.start, slice.end == self.file.values());
        let deltas = self.means.next(slice.clone(), is_last)?;
        let mut values = vec![0.0; slice.len()];
        let unread = unusable("the base model cannot be read");
        self.base.seek(SeekFrom::Start(self.file.place_of(start)))?;
        self.file.read_values(self.base, start, &mut values)?.map_err(|error| unread(&error))?;
        if deltas.len() != values.len() {
            let (expected, got) = (values.len(), deltas.len());
            return Err(implausible(format!("its mean has {got} values where the model has {expected}")));
        }
        let of_model = self.model.tensors.shared.len().saturating_sub(start).min(values.len());
        let (own, control) = values.split_at_mut(of_model);
        let (deltas, changes) = deltas.split_at(of_model);
        let state = match &mut self.state {
            Some(file) if of_model > 0 => self
                .state_file
                .read(*file, start, of_model)?
                .map_err(|error| unusable("the server optimizer cannot go on from the base model")(&error))?,
            Some(_) | None => OptimizerState::Empty,
        };
        let state = optimizer::step_slice(&self.model.optimizer, state, own, deltas).map_err(|error| match error {
            StepError::NotFinite(index) => implausible(StepError::NotFinite(start + index)),
            other => implausible(other),
        })?;
        if let Some(Solver::Scaffold { population, .. }) = self.model.solver {
            let range = self.model.encoding.clip_range;
            Scaffold::change(control, changes, self.participants, population, range);
        }
        Ok(Stepped { start, values, state })
    }
}

/// The form of an optimizer's state, and the one to continue from, if there is one.
type Resumed<'a> = (StateFile, Option<&'a mut dyn ReadSeek>);

/// The form of the optimizer's state, and the one to continue from: `kept` was stored with version `version` of a model of this layout.
///
/// # Errors
/// The file cannot be read, or it does not have the state of the step that made the version.
fn resume<'a>(
    spec: &ServerOptimizer,
    layout: &Layout,
    version: u32,
    kept: Option<&'a mut dyn ReadSeek>,
) -> io::Result<Result<Resumed<'a>, StateError>> {
    let file = match optimizer::state_file(spec, layout) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error.into())),
    };
    Ok(match kept {
        Some(kept) => file.open(kept)?.map(|()| (file, Some(kept))),
        None if version == 0 || file.vectors() == 0 => Ok((file, None)),
        None => Err(StateError::NoState),
    })
}

#[cfg(test)]
mod tests;
