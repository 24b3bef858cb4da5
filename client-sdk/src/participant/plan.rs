//! What an assignment asks for, checked before a byte of the model has come.

use std::sync::Arc;

use learning::analytics::Analysis;
use learning::compress::BadResidual;
use learning::contribution::scaffold;
use learning::parameters::LayoutError;
use learning::{Layout, QuantizationParams, Residual, TensorSpec, checkpoint};
use wire::participant::{
    Assignment, HeldUpdate, SessionTerms, application_digest, base_digest, round_digest, training_digest,
};
use wire::{Attempt, Digest};

use super::base::{self, Base, BaseError};
use super::model_file::ModelFile;
use super::plan_error::{PersonalError, PlanError};
use super::rule::Rule;
use super::size::MaxModelBytes;
use super::snapshot::{Control, ControlRecord, Held};
use crate::journal::JournalError;
use crate::personalize::{PersonalTensors, Personalizer};
use crate::privacy::PrivateRound;

/// An assignment that was found to make sense.
pub(super) struct Plan {
    pub(super) place: Attempt,
    pub(super) assignment: Box<Assignment>,
    /// The whole model.
    pub(super) whole: Arc<Layout>,
    /// None if every tensor is shared and nobody has a model of its own.
    pub(super) personalizer: Option<Personalizer>,
    pub(super) codec: UpdateCodec,
    /// Of what is fetched and sent.
    pub(super) sent: Arc<Layout>,
    pub(super) rule: Rule,
    /// The update is for a later round to take.
    pub(super) is_ahead: bool,
    /// The update that was trained ahead of this round, and what it counts for.
    pub(super) wanted: Option<(Held, f64)>,
}

/// How an update becomes words.
pub(super) enum UpdateCodec {
    Plain(Box<learning::UpdateCodec>),
    Private(Box<PrivateRound>),
    Sums(Arc<Analysis>),
}

impl UpdateCodec {
    pub(super) fn new(assignment: &Assignment, sent: &Layout) -> Result<Self, PlanError> {
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

    pub(super) fn rule(&self, assignment: &Assignment) -> Result<Rule, PlanError> {
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
    pub(super) fn words(&self) -> usize {
        match self {
            Self::Plain(codec) => codec.len(),
            Self::Private(round) => round.codec.len(),
            Self::Sums(analysis) => analysis.codec().len(),
        }
    }

    /// Whether a session has room for its words, and where there is noise neither less nor more.
    pub(super) fn fits(&self, terms: &SessionTerms) -> [(&'static str, bool); 4] {
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
        let place = assignment.attempt_key();
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
    pub(super) fn counted_round(&self) -> u32 {
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
