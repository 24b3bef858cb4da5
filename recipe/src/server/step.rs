//! From an opened sum and the base model to the next version: the same bytes give the same bytes on every replica.

use std::sync::Arc;

use bytes::Bytes;
use learning::analytics::{Advanced, Analysis, AnalyticsError};
use learning::contribution::{Scaffold, scaffold};
use learning::optimizer::{self, OptimizerState};
use learning::privacy::PrivateMean;
use learning::{Distortion, FedNova, Layout, MeanUpdate, MetricValue, NoisedSum, Parameters, StateError, checkpoint};
use task_spec::{CODEC_METRICS, ServerOptimizer, Solver};
use wire::{Attempt, Digest};

use super::TaskModel;
use crate::codec::UpdateCodec;
use crate::digest::{codec_seed, rotation_seed};

/// Terms that differ between attempts at rounds.
pub struct RoundTerms {
    /// L2 norm that updates were clipped to.
    pub clip: f64,
    /// Seed of their rotation.
    pub rotation: Digest,
    /// Seed of the codec's draws.
    pub codec: Digest,
}

impl RoundTerms {
    /// The terms of an attempt that starts from a version with this clipping norm.
    #[must_use]
    pub fn new(model: &TaskModel, clip: Option<f64>, attempt: Attempt) -> Self {
        let initial = model.private.as_ref().map_or(f64::NAN, |private| private.initial_clip());
        Self {
            clip: clip.unwrap_or(initial),
            rotation: rotation_seed(attempt),
            codec: codec_seed(model.encoding.compression.as_ref(), attempt),
        }
    }
}

/// The version that a step starts from.
pub struct BaseVersion {
    /// Number of the version.
    pub version: u32,
    pub bytes: Bytes,
    /// The server optimizer's state of this version.
    pub optimizer_state: Option<Bytes>,
}

/// A new model version that is not published yet.
#[derive(Debug)]
pub struct NextVersion {
    pub bytes: Vec<u8>,
    /// The server optimizer's state, if it has any.
    pub optimizer_state: Option<Vec<u8>>,
    /// The round's metrics, by name.
    pub metrics: Vec<(String, MetricValue)>,
    /// L2 norm that updates of the next round are clipped to, in a private task.
    pub clip: Option<f64>,
}

/// Reasons there is no next version.
#[derive(Debug, thiserror::Error)]
pub enum StepFailure {
    /// Honest participants cannot have made this sum.
    #[error("honest participants cannot have made this sum: {0}")]
    ImplausibleSum(String),
    /// The base version or the optimizer's state is unusable.
    #[error("{0}")]
    UnusableBase(String),
}

fn implausible(error: impl std::fmt::Display) -> StepFailure {
    StepFailure::ImplausibleSum(error.to_string())
}

fn unusable(what: &str) -> impl Fn(&dyn std::fmt::Display) -> StepFailure {
    move |error| StepFailure::UnusableBase(format!("{what}: {error}"))
}

/// Computes the next version from an opened sum. Each intermediate result has the size of a model and is dropped as
/// soon as possible.
///
/// # Errors
/// [`StepFailure`].
pub fn step(model: &TaskModel, terms: &RoundTerms, sum: Bytes, base: BaseVersion) -> Result<NextVersion, StepFailure> {
    let released = NoisedSum::from_bytes(&sum).map_err(implausible)?;
    drop(sum);
    if let Some(analysis) = &model.tensors.analysis {
        return advance(analysis, &released, &base.bytes);
    }
    let Decoded { mut mean, within_clip, distortion } = decode(model, &released, terms)?;
    drop(released);
    let unread = unusable("the base model cannot be read");
    let read = checkpoint::read(&base.bytes, &model.tensors.published).map_err(|error| unread(&error))?;
    let shared = &model.tensors.shared;
    let mut version = Version::new(model.solver, read, shared).map_err(|error| unread(&error))?;
    version.take(model.solver, &mut mean, model.encoding.clip_range).map_err(implausible)?;
    let state = resume(&model.optimizer, shared, base.version, base.optimizer_state.as_ref())
        .map_err(|error| unusable("the server optimizer cannot go on from the base model")(&error))?;
    drop(base);
    let state = optimizer::step(&model.optimizer, state, &mut version.model, &mean).map_err(implausible)?;
    let parameters =
        version.join(&model.tensors.published).map_err(|error| unusable("the model cannot be put together")(&error))?;
    let bytes = checkpoint::write(&parameters).map_err(implausible)?;
    let optimizer_state = optimizer::write_state(&state, shared).map_err(implausible)?;
    let clip = model.private.as_ref().map(|private| private.next_clip(terms.clip, within_clip));
    let mut metrics = measured(model.metrics.iter().cloned().zip(mean.metrics));
    metrics.extend(distortion.into_iter().flat_map(|distortion| codec_metrics(&distortion, mean.participants)));
    Ok(NextVersion { bytes, optimizer_state, metrics, clip })
}

/// The next state of an analysis.
fn advance(analysis: &Analysis, sum: &NoisedSum, base: &[u8]) -> Result<NextVersion, StepFailure> {
    let stuck = unusable("the state cannot be advanced");
    let state = analysis.read(base).map_err(|error| stuck(&error))?;
    let Advanced { state, metrics } = analysis.advance(&state, sum).map_err(|error| match error {
        AnalyticsError::Sum(problem) => StepFailure::ImplausibleSum(problem),
        other => stuck(&other),
    })?;
    let bytes = state.to_bytes().map_err(|error| stuck(&error))?;
    Ok(NextVersion { bytes, optimizer_state: None, metrics: measured(metrics), clip: None })
}

/// Omits metrics that nobody measured.
fn measured(metrics: impl IntoIterator<Item = (String, MetricValue)>) -> Vec<(String, MetricValue)> {
    metrics.into_iter().filter(|(_, value)| value.count > 0).collect()
}

/// Metrics of the distortion by compression.
fn codec_metrics(distortion: &Distortion, participants: u32) -> [(String, MetricValue); 2] {
    let [norm, added_error] = CODEC_METRICS.map(str::to_owned);
    [(norm, distortion.norm), (added_error, distortion.added_error)]
        .map(|(name, value)| (name, MetricValue { value, count: participants.into() }))
}

struct Decoded {
    mean: MeanUpdate,
    /// With adaptive clipping: the noisy fraction of updates within the norm.
    within_clip: Option<f64>,
    distortion: Option<Distortion>,
}

/// Decodes a released sum to the mean.
fn decode(model: &TaskModel, sum: &NoisedSum, terms: &RoundTerms) -> Result<Decoded, StepFailure> {
    let participants = sum.participants();
    if participants == 0 && model.private.is_none() {
        return Err(implausible("a sum of nobody, without noise, says nothing"));
    }
    if let Some(groups) = model.robust.and_then(|robust| robust.groups) {
        let mean = groups.codec.decode(sum).map_err(implausible)?;
        return Ok(Decoded { mean, within_clip: None, distortion: None });
    }
    match &model.codec {
        UpdateCodec::Plain(codec) => {
            let decoded = codec.decode(sum, &terms.codec.0).map_err(implausible)?;
            Ok(Decoded { mean: decoded.mean, within_clip: None, distortion: decoded.distortion })
        }
        UpdateCodec::Private(quantizer) => {
            let decoded = quantizer.codec.decode(sum, terms.clip, &terms.rotation.0).map_err(implausible)?;
            let PrivateMean { delta, within_clip } = decoded;
            let mean = MeanUpdate { delta, weight: 0, participants, metrics: Vec::new() };
            Ok(Decoded { mean, within_clip, distortion: None })
        }
        UpdateCodec::Sums(_) => Err(implausible("the sum of an analysis is no mean")),
    }
}

/// A published version, split for a step.
struct Version {
    /// The model that the server optimizer steps.
    model: Parameters,
    /// The server's control variate, if the solver has one.
    control: Option<Vec<f32>>,
}

impl Version {
    /// `read` is the content of a file in the published layout.
    ///
    /// # Errors
    /// What is wrong.
    fn new(solver: Option<Solver>, read: Parameters, model: &Arc<Layout>) -> Result<Self, String> {
        if !solver.is_some_and(|solver| solver.has_control()) {
            return Ok(Self { model: read, control: None });
        }
        let (model, control) = scaffold::split(&read, model).map_err(|error| error.to_string())?;
        Ok(Self { model, control: Some(control) })
    }

    /// Removes the solver's part from the mean: afterwards it is a mean of the model, with the task's metrics.
    ///
    /// # Errors
    /// Why honest participants cannot have sent this, as text.
    fn take(&mut self, solver: Option<Solver>, mean: &mut MeanUpdate, clip_range: f32) -> Result<(), String> {
        match (solver, &mut self.control) {
            (Some(Solver::FedNova { .. }), _) => FedNova::scale(mean).map(drop).map_err(|error| error.to_string()),
            (Some(Solver::Scaffold { population, .. }), Some(control)) => {
                Scaffold::absorb(control, mean, population, clip_range).map_err(|error| error.to_string())
            }
            // Scaffold always has a control variate.
            (None, _) | (Some(Solver::Scaffold { .. }), None) => Ok(()),
        }
    }

    /// Joins the parts again, in the published layout.
    ///
    /// # Errors
    /// What is wrong.
    fn join(self, published: &Arc<Layout>) -> Result<Parameters, String> {
        let Some(control) = self.control else { return Ok(self.model) };
        let values = [self.model.values(), &control].concat();
        Parameters::new(Arc::clone(published), values).map_err(|error| error.to_string())
    }
}

/// The optimizer's state to continue from; `kept` is the state stored with version `version` of a model of this
/// layout.
///
/// # Errors
/// What is wrong: a version made by a step has the state of that step, and no other.
fn resume(
    spec: &ServerOptimizer,
    layout: &Arc<Layout>,
    version: u32,
    kept: Option<&Bytes>,
) -> Result<OptimizerState, StateError> {
    match kept {
        Some(bytes) => optimizer::read_state(bytes, spec, layout),
        None if version == 0 || !spec.remembers() => Ok(OptimizerState::Empty),
        None => Err(StateError::NoState),
    }
}

#[cfg(test)]
mod tests {
    use learning::TensorSpec;

    use super::*;

    #[test]
    fn goes_on_from_the_state_of_this_model_and_optimizer_only() {
        let layout = |len| Arc::new(Layout::new(vec![TensorSpec { name: "w".into(), shape: vec![len] }]).unwrap());
        let momentum = ServerOptimizer::FedAvgM { learning_rate: 1.0, momentum: 0.9 };
        let adam = ServerOptimizer::FedAdam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-3 };
        let mean = MeanUpdate { delta: vec![1.0, 2.0], weight: 1, participants: 1, metrics: vec![] };
        let mut model = Parameters::zeros(layout(2));
        let state = optimizer::step(&momentum, OptimizerState::Empty, &mut model, &mean).unwrap();
        let kept = Bytes::from(optimizer::write_state(&state, &layout(2)).unwrap().unwrap());

        assert_eq!(resume(&momentum, &layout(2), 3, Some(&kept)), Ok(state));
        assert_eq!(resume(&momentum, &layout(2), 0, None), Ok(OptimizerState::Empty));
        assert_eq!(resume(&ServerOptimizer::default(), &layout(2), 3, None), Ok(OptimizerState::Empty));
        assert_eq!(resume(&momentum, &layout(2), 3, None), Err(StateError::NoState));
        assert!(matches!(resume(&adam, &layout(2), 3, Some(&kept)), Err(StateError::OtherOptimizer { .. })));
        assert!(matches!(resume(&momentum, &layout(3), 3, Some(&kept)), Err(StateError::OtherModel(_))));
    }
}
