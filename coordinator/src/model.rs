//! What a task's specification means in numbers: its layouts, its codec and the length of its masked inputs.
//!
//! Requests and background work both derive them here from the stored specification, so they cannot disagree.

use std::sync::Arc;

use federation::id::{Attempt, Digest, RoundKey};
use federation::model_version::ModelVersion;
use learning::analytics::Analysis;
use learning::contribution::scaffold;
use learning::{
    AdapterError, Adapters, CodecError, Layout, NoisedSum, Parameters, Partition, Patterns, QuantizationParams,
    TensorSpec, checkpoint,
};
use secure_agg::SUITE_CHACHA20;
use secure_agg::modular::Modulus;
use secure_agg::params::{InvalidConfig, SessionConfig, VectorShape};
use store::entity::task::TaskRow;
use task_spec::{Personalization, ServerOptimizer, Solver, SpecError, TaskSpec, TrainingPlan};
use wire::participant::{
    CodecTerms, Encoding, GroupTerms, application_digest, base_digest, rotation_seed, round_digest, training_digest,
};

use crate::analysis;
use crate::base::RoundBase;
use crate::private::{self, Private};
use crate::robust::Robust;
use crate::solver;
pub use crate::update_codec::UpdateCodec;
pub(crate) use crate::update_codec::{Decoded, RoundTerms, UpdateInspector};

/// A task's arithmetic.
#[derive(Clone, Debug)]
pub struct TaskModel {
    /// Every tensor; of an analysis, one: the values that are summed.
    pub whole: Arc<Layout>,
    /// The tensors that are sent, summed and published: all of them unless some stay at home.
    pub shared: Arc<Layout>,
    /// The same, and beside them what a solver publishes and sums (SCAFFOLD's control variate).
    pub published: Arc<Layout>,
    /// What the mean goes through before the model is stepped by it.
    pub solver: Option<Solver>,
    /// How updates are integers.
    pub codec: UpdateCodec,
    /// Of the words.
    pub modulus: Modulus,
    /// How the mean steps the model.
    pub optimizer: ServerOptimizer,
    /// What its sessions of secure aggregation are like, in a round whose clipping norm is the first one's; none if its
    /// updates are in the clear. See [`TaskModel::session_in`].
    pub session: Option<Arc<SessionConfig>>,
    /// Its noise and budget; none without a privacy mechanism.
    pub private: Option<Arc<Private>>,
    /// What it computes instead of training a model.
    pub analysis: Option<Arc<Analysis>>,
    /// What takes the place of the mean; none where it is the mean.
    pub robust: Option<Robust>,
    encoding: Encoding,
    metrics: Vec<String>,
    partition: Option<Arc<Partition>>,
    /// Where they are what is shared.
    adapters: Option<Arc<Adapters>>,
}

impl TaskModel {
    /// Derives it.
    ///
    /// # Errors
    /// Every field that cannot work. A stored task was checked when it was created and gives none.
    pub fn new(spec: &TaskSpec) -> Result<Self, Vec<SpecError>> {
        let analysis = analysis::derive(spec, &encoding(spec, None))?.map(Arc::new);
        let layouts = analysis.as_deref().map_or_else(|| Layouts::new(spec), Layouts::of_sums);
        let Layouts { whole, shared, partition, adapters } = layouts?;
        let solver = spec.training.solver();
        let has_control = solver.is_some_and(|solver| solver.has_control());
        let published = scaffold::published(&shared, has_control).map_err(|error| wrong("training.solver", error))?;
        let private = Private::new(spec, shared.len() as u64)?.map(Arc::new);
        let encoding = encoding(spec, private.as_deref());
        let metrics = spec.travelling_metrics();
        let codec = match (&analysis, &private) {
            (Some(analysis), _) => UpdateCodec::Sums(analysis.codec().clone()),
            (None, Some(private)) => UpdateCodec::Private { codec: private.codec, noised: private.shares.is_some() },
            (None, None) => {
                let metrics = metrics.len() + solver.map_or(0, |solver| solver.extra_metrics());
                let codec = plain_codec(&encoding, &published, metrics)?;
                solver::check(&spec.training, codec.params())?;
                UpdateCodec::Plain(Arc::new(codec))
            }
        };
        let modulus = Modulus::new(codec.modulus_bits()).map_err(|error| wrong("aggregation.modulus_bits", error))?;
        let robust = Robust::new(spec, shared.len())?;
        let session = session_config(spec, &encoding, &codec, private.as_deref())?.map(Arc::new);
        let (partition, adapters) = (partition.map(Arc::new), adapters.map(Arc::new));
        Ok(Self {
            whole,
            shared,
            published,
            solver,
            codec,
            modulus,
            optimizer: spec.aggregation.optimizer,
            session,
            private,
            robust,
            analysis,
            encoding,
            metrics,
            partition,
            adapters,
        })
    }

    /// What sessions are like in a round of the task that starts from `base` and trains by `plan`: participants agree on both, on
    /// the model and on the clipping norm of the base.
    #[must_use]
    pub fn session_in(&self, spec: &TaskSpec, base: &RoundBase, plan: &TrainingPlan) -> Option<SessionConfig> {
        let session = self.session.as_ref()?;
        let RoundBase { version: base, earlier } = base;
        let terms = self.private.as_ref().map(|private| private.terms(base.clip.unwrap_or(private.initial_clip())));
        let application = application_digest(&self.encoding, &self.metrics, terms.as_ref());
        let training = training_digest(&application, &spec.name, &spec.model, plan);
        let application = round_digest(&training, base.version, earlier).0;
        Some(SessionConfig { application, ..(**session).clone() })
    }

    /// What participants give one input from at most: the base of a round in which masks alone hide what they send. None where they
    /// add noise themselves, or trained ahead of the round from a version of their own.
    #[must_use]
    pub fn base_digest(&self, base: &ModelVersion) -> Option<Digest> {
        self.gives_once().then(|| base_digest(&self.encoding, base.sha256))
    }

    /// Whether participants give one input at most from each base.
    pub(crate) fn gives_once(&self) -> bool {
        let is_noised = self.private.as_ref().is_some_and(|private| private.mechanism().is_noised_by_participants());
        self.session.is_some() && !is_noised && self.encoding.staleness.is_none()
    }

    /// How updates of the task become integers, as participants are told.
    #[must_use]
    pub fn encoding(&self) -> &Encoding {
        &self.encoding
    }

    /// Makes a released sum a mean.
    ///
    /// # Errors
    /// What no honest participants could have made, in words.
    pub(crate) fn decode(&self, sum: &NoisedSum, round: &RoundTerms) -> Result<Decoded, String> {
        if sum.participants() == 0 && self.private.is_none() {
            return Err("a sum of nobody, without noise, says nothing".to_owned());
        }
        let Some(groups) = self.robust.and_then(|robust| robust.groups) else { return self.codec.decode(sum, round) };
        let mean = groups.codec.decode(sum).map_err(|error| error.to_string())?;
        Ok(Decoded { mean, within_clip: None, distortion: None })
    }

    /// Bytes of one masked input.
    #[must_use]
    pub fn packed_len(&self) -> u64 {
        match &self.codec {
            UpdateCodec::Plain(codec) => codec.upload_bytes() as u64,
            codec => secure_agg::packing::packed_len(codec.len(), self.modulus) as u64,
        }
    }

    /// The file that the first round starts from.
    ///
    /// # Errors
    /// A tensor whose initial values cannot be drawn, or an analysis whose state is too large.
    pub fn first_version(&self, spec: &TaskSpec) -> Result<Vec<u8>, Vec<SpecError>> {
        match &self.analysis {
            Some(analysis) => analysis.initial().to_bytes().map_err(|error| wrong("analytics", error)),
            None => {
                let mut values = self.initial(spec)?.values().to_vec();
                values.resize(self.published.len(), 0.0);
                let first = Parameters::new(Arc::clone(&self.published), values);
                let first = first.map_err(|error| wrong("training.solver", error))?;
                checkpoint::write(&first).map_err(|error| wrong("model.tensors.init", error))
            }
        }
    }

    /// The initial values of the shared tensors, from the task's seed.
    ///
    /// # Errors
    /// A tensor whose initial values cannot be drawn.
    pub fn initial(&self, spec: &TaskSpec) -> Result<Parameters, Vec<SpecError>> {
        if let Some(adapters) = &self.adapters {
            return adapters.initial(spec.model.seed).map_err(|error| wrong("personalization", error));
        }
        let whole = learning::initialize(Arc::clone(&self.whole), &spec.model.tensors, spec.model.seed)
            .map_err(|error| wrong("model.tensors.init", error))?;
        match &self.partition {
            None => Ok(whole),
            Some(partition) => {
                let (shared, _) = partition.split(&whole).map_err(|error| wrong("model.personal", error))?;
                Ok(shared)
            }
        }
    }
}

fn encoding(spec: &TaskSpec, private: Option<&Private>) -> Encoding {
    Encoding {
        modulus_bits: spec.modulus_bits(),
        clip_range: spec.clip_range(),
        clip_norm: spec.aggregation.clip_norm,
        max_weight: private.map_or(spec.aggregation.max_weight, |private| private.request.max_weight),
        max_cohort: private.map_or_else(|| largest_cohort(spec), Private::largest_cohort),
        compression: spec.compression.map(|codec| CodecTerms { codec, seed: spec.model.seed }),
        analytics: spec.analytics.clone(),
        personalization: spec.personalization.clone(),
        staleness: spec.ahead().map(|ahead| ahead.staleness),
        groups: spec.group_size().map(|size| GroupTerms { size }),
        solver: spec.training.solver(),
    }
}

/// The most updates that a sum may have to hold. Codecs count on as few as can be: each costs bits in every coordinate.
fn largest_cohort(spec: &TaskSpec) -> u32 {
    if let Some(size) = spec.group_size() {
        return size;
    }
    if spec.compression.is_some() { spec.draw(u32::MAX).cohort } else { spec.rounds.select_max }
}

/// A task's tensors.
struct Layouts {
    whole: Arc<Layout>,
    shared: Arc<Layout>,
    partition: Option<Partition>,
    adapters: Option<Adapters>,
}

impl Layouts {
    fn of_sums(analysis: &Analysis) -> Result<Self, Vec<SpecError>> {
        let sums = TensorSpec { name: "sums".to_owned(), shape: vec![analysis.codec().values() as u64] };
        let whole = Arc::new(Layout::new(vec![sums]).map_err(|error| wrong("analytics", error))?);
        Ok(Self { shared: Arc::clone(&whole), whole, partition: None, adapters: None })
    }

    fn new(spec: &TaskSpec) -> Result<Self, Vec<SpecError>> {
        let whole = Layout::new(spec.model.tensors.iter().map(tensor_spec).collect())
            .map_err(|error| wrong("model.tensors", error))?;
        let partition = match spec.model.personal.as_slice() {
            [] => None,
            patterns => Some(
                Patterns::new(patterns.to_vec())
                    .and_then(|patterns| whole.partition(&patterns))
                    .map_err(|error| wrong("model.personal", error))?,
            ),
        };
        if let (Some(method), Some(partition)) = (&spec.personalization, &partition) {
            for tensor in partition.personal().tensors() {
                method.check_tensor(&tensor.name, &tensor.shape).map_err(|error| wrong("model.personal", error))?;
            }
        }
        let whole = Arc::new(whole);
        let adapters = spec.personalization.as_ref().map(|method| adapters(method, &whole)).transpose()?.flatten();
        // Those that stay at home are checked, and the participants' own affair.
        let adapters = adapters.filter(|_| spec.personalization.as_ref().is_some_and(Personalization::shares_adapters));
        let shared = match (&partition, &adapters) {
            (Some(partition), _) => Arc::clone(partition.shared()),
            (None, Some(adapters)) => Arc::clone(adapters.layout()),
            (None, None) => Arc::clone(&whole),
        };
        Ok(Self { whole, shared, partition, adapters })
    }
}

/// The adapters of a task that has some.
fn adapters(method: &Personalization, whole: &Arc<Layout>) -> Result<Option<Adapters>, Vec<SpecError>> {
    let Personalization::Lora { layers, rank, alpha, .. } = method else { return Ok(None) };
    let made = Patterns::new(layers.clone()).map_err(AdapterError::from);
    let made = made.and_then(|patterns| Adapters::new(whole, &patterns, *rank, *alpha));
    made.map(Some).map_err(|error| match error {
        AdapterError::Rank { .. } | AdapterError::NoRank => wrong("personalization.rank", error),
        _ => wrong("personalization.layers", error),
    })
}

/// Fills in what follows from the rest of a new task and is stored with it: the noise multiplier that keeps the budget. Takes
/// up to a second.
///
/// # Errors
/// Every field that cannot work.
pub(crate) fn complete(spec: &mut TaskSpec) -> Result<(), Vec<SpecError>> {
    if !spec.privacy.is_private() {
        return Ok(());
    }
    let parameters = Layouts::new(spec)?.shared.len() as u64;
    private::solve(spec, parameters)
}

impl RoundTerms {
    /// Of an attempt that starts from a version with this clipping norm.
    pub(crate) fn new(model: &TaskModel, clip: Option<f64>, attempt: Attempt) -> Self {
        let initial = model.private.as_ref().map_or(f64::NAN, |private| private.initial_clip());
        let codec = model.encoding.compression.as_ref().map(|terms| terms.round_seed(attempt));
        Self {
            clip: clip.unwrap_or(initial),
            rotation: rotation_seed(attempt),
            codec: codec.unwrap_or(Digest([0; 32])),
        }
    }
}

fn plain_codec(encoding: &Encoding, shared: &Layout, metrics: usize) -> Result<learning::UpdateCodec, Vec<SpecError>> {
    let params = QuantizationParams {
        parameters: shared.len(),
        modulus_bits: encoding.modulus_bits,
        clip_range: encoding.clip_range,
        clip_norm: encoding.clip_norm,
        max_weight: encoding.max_weight,
        max_cohort: encoding.max_cohort,
        metrics,
    };
    let compression = encoding.compression.as_ref().map(|terms| &terms.codec);
    learning::UpdateCodec::new(compression, shared, params).map_err(|error| {
        let field = match &error {
            CodecError::Headroom(_) | CodecError::WrongLength(_) => "aggregation",
            CodecError::NoClipNorm => "aggregation.clip_norm",
            CodecError::K { .. } => "compression.k",
            CodecError::Keep(_) => "compression.keep",
            CodecError::Bits(_) | CodecError::NoHeadroom { .. } => "compression.bits",
            CodecError::Rank(_) | CodecError::RankTooLarge { .. } => "compression.rank",
            _ => "compression",
        };
        wrong(field, error)
    })
}

/// The round whose turn it is: numbers of spent rounds are not used again.
pub(crate) fn next_round(task: &TaskRow) -> RoundKey {
    let used = task.rounds_completed.saturating_add(task.rounds_forfeited);
    RoundKey { task: task.id, number: used.saturating_add(1) }
}

/// Each participant derives the same from its assignment, and refuses anything else.
fn session_config(
    spec: &TaskSpec,
    encoding: &Encoding,
    codec: &UpdateCodec,
    private: Option<&Private>,
) -> Result<Option<SessionConfig>, Vec<SpecError>> {
    let secure = &spec.secure_aggregation;
    if !secure.enabled {
        return Ok(None);
    }
    let small = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    // A group has as many as it was said to have, no more and no fewer.
    let least = spec.session_min();
    let config = SessionConfig {
        suite: SUITE_CHACHA20,
        min_cohort: small(private.map_or(least, |private| least.max(private.least_cohort()))),
        max_cohort: small(encoding.max_cohort),
        max_corrupt: secure.max_corrupt_millionths(),
        max_dropout: secure.max_dropout_millionths(),
        min_included: private.map_or(0, |private| small(private.smallest_cohort())),
        model: codec.shape(),
        scalars: VectorShape::NONE,
        application: application_digest(
            encoding,
            &spec.travelling_metrics(),
            private.map(|private| private.terms(private.initial_clip())).as_ref(),
        )
        .0,
    };
    match config.validate() {
        Ok(()) => Ok(Some(config)),
        Err(error) => Err(wrong(field_of(&error), error)),
    }
}

fn field_of(error: &InvalidConfig) -> &'static str {
    match error {
        InvalidConfig::Cohort { .. } | InvalidConfig::Included { .. } => "secure_aggregation.min_cohort",
        InvalidConfig::Corrupt { .. } => "secure_aggregation.max_corrupt_fraction",
        InvalidConfig::Dropout { .. } => "secure_aggregation.max_dropout_fraction",
        InvalidConfig::Modulus { .. } | InvalidConfig::Headroom { .. } => "secure_aggregation.modulus_bits",
        _ => "secure_aggregation",
    }
}

fn tensor_spec(tensor: &task_spec::TensorDeclaration) -> TensorSpec {
    TensorSpec { name: tensor.name.clone(), shape: tensor.shape.clone() }
}

fn wrong(field: &str, error: impl std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: field.to_owned(), problem: error.to_string() }]
}
