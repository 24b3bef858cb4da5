//! The coordinator's half: the numbers derived from a task's specification, and the step from an opened sum to the
//! next version.
//!
//! Requests and background work both derive it from the stored specification, so they cannot disagree.

mod encoding;
mod field;
mod first_version;
mod privacy;
mod robust;
mod session;
mod step;

use std::sync::Arc;

use learning::AnalyticsSpec;
use learning::analytics::{EvaluationSpec, TargetSpec};
use secure_agg::modular::Modulus;
use secure_agg::params::SessionConfig;
use task_spec::{Clip, ServerOptimizer, Solver, SpecError, TableColumn, TaskSpec, TrainingPlan};
use wire::Digest;
use wire::participant::{Encoding, PrivacyTerms};

pub use privacy::{PrivateTask, SamplerError};
pub use robust::{GroupedMeans, RobustAggregation};
pub use step::{NextVersion, ReadSeek, RoundTerms, StepFailure, StepFiles, StepOut, step};

use crate::codec::UpdateCodec;
use crate::{AssignmentTerms, Recipe, Tensors};
use field::wrong;

/// The numbers derived from a task's specification.
#[derive(Clone, Debug)]
pub struct TaskModel {
    /// The tensors its rounds compute on.
    pub tensors: Tensors,
    /// How updates become integers.
    pub codec: UpdateCodec,
    /// Modulus of the words.
    pub modulus: Modulus,
    /// The solver with a server half, applied to the mean.
    pub solver: Option<Solver>,
    pub optimizer: ServerOptimizer,
    /// Configuration of its sessions, for the first round's clipping norm; `None` if updates are sent unmasked. See
    /// [`TaskModel::session_in`].
    pub session: Option<Arc<SessionConfig>>,
    /// Its noise and budget; `None` without a privacy mechanism.
    pub private: Option<Arc<PrivateTask>>,
    /// The robust rule; `None` for the mean.
    pub robust: Option<RobustAggregation>,
    /// The encoding of updates, as sent in assignments.
    pub encoding: Encoding,
    /// Names of the sent metrics, in order.
    pub metrics: Vec<String>,
}

/// Terms of a round's base version on which the members of a session agree.
#[derive(Clone, Copy, Debug)]
pub struct BaseTerms<'a> {
    /// Counts from 0, the initial model.
    pub version: u32,
    /// The clipping norm; absent before it adapts, or without a privacy mechanism.
    pub clip: Option<f64>,
    /// Digests of the files before it, newest first, from which an update may have been trained ahead.
    pub earlier: &'a [Digest],
}

impl TaskModel {
    /// Derives the numbers of a task.
    ///
    /// # Errors
    /// Every invalid field. A stored task was checked at its creation, so it is valid.
    pub fn new(spec: &TaskSpec) -> Result<Self, Vec<SpecError>> {
        let at = |error| field::of(spec, error);
        let metrics = spec.travelling_metrics();
        let mut encoding = encoding::of(spec, None);
        let terms = assignment_terms(spec, &encoding, &metrics);
        let tensors = Tensors::new(&terms).map_err(at)?;
        if let Some(analysis) = &tensors.analysis {
            field::check_rounds(spec, analysis.rounds())?;
            field::check_evaluated(&tensors)?;
            let analysis = spec.analytics.as_ref().map(AnalyticsSpec::read).transpose();
            analysis
                .map_err(|error| at(error.into()))?
                .map_or(Ok(()), |spec_of| field::check_columns(spec, &spec_of))?;
        }
        let private = PrivateTask::new(spec, tensors.shared.len() as u64)?;
        encoding = encoding::of(spec, private.as_ref());
        let terms = assignment_terms(spec, &encoding, &metrics);
        // The grids of an analysis depend on the largest cohort.
        let tensors = if tensors.analysis.is_some() { Tensors::new(&terms).map_err(at)? } else { tensors };
        if let Some(analysis) = tensors.analysis.as_ref().filter(|_| private.is_some()) {
            analysis.private_form(&analysis.initial()).map_err(|error| at(error.into()))?;
        }
        let quantizer = private.as_ref().map(|private| Arc::clone(&private.quantizer));
        let Recipe { tensors, codec, rule: _ } =
            Recipe::with_quantizer(&terms, tensors, quantizer, None).map_err(at)?;
        let modulus = codec.shape().modulus_bits;
        let modulus = Modulus::new(modulus).map_err(|error| wrong("aggregation.modulus_bits", error))?;
        let robust = RobustAggregation::new(spec, tensors.shared.len())?;
        let session = session::config(spec, &terms, &codec, private.as_ref())?.map(Arc::new);
        Ok(Self {
            tensors,
            codec,
            modulus,
            solver: spec.training.solver(),
            optimizer: spec.aggregation.optimizer,
            session,
            private: private.map(Arc::new),
            robust,
            encoding,
            metrics,
        })
    }

    /// Fills in the derived fields of a new task, which are stored with it: what an evaluated model predicts, the noise multiplier that
    /// meets the budget, and the clipping norm of an analysis. Takes up to a second.
    ///
    /// # Errors
    /// Every invalid field.
    pub fn complete(spec: &mut TaskSpec) -> Result<(), Vec<SpecError>> {
        complete_evaluation(spec)?;
        if !spec.privacy.is_private() {
            return Ok(());
        }
        if spec.analytics.is_some() {
            spec.privacy.clip.get_or_insert(Clip::WHOLE);
        }
        if spec.privacy.noise_multiplier.is_some() {
            return Ok(());
        }
        let encoding = encoding::of(spec, None);
        let tensors = Tensors::new(&assignment_terms(spec, &encoding, &[])).map_err(|error| field::of(spec, error))?;
        privacy::solve(spec, tensors.shared.len() as u64)
    }

    /// Configuration of sessions in a round of the task based on `base` with the plan `plan`; participants agree on all of it.
    #[must_use]
    pub fn session_in(&self, spec: &TaskSpec, base: BaseTerms<'_>, plan: &TrainingPlan) -> Option<SessionConfig> {
        let session = self.session.as_ref()?;
        let privacy = self.privacy_from(base.clip);
        let terms = AssignmentTerms {
            training: plan,
            privacy: privacy.as_ref(),
            ..assignment_terms(spec, &self.encoding, &self.metrics)
        };
        Some(SessionConfig { application: terms.in_round(base.version, base.earlier).0, ..(**session).clone() })
    }

    /// The privacy terms of rounds based on a version with this clipping norm.
    #[must_use]
    pub fn privacy_from(&self, clip: Option<f64>) -> Option<PrivacyTerms> {
        self.private.as_ref().map(|private| private.terms(clip.unwrap_or(private.initial_clip())))
    }

    /// [`crate::digest::task_digest`] of the task's rounds from a version with this clipping norm, as participants derive it from
    /// their assignments.
    #[must_use]
    pub fn task_digest(&self, spec: &TaskSpec, clip: Option<f64>) -> Digest {
        let privacy = self.privacy_from(clip);
        let terms = assignment_terms(spec, &self.encoding, &self.metrics);
        AssignmentTerms { privacy: privacy.as_ref(), ..terms }.in_every_round()
    }

    /// Bytes of one masked input.
    #[must_use]
    pub fn packed_len(&self) -> u64 {
        match &self.codec {
            UpdateCodec::Plain(codec) => codec.upload_bytes() as u64,
            codec @ (UpdateCodec::Private(_) | UpdateCodec::Sums(_)) => {
                secure_agg::packing::packed_len(codec.len(), self.modulus) as u64
            }
        }
    }
}

/// Adds to an evaluation what its model predicts: the words or the range of the label, or the classes of the architecture. The task may
/// state another range, and otherwise nothing else.
fn complete_evaluation(spec: &mut TaskSpec) -> Result<(), Vec<SpecError>> {
    let label = spec.model.table.as_ref().and_then(|table| table.label.as_ref());
    let words = label.map_or(0, |label| label.one_of.len());
    let classes = if words > 0 { Some(words) } else { spec.model.classes() };
    let target = match (label.and_then(TableColumn::range), classes.map(u32::try_from)) {
        (Some((low, high)), _) => TargetSpec::Real { low, high },
        (None, Some(Ok(classes))) => TargetSpec::Class { classes },
        (None, None | Some(Err(_))) => return Ok(()),
    };
    let Some(analytics) = spec.analytics.as_mut().filter(|analytics| analytics.is_evaluation()) else { return Ok(()) };
    analytics.default_target(serde_json::to_value(target).map_err(|error| wrong("analytics.target", error))?);
    // What cannot be read is rejected with the whole analysis.
    let Ok(AnalyticsSpec::Evaluation(EvaluationSpec { target: Some(stated), .. })) = AnalyticsSpec::read(analytics)
    else {
        return Ok(());
    };
    let problem = match (stated, target) {
        (TargetSpec::Class { classes }, TargetSpec::Class { classes: own }) if classes != own => {
            format!("states {classes} classes, and the model has {own}")
        }
        (TargetSpec::Class { .. }, TargetSpec::Real { .. }) => {
            "states classes, and the model predicts a number".to_owned()
        }
        (TargetSpec::Real { .. }, TargetSpec::Class { .. }) => {
            "states a number, and the model predicts a class".to_owned()
        }
        (TargetSpec::Class { .. }, TargetSpec::Class { .. }) | (TargetSpec::Real { .. }, TargetSpec::Real { .. }) => {
            return Ok(());
        }
    };
    Err(wrong("analytics.target", problem + "; it may be left out"))
}

/// The terms of a task's assignments, without privacy terms.
fn assignment_terms<'a>(spec: &'a TaskSpec, encoding: &'a Encoding, metrics: &'a [String]) -> AssignmentTerms<'a> {
    let TaskSpec { name, model, training, .. } = spec;
    AssignmentTerms { task: name, model, training, encoding, metrics, privacy: None }
}
