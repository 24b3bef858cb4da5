//! One round's work on this device: what an assignment means, checked, and the computation from model to masked input.
//!
//! [`Work`] is what the machine hands out to be computed. It holds everything the computation needs and touches neither
//! network nor disk. Running it twice gives the same bytes, or under secure aggregation or with a privacy mechanism none the
//! second time: masks that covered two inputs, or noise that was added to two, would give away their difference.

use std::sync::{Arc, Mutex, PoisonError};

use learning::analytics::{Analysis, AnalyticsState};
use learning::compress::BadResidual;
use learning::contribution::scaffold;
use learning::contribution::staleness::discount;
use learning::parameters::LayoutError;
use learning::{
    AnalyticsError, CheckpointError, CodecError, FairnessError, FixedClip, InitError, Layout, MetricValue, Parameters,
    QuantizationParams, Residual, TensorSpec, Update, checkpoint,
};
use rand::{CryptoRng, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use secure_agg::client::Masking;
use task_spec::below;
use wire::Digest;
use wire::participant::{
    Assignment, HeldUpdate, SessionTerms, application_digest, base_digest, round_digest, training_digest,
};
use zeroize::Zeroizing;

use super::base::{self, Base, BaseError};
use super::machine::Action;
use super::model_file::ModelFile;
use super::rule::Rule;
use super::size::{MaxModelBytes, TooLarge};
use super::snapshot::{Control, ControlRecord, Held};
use crate::identity::{IdentityError, SigningKey};
use crate::journal::JournalError;
use crate::personalize::{Local, LocalError, MethodError, PersonalTensors, Personalizer, Round};
use crate::pipeline::{self, Cover, Encoder, MaskedInput, PipelineError, Weighed};
use crate::privacy::{PrivateRound, TermsError};
use crate::seed::RoundSeeds;
use crate::trainer::{Cancel, Trained, Trainer, TrainerError, TrainingJob};
use crate::transport::Place;

/// Why an assignment cannot be followed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// It takes more memory than the app allows.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The tensors are no model.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// It cannot be personalized as the task says.
    #[error(transparent)]
    Personalization(#[from] MethodError),
    /// The encoding leaves no headroom for the cohort, where a sum could wrap, or its codec does not fit the model.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// What the codec yields cannot be masked, and the round has secure aggregation.
    #[error("uploads of the task's codec cannot be masked, and the round has secure aggregation")]
    NotSummable,
    /// The cohort is larger than the encoding was proven for.
    #[error("the cohort has {cohort} participants, the encoding has room for {room}")]
    Cohort {
        /// What the assignment says.
        cohort: u32,
        /// What the encoding allows.
        room: u32,
    },
    /// The file is larger than the model can be.
    #[error("the model is said to take {claimed} bytes; its tensors take at most {most}")]
    ModelBytes {
        /// What the assignment says.
        claimed: u64,
        /// What its tensors can take.
        most: u64,
    },
    /// The session was agreed on for other updates than this assignment's.
    #[error("the session of secure aggregation has another {0} than follows from the assignment")]
    Terms(&'static str),
    /// The terms of privacy promise nothing, or something that cannot be kept.
    #[error("the terms of privacy cannot be taken: {0}")]
    Privacy(#[from] TermsError),
    /// What an update counts for that was trained ahead makes no sense, or the update is older than the task allows.
    #[error("an update that was trained ahead cannot be taken: {0}")]
    Staleness(&'static str),
    /// Updates cannot be weighed by loss.
    #[error("updates cannot be weighed by loss: {0}")]
    Fairness(#[from] FairnessError),
    /// It cannot be solved as the task says.
    #[error("the task's solver cannot be followed: {0}")]
    Solver(String),
    /// Weights by loss or steps, and control variates, would tell more than the terms of privacy allow.
    #[error(
        "updates are to be weighed by loss or steps, or to change a control variate, which does not go with terms of privacy"
    )]
    FairAndPrivate,
    /// The analysis cannot be, or comes with what no analysis has.
    #[error("the analysis cannot be computed: {0}")]
    Analytics(String),
    /// The personal part cannot begin.
    #[error(transparent)]
    Init(#[from] InitError),
}

/// An assignment that was found to make sense.
pub(super) struct Plan {
    pub(super) place: Place,
    pub(super) assignment: Box<Assignment>,
    /// The whole model.
    whole: Arc<Layout>,
    /// None if every tensor is shared and nobody has a model of its own.
    personalizer: Option<Personalizer>,
    codec: UpdateCodec,
    /// Of what is fetched and sent.
    sent: Arc<Layout>,
    rule: Rule,
    /// The update is for a later round to take.
    is_ahead: bool,
    /// The update that was trained ahead of this round, and what it counts for.
    wanted: Option<(Held, f64)>,
}

/// How an update becomes words.
enum UpdateCodec {
    Plain(Box<learning::UpdateCodec>),
    Private(Box<PrivateRound>),
    Sums(Arc<Analysis>),
}

impl UpdateCodec {
    fn new(assignment: &Assignment, sent: &Layout) -> Result<Self, PlanError> {
        if let Some(terms) = &assignment.privacy {
            return Ok(Self::Private(Box::new(PrivateRound::new(assignment, terms, sent.len())?)));
        }
        let encoding = &assignment.encoding;
        let compression = encoding.compression.as_ref().map(|terms| &terms.codec);
        let params = QuantizationParams {
            parameters: sent.len(),
            modulus_bits: encoding.modulus_bits,
            clip_range: encoding.clip_range,
            clip_norm: encoding.clip_norm,
            max_weight: encoding.max_weight,
            max_cohort: encoding.max_cohort,
            metrics: assignment.metrics.len() + encoding.solver.map_or(0, |solver| solver.extra_metrics()),
        };
        let codec = learning::UpdateCodec::new(compression, sent, params)?;
        if assignment.secure_aggregation.is_some() && !codec.is_summable() {
            return Err(PlanError::NotSummable);
        }
        Ok(Self::Plain(Box::new(codec)))
    }

    fn rule(&self, assignment: &Assignment) -> Result<Rule, PlanError> {
        let asks = assignment.training.fairness.is_some() || assignment.encoding.solver.is_some();
        match self {
            Self::Plain(codec) => Rule::new(assignment, codec.params()),
            Self::Sums(_) | Self::Private(_) if !asks => Ok(Rule::Examples),
            Self::Sums(_) => {
                Err(PlanError::Analytics("updates are to be weighed by loss or steps, and it has none".to_owned()))
            }
            Self::Private(_) => Err(PlanError::FairAndPrivate),
        }
    }

    /// Words of an encoded update.
    fn words(&self) -> usize {
        match self {
            Self::Plain(codec) => codec.len(),
            Self::Private(round) => round.codec.len(),
            Self::Sums(analysis) => analysis.codec().len(),
        }
    }

    /// Whether a session has room for its words, and where there is noise neither less nor more.
    fn fits(&self, terms: &SessionTerms) -> [(&'static str, bool); 4] {
        let (bits, bound, margin) = match self {
            Self::Plain(codec) => (codec.modulus_bits(), terms.input_bound >= codec.input_bound(), true),
            Self::Private(round) => {
                let codec = &round.codec;
                let margin = terms.noise_margin == codec.noise_margin();
                (codec.params().modulus_bits, terms.input_bound == codec.input_bound(), margin)
            }
            Self::Sums(analysis) => {
                let codec = analysis.codec();
                (codec.modulus_bits(), terms.input_bound >= codec.input_bound(), true)
            }
        };
        [
            ("modulus", terms.modulus_bits == bits),
            ("number of words", terms.words == self.words() as u64),
            ("bound of an input", bound),
            ("room for noise", margin),
        ]
    }
}

impl Plan {
    /// Fetches the version to start from, behind the bytes that are there already.
    pub(super) fn fetch(&self, have: Vec<u8>) -> Action {
        Action::Fetch { task: self.assignment.task, model: self.assignment.base.clone(), have }
    }

    /// Checks everything that can be checked before a byte of the model has come, sizes first.
    pub(super) fn new(assignment: Box<Assignment>, most_bytes: MaxModelBytes) -> Result<Self, PlanError> {
        most_bytes.check_model(&assignment)?;
        let analysis = base::analysis(&assignment)?;
        let whole = Arc::new(match &analysis {
            Some(analysis) => base::layout_of_sums(analysis)?,
            None => layout(&assignment)?,
        });
        let encoding = &assignment.encoding;
        let personalizer = Personalizer::new(&whole, &assignment.model, encoding.personalization.as_ref())?;
        let shared = personalizer.as_ref().map_or(&whole, Personalizer::shared);
        if assignment.cohort > encoding.max_cohort {
            return Err(PlanError::Cohort { cohort: assignment.cohort, room: encoding.max_cohort });
        }
        let sent = scaffold::published(shared, encoding.solver.is_some_and(|solver| solver.has_control()))?;
        most_bytes.check_values("what is sent of the model", sent.len() as u64)?;
        let kept = personalizer.as_ref().map_or(0, |personalizer| personalizer.kept().len());
        most_bytes.check_values("what stays at home of the model", kept as u64)?;
        let codec = match &analysis {
            Some(analysis) => UpdateCodec::Sums(Arc::clone(analysis)),
            None => UpdateCodec::new(&assignment, &sent)?,
        };
        most_bytes.check_values("an encoded update", codec.words() as u64)?;
        let rule = codec.rule(&assignment)?;
        if let Some(terms) = &assignment.secure_aggregation {
            check_terms(&assignment, terms, &codec)?;
        }
        let most = 8 + checkpoint::MAX_HEADER_BYTES + 4 * sent.len() as u64;
        if analysis.is_none() && assignment.base.bytes > most {
            return Err(PlanError::ModelBytes { claimed: assignment.base.bytes, most });
        }
        let place = Place { task: assignment.task, round: assignment.round, attempt: assignment.attempt };
        let wanted = wanted(&assignment)?;
        check_earlier(&assignment)?;
        Ok(Self { place, assignment, whole, personalizer, codec, sent, rule, is_ahead: false, wanted })
    }

    /// The same for a training whose update is kept for a later round.
    pub(super) fn ahead(assignment: Box<Assignment>, most_bytes: MaxModelBytes) -> Result<Self, PlanError> {
        if assignment.encoding.staleness.is_none() {
            return Err(PlanError::Staleness("the task does not say what one counts for"));
        }
        Ok(Self { is_ahead: true, ..Self::new(assignment, most_bytes)? })
    }

    /// The round that schedules count. Where participants train ahead it follows from the version: which round a training is for is
    /// told to each alone, while all members of a session agree on how old their versions may be. Told a late round, everybody
    /// but one would learn next to nothing.
    fn counted_round(&self) -> u32 {
        let Assignment { encoding, base, round, .. } = &*self.assignment;
        if encoding.staleness.is_some() { base.version.saturating_add(1) } else { *round }
    }

    /// The update that the round wants instead of a training.
    pub(super) fn wanted(&self) -> Option<Held> {
        self.wanted.map(|(held, _)| held)
    }

    /// The tensors that leave the device.
    pub(super) fn shared(&self) -> &Arc<Layout> {
        self.personalizer.as_ref().map_or(&self.whole, Personalizer::shared)
    }

    /// Reads the published part of the model, or the state of the analysis.
    pub(super) fn read_model(&self, file: &ModelFile) -> Result<Base, BaseError> {
        if let UpdateCodec::Sums(analysis) = &self.codec {
            return Ok(Base::State(Box::new(analysis.read_published(file.bytes())?)));
        }
        Ok(Base::Model(file.parameters(&self.sent)?))
    }

    /// What an input of this round is made from, unless noise of this participant's own is in it: by [`base_digest`], which stands for
    /// the model itself since a published file has one form. An update that was trained ahead of the round started from the version
    /// that it remembers.
    pub(super) fn base(&self) -> Option<Digest> {
        let has_own_noise = self.private().is_some_and(|round| round.noise.is_some());
        let Assignment { encoding, base, .. } = &*self.assignment;
        let base = self.wanted().map_or(base.sha256, |held| held.base);
        (!has_own_noise).then(|| base_digest(encoding, base))
    }

    /// What privacy asks of the round, if the task has a mechanism.
    pub(super) fn private(&self) -> Option<&PrivateRound> {
        match &self.codec {
            UpdateCodec::Plain(_) | UpdateCodec::Sums(_) => None,
            UpdateCodec::Private(round) => Some(round),
        }
    }

    /// Makes it go wrong on purpose.
    #[cfg(feature = "deliberate-faults")]
    pub(super) fn with_fault(mut self, fault: Option<crate::faults::Fault>) -> Self {
        if let UpdateCodec::Private(round) = &mut self.codec {
            round.fault = fault;
        }
        self
    }

    /// Whether tensors stay at home.
    pub(super) fn is_personal(&self) -> bool {
        self.personalizer.is_some()
    }

    /// Whether the codec brings along what it left out before.
    pub(super) fn keeps_residual(&self) -> bool {
        !self.is_ahead && matches!(&self.codec, UpdateCodec::Plain(codec) if codec.keeps_residual())
    }

    /// Whether a control variate is kept.
    pub(super) fn keeps_control(&self) -> bool {
        self.rule.keeps_control()
    }

    /// The control variate that counts, from its record; nothing before the first that did.
    pub(super) fn control(&self, record: Option<&[u8]>) -> Result<Result<Option<Control>, String>, JournalError> {
        let record = record.map(|record| ControlRecord::decode(record, self.whole.len())).transpose()?;
        Ok(ControlRecord::settle(record, self.assignment.counted))
    }

    /// What the codec left out of earlier updates.
    pub(super) fn residual(&self, record: &[u8]) -> Result<Residual, BadResidual> {
        let shared = self.personalizer.as_ref().map_or(&self.whole, Personalizer::shared);
        Residual::from_record(record, shared.len())
    }

    /// The tensors that stayed at home, from their record or as they begin; none if they begin as what is received.
    pub(super) fn personal(&self, record: Option<&[u8]>) -> Result<Option<PersonalTensors>, PersonalError> {
        let Some(personalizer) = &self.personalizer else { return Ok(None) };
        match record {
            Some(record) => Ok(Some(PersonalTensors::from_record(record, personalizer.kept())?)),
            None => Ok(personalizer.initial(&self.assignment.model)?),
        }
    }
}

/// The update that the round wants, and what it counts for: by the version that the round starts from.
fn wanted(assignment: &Assignment) -> Result<Option<(Held, f64)>, PlanError> {
    let rule = assignment.encoding.staleness;
    if rule.is_some_and(|rule| !rule.is_sound()) {
        return Err(PlanError::Staleness("the task's rule for old ones gives no weights above 0 and up to 1"));
    }
    let Some(HeldUpdate { serial, version }) = assignment.update else { return Ok(None) };
    let rule = rule.ok_or(PlanError::Staleness("the task does not say what one counts for"))?;
    let staleness = assignment.base.version.checked_sub(version);
    let staleness = staleness.ok_or(PlanError::Staleness("it is newer than the round"))?;
    if staleness > rule.max {
        return Err(PlanError::Staleness("it is older than the task allows"));
    }
    let base = match staleness.checked_sub(1) {
        None => Some(assignment.base.sha256),
        Some(behind) => assignment.earlier.get(behind as usize).copied(),
    };
    let base = base.ok_or(PlanError::Staleness(LACKS_VERSIONS))?;
    let held = Held { task: assignment.task, serial, version, trained: told(assignment), base };
    Ok(Some((held, rule.weight(staleness))))
}

/// Members agree on the files of all versions that an update may have started from, and on no others.
fn check_earlier(assignment: &Assignment) -> Result<(), PlanError> {
    let most = assignment.encoding.staleness.map_or(0, |rule| rule.max.min(assignment.base.version));
    if assignment.earlier.len() == most as usize { Ok(()) } else { Err(PlanError::Staleness(LACKS_VERSIONS)) }
}

const LACKS_VERSIONS: &str = "the digests that are told are not those of all versions which one may have started from";

fn layout(assignment: &Assignment) -> Result<Layout, LayoutError> {
    let specs = assignment.model.tensors.iter();
    let specs = specs.map(|tensor| TensorSpec { name: tensor.name.clone(), shape: tensor.shape.clone() });
    Layout::new(specs.collect())
}

/// What the participant is told that decides its update.
pub(super) fn told(assignment: &Assignment) -> Digest {
    let Assignment { task_name, model, training, encoding, metrics, privacy, .. } = assignment;
    let application = application_digest(encoding, metrics, privacy.as_ref());
    training_digest(&application, task_name, model, training)
}

/// What the participants agree on must be what each of them is told to do: length, modulus and headroom of the sum, and by
/// the digest everything that gives its words their meaning.
fn check_terms(assignment: &Assignment, terms: &SessionTerms, codec: &UpdateCodec) -> Result<(), PlanError> {
    let encoding = &assignment.encoding;
    let cohort = u32::from(terms.min_cohort)..=u32::from(terms.max_cohort);
    let checks = [
        ("largest cohort", u32::from(terms.max_cohort) == encoding.max_cohort),
        ("cohort", cohort.contains(&assignment.cohort)),
        // A group has exactly as many as was agreed on, and the session takes no other roster.
        (
            "size of a group",
            encoding.groups.is_none_or(|groups| *cohort.start() == groups.size && groups.size == *cohort.end()),
        ),
    ];
    // Last, since it would hide what is different.
    let application = round_digest(&told(assignment), assignment.base.version, &assignment.earlier);
    let digest = [("encoding, model or training", terms.application == application)];
    match checks.into_iter().chain(codec.fits(terms)).chain(digest).find(|(_, holds)| !holds) {
        Some((what, _)) => Err(PlanError::Terms(what)),
        None => Ok(()),
    }
}

/// Why the personal tensors cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum PersonalError {
    #[error(transparent)]
    Record(#[from] CheckpointError),
    #[error(transparent)]
    Initial(#[from] InitError),
}

/// Why there is nothing to send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The trainer said so.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The task weighs by loss, and there is none.
    #[error("the task weighs updates by the loss of the received model; return a metric \"loss\" from evaluate")]
    NoLoss,
    /// The task's solver asks how far the steps went, and it is not said.
    #[error(
        "the task's solver asks how far training went; return a metric \"train_reach\" from train, above 0 and finite"
    )]
    NoReach,
    /// The rows of this device are none for the analysis.
    #[error(transparent)]
    Rows(#[from] AnalyticsError),
    /// What the trainer yielded must not be sent.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The trainer panicked.
    #[error("the trainer panicked")]
    Panicked,
    /// The input cannot be signed.
    #[error(transparent)]
    Key(#[from] IdentityError),
    /// The work was done before.
    #[error("the masks of this round have covered an input already, and cover no second one")]
    MasksUsed,
    /// The same, where noise is concerned.
    #[error("noise was drawn for an update of this round already, and is added to no second one")]
    NoiseUsed,
    /// What came out is not masked.
    #[error("the round has secure aggregation, but the update was not masked")]
    NotMasked,
}

impl From<LocalError> for WorkError {
    fn from(error: LocalError) -> Self {
        match error {
            LocalError::Trainer(error) => Self::Trainer(error),
            LocalError::Pipeline(error) => Self::Pipeline(error),
        }
    }
}

/// The masks of one input, to be taken once.
pub(super) struct Masks {
    masking: Mutex<Option<Box<Masking>>>,
    key: Arc<SigningKey>,
}

impl Masks {
    pub(super) fn new(masking: Box<Masking>, key: Arc<SigningKey>) -> Self {
        Self { masking: Mutex::new(Some(masking)), key }
    }

    fn take(&self) -> Result<Box<Masking>, WorkError> {
        self.masking.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(WorkError::MasksUsed)
    }
}

/// What rounding and noise of one private update are drawn from, to be taken once.
pub(super) struct NoiseSeed(Mutex<Option<Zeroizing<[u8; 32]>>>);

impl NoiseSeed {
    /// A fresh one.
    pub(super) fn draw(secrets: &mut dyn CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        secrets.fill_bytes(&mut *seed);
        Self(Mutex::new(Some(seed)))
    }

    fn take(&self) -> Result<ChaCha20Rng, WorkError> {
        let seed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        seed.map(|seed| ChaCha20Rng::from_seed(*seed)).ok_or(WorkError::NoiseUsed)
    }
}

/// What is drawn for one round's work.
pub(super) struct Draws {
    /// Shuffling, and rounding where nothing private rests on it.
    pub(super) seeds: RoundSeeds,
    /// Rounding and noise of an update that a mechanism makes private.
    pub(super) noise: NoiseSeed,
}

/// What stayed at home and is needed again.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) personal: Option<PersonalTensors>,
    pub(super) residual: Option<Residual>,
    pub(super) control: Option<Control>,
}

/// Evaluate, train, encode, mask; or add up, encode, mask.
pub struct Work {
    plan: Arc<Plan>,
    received: Base,
    personal: Option<PersonalTensors>,
    residual: Option<Residual>,
    control: Option<Control>,
    job: TrainingJob,
    draws: Draws,
    /// None if the task is without secure aggregation.
    masks: Option<Masks>,
}

/// What comes out of it.
pub struct Contribution {
    pub(super) made: Made,
    pub(super) personal: Option<PersonalTensors>,
    /// The device's own model.
    pub(super) own: Option<PersonalTensors>,
    pub(super) evaluated: Vec<(String, MetricValue)>,
    pub(super) trained: Vec<(String, MetricValue)>,
    pub(super) examples: u64,
}

/// What became of the update.
pub(super) enum Made {
    /// What is sent.
    Input(MaskedInput),
    /// It is kept, for a later round.
    Update(Box<Update>),
}

impl Work {
    pub(super) fn new(
        plan: Arc<Plan>,
        received: Base,
        Kept { personal, residual, control }: Kept,
        draws: Draws,
        masks: Option<Masks>,
    ) -> Self {
        let assignment = &plan.assignment;
        let job = TrainingJob {
            task: assignment.task_name.clone(),
            round: plan.counted_round(),
            plan: assignment.training.in_round(plan.counted_round()),
            architecture: assignment.model.architecture.clone(),
            analytics: assignment.encoding.analytics.clone(),
            metrics: assignment.metrics.clone(),
            seed: draws.seeds.training,
            cancel: Cancel::default(),
        };
        Self { plan, received, personal, residual, control, job, draws, masks }
    }

    /// Does the work with `trainer`. Takes as long as the trainer does: run it where that hurts nobody.
    ///
    /// # Errors
    /// [`WorkError`]; to be handed to the machine like a result.
    pub fn run(&self, trainer: &mut dyn Trainer) -> Result<Contribution, WorkError> {
        match (&self.plan.codec, &self.received) {
            (UpdateCodec::Sums(analysis), Base::State(state)) => self.add_up(analysis, state, trainer),
            (_, Base::Model(received)) => self.train(received, trainer),
            (_, Base::Update(update)) => self.aggregate(update),
            // Plan and base come from one assignment.
            (_, Base::State(_) | Base::Held) => Err(PipelineError::WrongLayout.into()),
        }
    }

    /// Whether it takes as long as training does.
    #[must_use]
    pub fn trains(&self) -> bool {
        self.plan.wanted.is_none()
    }

    /// What was trained ahead, by its age.
    fn aggregate(&self, update: &Update) -> Result<Contribution, WorkError> {
        let bound = match &self.plan.codec {
            UpdateCodec::Plain(codec) => codec.params().clip_norm,
            #[expect(clippy::cast_possible_truncation, reason = "what it rounds up is clipped again")]
            UpdateCodec::Private(round) => Some(round.clip as f32),
            UpdateCodec::Sums(_) => None,
        };
        let mut update = update.clone();
        let weight = self.plan.wanted.map_or(1.0, |(_, weight)| weight);
        discount(&mut update, bound.and_then(|bound| FixedClip::new(bound).ok()), weight);
        let made = Made::Input(self.masked(&update)?);
        let examples = update.examples;
        Ok(Contribution { made, personal: None, own: None, evaluated: Vec::new(), trained: Vec::new(), examples })
    }

    /// The device's part of an analysis.
    fn add_up(
        &self,
        analysis: &Analysis,
        state: &AnalyticsState,
        trainer: &mut dyn Trainer,
    ) -> Result<Contribution, WorkError> {
        let table = trainer.table(&self.job)?;
        let values = analysis.contribution(state, &table)?;
        let input = self.covered(|cover| pipeline::masked_sums(&values, analysis.codec(), cover))?;
        let (evaluated, trained, examples) = (Vec::new(), Vec::new(), table.rows() as u64);
        let made = Made::Input(input);
        Ok(Contribution { made, personal: None, own: None, evaluated, trained, examples })
    }

    fn train(&self, received: &Parameters, trainer: &mut dyn Trainer) -> Result<Contribution, WorkError> {
        let rule = &self.plan.rule;
        let received = rule.open(received, &self.plan.whole)?;
        let control = self.control.as_ref().map_or(&[][..], |control| &control.values);
        // From here on the personal part goes one way and the shared part the other.
        let (trained, evaluated, (personal, own)) = match &self.plan.personalizer {
            Some(personalizer) => {
                let kept = self.personal.as_ref();
                let mut round = Round { trainer, job: &self.job, received: &received.model, kept };
                let Local { mut update, personal, evaluated, own } = personalizer.run(&mut round)?;
                update.metrics.extend(own.metrics);
                (update, evaluated, (personal, Some(own.model)))
            }
            None => {
                let evaluated = trainer.evaluate(&received.model, &self.job)?;
                (rule.train(&received, control, &self.job, trainer)?, evaluated, (None, None))
            }
        };
        let metrics = self.in_order(&evaluated, &trained.metrics);
        let weight = rule.weight(&trained, &evaluated, &received, control)?;
        let Weighed { update, control } = pipeline::update(&received.model, &trained.parameters, weight, metrics)?;
        let made = match self.plan.is_ahead {
            true => Made::Update(Box::new(update)),
            false => Made::Input(MaskedInput { control, ..self.masked(&update)? }),
        };
        let Trained { metrics: trained, examples, .. } = trained;
        Ok(Contribution { made, personal, own, evaluated, trained, examples })
    }

    /// The control variate that counted when the work began.
    pub(super) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    fn masked(&self, update: &Update) -> Result<MaskedInput, WorkError> {
        let Assignment { encoding, round, attempt, .. } = &*self.plan.assignment;
        let seed = encoding.compression.as_ref().map_or([0; 32], |terms| terms.round_seed(*round, *attempt).0);
        let mut rng;
        let encoder = match &self.plan.codec {
            UpdateCodec::Plain(codec) => {
                rng = self.draws.seeds.rounding.clone();
                Encoder::Plain { codec, residual: self.residual.as_ref(), seed: &seed, rounding: &mut rng }
            }
            UpdateCodec::Private(round) => {
                rng = self.draws.noise.take()?;
                Encoder::Private(round, &mut rng)
            }
            UpdateCodec::Sums(_) => return Err(PipelineError::WrongLayout.into()),
        };
        self.covered(|cover| pipeline::masked_update(update, encoder, cover))
    }

    /// Lets `send` have the masks of the round, if the task has secure aggregation. Once.
    fn covered(
        &self,
        send: impl FnOnce(Cover<'_>) -> Result<MaskedInput, PipelineError>,
    ) -> Result<MaskedInput, WorkError> {
        let signer;
        let cover = match &self.masks {
            Some(masks) => {
                signer = masks.key.signer()?;
                Cover::Masks(masks.take()?, &signer)
            }
            None => Cover::Nothing,
        };
        Ok(send(cover)?)
    }

    /// Tells the trainer that nobody waits any more.
    pub fn cancel(&self) {
        self.job.cancel.cancel();
    }

    /// The metrics the task names, in its order; not measured where the trainer has none of that name. None at all leave the
    /// device where a mechanism makes updates private.
    fn in_order(&self, evaluated: &[(String, MetricValue)], trained: &[(String, MetricValue)]) -> Vec<MetricValue> {
        if self.plan.private().is_some() {
            return Vec::new();
        }
        let find = |name: &str| evaluated.iter().chain(trained).find(|(own, _)| own == name).map(|(_, value)| *value);
        let metrics = self.plan.assignment.metrics.iter();
        metrics.map(|name| find(name).or_else(|| is_below(name, find)).unwrap_or_default()).collect()
    }
}

/// One participant's part in the distribution of a metric: 1 if its own is below the bound that `name` says, else 0. The mean
/// over participants is a point of the distribution, and the sum tells nobody's place in it.
fn is_below(name: &str, find: impl Fn(&str) -> Option<MetricValue>) -> Option<MetricValue> {
    let (metric, bound) = below(name)?;
    let value = find(metric)?.measured()?;
    Some(MetricValue { value: f64::from(u8::from(value < f64::from(bound?) / 100.0)), count: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_a_distribution_is_one_or_zero() {
        let find = |name: &str| (name == "accuracy").then_some(MetricValue { value: 0.5, count: 40 });
        for (name, expected) in [
            ("accuracy.below.50", Some(0.0)),
            ("accuracy.below.51", Some(1.0)),
            ("accuracy.below.0", None),
            ("f1.below.9", None),
        ] {
            let expected = expected.map(|value| MetricValue { value, count: 1 });
            assert_eq!(is_below(name, find), expected, "{name}");
        }
        assert_eq!(is_below("accuracy.below.50", |_| Some(MetricValue::default())), None, "not measured");
    }
}
