//! An assignment, checked before any byte of the model is fetched.

use std::sync::Arc;

use learning::compress::BadResidual;
use learning::{Layout, Residual, checkpoint};
use recipe::device::{PrivateRound, check_session};
use recipe::{AssignmentTerms, Recipe, Tensors, UpdateCodec};
use wire::Attempt;
use wire::participant::{Assignment, HeldUpdate};

use crate::journal::JournalError;
use crate::participant::api::plan_error::{PersonalError, PlanError};
use crate::participant::checks::size::MaxModelBytes;
use crate::participant::journal::snapshot::{Control, ControlRecord, HeldUpdateId, TrainingId};
use crate::participant::model::base::{self, BaseError, RoundBase};
use crate::participant::model::model_file::ModelFile;
use crate::personalize::{PersonalTensors, Personalizer};

pub(in crate::participant) struct Plan {
    pub(in crate::participant) place: Attempt,
    pub(in crate::participant) assignment: Box<Assignment>,
    pub(in crate::participant) recipe: Recipe,
    /// `None` without personalization.
    pub(in crate::participant) personalizer: Option<Personalizer>,
    /// The round's privacy terms, if the task has a mechanism.
    private: Option<PrivateRound>,
    /// Whether the update is kept for a later round.
    pub(super) is_ahead: bool,
    /// The update trained ahead that the round requests, and its weight factor.
    pub(in crate::participant) wanted: Option<(HeldUpdateId, f64)>,
}

/// The reason why a control variate is not recalled.
pub(in crate::participant) enum NoControl {
    /// The coordinator counts an update that the record does not have.
    Unsettled(String),
    /// The record cannot be read.
    Journal(JournalError),
}

impl Plan {
    /// Checks everything that can be checked before the model is fetched, sizes first.
    pub(in crate::participant) fn new(
        assignment: Box<Assignment>,
        most_bytes: MaxModelBytes,
    ) -> Result<Self, PlanError> {
        most_bytes.check_model(&assignment.model, assignment.base.bytes)?;
        base::check_analysis(&assignment)?;
        let (terms, encoding) = (AssignmentTerms::from(&*assignment), &assignment.encoding);
        let tensors = Tensors::new(&terms)?;
        let personalizer = Personalizer::new(&tensors, &assignment.model, encoding.personalization.as_ref())?;
        if assignment.cohort > encoding.max_cohort {
            return Err(PlanError::Cohort { cohort: assignment.cohort, room: encoding.max_cohort });
        }
        let sent = tensors.published.len() as u64;
        most_bytes.check_values("what is sent of the model", sent)?;
        let kept = personalizer.as_ref().map_or(0, |personalizer| personalizer.stored_layout().len());
        most_bytes.check_values("what stays at home of the model", kept as u64)?;
        let recipe = Recipe::new(&terms, tensors, Some(assignment.round))?;
        most_bytes.check_values("an encoded update", recipe.codec.len() as u64)?;
        let private = match (&recipe.codec, &assignment.privacy) {
            (UpdateCodec::Private(quantizer), Some(terms)) => {
                Some(PrivateRound::of(&assignment, terms, Arc::clone(quantizer))?)
            }
            _ => None,
        };
        if let Some(terms) = &assignment.secure_aggregation {
            if recipe.codec.expanding().is_some() {
                return Err(PlanError::NotSummable);
            }
            check_session(&assignment, terms, &recipe.codec).map_err(PlanError::Terms)?;
        }
        if recipe.tensors.analysis.is_none() {
            check_file(&recipe.tensors, assignment.base.bytes)?;
        }
        let place = assignment.attempt_key();
        let wanted = wanted(&assignment)?;
        check_earlier(&assignment)?;
        Ok(Self { place, assignment, recipe, personalizer, private, is_ahead: false, wanted })
    }

    /// Checks a training whose update is kept for a later round.
    pub(in crate::participant) fn ahead(
        assignment: Box<Assignment>,
        most_bytes: MaxModelBytes,
    ) -> Result<Self, PlanError> {
        if assignment.encoding.staleness.is_none() {
            return Err(PlanError::Staleness("the task does not say what one counts for"));
        }
        Ok(Self { is_ahead: true, ..Self::new(assignment, most_bytes)? })
    }

    /// The round number for learning-rate schedules. For training ahead it follows from the version: each participant receives its round
    /// separately, while all members of a session agree on the versions. A coordinator could otherwise give all but one a late round, so
    /// that they learn next to nothing.
    pub(super) fn counted_round(&self) -> u32 {
        let Assignment { encoding, base, round, .. } = &*self.assignment;
        if encoding.staleness.is_some() { base.version.saturating_add(1) } else { *round }
    }

    /// The update trained ahead that the round requests.
    pub(in crate::participant) fn wanted(&self) -> Option<HeldUpdateId> {
        self.wanted.map(|(held, _)| held)
    }

    /// Layout of the tensors that leave the device.
    pub(in crate::participant) fn shared(&self) -> &Arc<Layout> {
        &self.recipe.tensors.shared
    }

    /// Reads the published part of the model, or the state of the analysis.
    pub(in crate::participant) fn read_model(&self, file: &ModelFile) -> Result<RoundBase, BaseError> {
        if let Some(analysis) = &self.recipe.tensors.analysis {
            return Ok(RoundBase::State(Arc::new(analysis.read_published(file.bytes().unwrap_or_default())?)));
        }
        Ok(RoundBase::Model(file.parameters(&self.recipe.tensors.published)?))
    }

    /// Identifies the training that a checkpoint belongs to.
    pub(in crate::participant) fn training_id(&self) -> TrainingId {
        let trained = AssignmentTerms::from(&*self.assignment).training();
        TrainingId { place: self.place, base: self.assignment.base.sha256, trained }
    }

    /// The round's privacy terms, if the task has a mechanism.
    pub(in crate::participant) fn private(&self) -> Option<&PrivateRound> {
        self.private.as_ref()
    }

    /// Adds a deliberate fault.
    #[cfg(feature = "deliberate-faults")]
    pub(in crate::participant) fn with_fault(mut self, fault: Option<crate::faults::Fault>) -> Self {
        if let Some(round) = &mut self.private {
            round.fault = fault;
        }
        self
    }

    /// Whether some tensors stay local.
    pub(in crate::participant) fn is_personal(&self) -> bool {
        self.personalizer.is_some()
    }

    /// Whether the codec keeps a residual.
    pub(in crate::participant) fn keeps_residual(&self) -> bool {
        !self.is_ahead && matches!(&self.recipe.codec, UpdateCodec::Plain(codec) if codec.keeps_residual())
    }

    /// Whether the solver keeps a control variate.
    pub(in crate::participant) fn keeps_control(&self) -> bool {
        self.recipe.rule.keeps_control()
    }

    /// The control variate that counts, from its record; `None` before the first.
    pub(in crate::participant) fn control(&self, record: Option<&[u8]>) -> Result<Option<Control>, NoControl> {
        let record = record.map(|record| ControlRecord::decode(record, self.recipe.tensors.whole.len()));
        let record = record.transpose().map_err(NoControl::Journal)?;
        ControlRecord::settle(record, self.assignment.counted).map_err(NoControl::Unsettled)
    }

    /// The codec's residual of earlier updates.
    pub(in crate::participant) fn residual(&self, record: &[u8]) -> Result<Residual, BadResidual> {
        Residual::from_record(record, self.shared().len())
    }

    /// The personal tensors, from their record or as initialized; `None` if they start as received.
    pub(in crate::participant) fn personal(
        &self,
        record: Option<&[u8]>,
    ) -> Result<Option<PersonalTensors>, PersonalError> {
        let Some(personalizer) = &self.personalizer else { return Ok(None) };
        match record {
            Some(record) => Ok(Some(PersonalTensors::from_record(record, personalizer.stored_layout())?)),
            None => Ok(personalizer.initial(&self.assignment.model)?),
        }
    }
}

/// Checks that the file of a published model has at most the size that its tensors can need.
pub(in crate::participant) fn check_file(tensors: &Tensors, claimed: u64) -> Result<(), PlanError> {
    let most = 8 + checkpoint::MAX_HEADER_BYTES + 4 * tensors.published.len() as u64;
    if claimed > most { Err(PlanError::ModelBytes { claimed, most }) } else { Ok(()) }
}

/// The requested update, and its weight factor by staleness.
fn wanted(assignment: &Assignment) -> Result<Option<(HeldUpdateId, f64)>, PlanError> {
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
    let held = HeldUpdateId {
        task: assignment.task,
        serial,
        version,
        trained: AssignmentTerms::from(assignment).training(),
        base,
    };
    Ok(Some((held, rule.weight(staleness))))
}

/// Checks that the assignment has the digests of exactly the versions that an update may have started from.
fn check_earlier(assignment: &Assignment) -> Result<(), PlanError> {
    let most = assignment.encoding.staleness.map_or(0, |rule| rule.max.min(assignment.base.version));
    if assignment.earlier.len() == most as usize { Ok(()) } else { Err(PlanError::Staleness(LACKS_VERSIONS)) }
}

const LACKS_VERSIONS: &str = "the digests that are told are not those of all versions which one may have started from";
