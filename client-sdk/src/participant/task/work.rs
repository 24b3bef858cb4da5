//! One round's computation on this device, from the model to the masked input.
//!
//! [`RoundWork`] is handed out by the machine. It holds everything the computation needs and works without network and
//! disk. Running it twice gives the same bytes; under secure aggregation or with a privacy mechanism the second run
//! fails: masks or noise used for two inputs would reveal their difference.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use learning::analytics::{Analysis, AnalyticsState};
use learning::contribution::staleness::discount;
use learning::{Clipping, MetricValue, Parameters, Residual, Update, checkpoint};
use rand::{CryptoRng, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use recipe::device::pipeline::{self, Encoder, MaskedInput, PipelineError, Protection, WeightedUpdate};
use recipe::digest::codec_seed;
#[cfg(feature = "deliberate-faults")]
use recipe::repeatable_noise;
use recipe::{Recipe, UpdateCodec};
use secure_agg::client::Masking;
use task_spec::below;
#[cfg(feature = "deliberate-faults")]
use wire::Attempt;
use wire::Digest;
use wire::Timestamp;
use zeroize::Zeroizing;

use super::plan::Plan;
use super::training_log::{Logged, Surroundings, TrainingLog};
use crate::checkpoints::Checkpoints;
use crate::identity::SigningKey;
use crate::journal::JournalError;
use crate::participant::api::plan_error::WorkError;
use crate::participant::journal::record::Record;
use crate::participant::journal::snapshot::{Control, TrainingRecord};
use crate::participant::model::base::RoundBase;
use crate::participant::model::received::Received;
use crate::personalize::{LocalResult, LocalRound, PersonalTensors};
use crate::seed::RoundSeeds;
use crate::trainer::{Cancel, Purpose, Trained, Trainer, TrainerError, TrainingJob, measured_of_model};

/// The masks of one input; taken once.
pub(in crate::participant) struct Masks {
    masking: Mutex<Option<Box<Masking>>>,
    key: Arc<SigningKey>,
}

impl Masks {
    pub(in crate::participant) fn new(masking: Box<Masking>, key: Arc<SigningKey>) -> Self {
        Self { masking: Mutex::new(Some(masking)), key }
    }

    fn take(&self) -> Result<Box<Masking>, WorkError> {
        self.masking.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(WorkError::MasksUsed)
    }
}

/// The seed of one private update's rounding and noise; taken once.
pub(in crate::participant) struct NoiseSeed(Mutex<Option<Zeroizing<[u8; 32]>>>);

impl NoiseSeed {
    pub(in crate::participant) fn draw(secrets: &mut dyn CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        secrets.fill_bytes(&mut *seed);
        Self(Mutex::new(Some(seed)))
    }

    /// The seed shared by two runs, if a test sets one.
    #[cfg(feature = "deliberate-faults")]
    pub(in crate::participant) fn or_repeatable(self, place: Attempt, name: &str) -> Self {
        let shared = repeatable_noise::seed(place.round, place.attempt, &format!("update of {name}"));
        shared.map_or(self, |seed| Self(Mutex::new(Some(Zeroizing::new(seed)))))
    }

    fn take(&self) -> Result<ChaCha20Rng, WorkError> {
        let seed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        seed.map(|seed| ChaCha20Rng::from_seed(*seed)).ok_or(WorkError::NoiseUsed)
    }
}

/// Randomness of one round's computation.
pub(in crate::participant) struct Draws {
    /// Seeds of shuffling, and of rounding that privacy does not depend on.
    pub(in crate::participant) seeds: RoundSeeds,
    /// Seed of the rounding and noise of a private update.
    pub(in crate::participant) noise: NoiseSeed,
}

/// Local state from earlier rounds.
#[derive(Default)]
pub(in crate::participant) struct SavedState {
    pub(in crate::participant) personal: Option<PersonalTensors>,
    pub(in crate::participant) residual: Option<Residual>,
    pub(in crate::participant) control: Option<Control>,
}

/// Results of an earlier process in the same attempt, and the bound on those that this one saves.
pub(in crate::participant) struct Earlier {
    pub(in crate::participant) unfinished: Option<TrainingRecord>,
    pub(in crate::participant) max_model_bytes: u64,
}

/// Evaluates, trains, encodes and masks; or computes an analysis, encodes and masks.
pub struct RoundWork {
    plan: Arc<Plan>,
    /// `None` once the masks were taken: later runs do not use it, and a model is large.
    received: Mutex<Option<RoundBase>>,
    personal: Option<PersonalTensors>,
    residual: Option<Residual>,
    control: Option<Control>,
    job: TrainingJob,
    log: Arc<TrainingLog>,
    draws: Draws,
    /// `None` without secure aggregation.
    masks: Option<Masks>,
}

/// Result of a round's computation.
pub struct Contribution {
    pub(in crate::participant) output: WorkOutput,
    pub(in crate::participant) personal: Option<PersonalTensors>,
    pub(in crate::participant) own: Option<PersonalTensors>,
    pub(in crate::participant) evaluated: Vec<(String, MetricValue)>,
    pub(in crate::participant) trained: Vec<(String, MetricValue)>,
    pub(in crate::participant) examples: u64,
    /// The effect of clipping on the update, if any; reported with the training.
    pub(in crate::participant) clipping: Option<Box<Clipping>>,
    /// The record of another coordinator's version that the update comes from.
    pub(in crate::participant) below: Option<Digest>,
}

impl Contribution {
    /// The result of a round in which nothing was trained.
    fn without_training(output: WorkOutput, examples: u64) -> Self {
        let (evaluated, trained) = (Vec::new(), Vec::new());
        Self { output, personal: None, own: None, evaluated, trained, examples, clipping: None, below: None }
    }
}

/// The update, as input or kept.
pub(in crate::participant) enum WorkOutput {
    MaskedInput(Box<MaskedInput>),
    /// An update kept for a later round.
    Update(Box<Update>),
}

impl RoundWork {
    pub(in crate::participant) fn new(
        plan: Arc<Plan>,
        received: RoundBase,
        SavedState { personal, residual, control }: SavedState,
        draws: Draws,
        masks: Option<Masks>,
        deadline: Timestamp,
        Earlier { unfinished, max_model_bytes }: Earlier,
    ) -> Self {
        let assignment = &plan.assignment;
        let job = TrainingJob {
            task: assignment.task_name.clone(),
            round: plan.counted_round(),
            purpose: Purpose::Shared,
            plan: assignment.training.in_round(plan.counted_round()),
            architecture: assignment.model.architecture.clone(),
            table: assignment.model.table.clone(),
            analytics: assignment.encoding.analytics.clone(),
            metrics: assignment.metrics.clone(),
            seed: draws.seeds.training,
            deadline: Some(deadline),
            cancel: Cancel::default(),
            checkpoints: Checkpoints::default(),
        };
        let (id, seed, cancel) = (plan.training_id(), job.seed, job.cancel.clone());
        let log = TrainingLog::new(id, seed, max_model_bytes, plan.is_personal(), cancel, unfinished);
        let received = Mutex::new(Some(received));
        Self { plan, received, personal, residual, control, job, log: log.into(), draws, masks }
    }

    /// Computes the contribution with `trainer`. Blocks for as long as training takes.
    ///
    /// # Errors
    /// [`WorkError`]; report it to the machine as the result.
    pub fn run(&self, trainer: &mut dyn Trainer) -> Result<Contribution, WorkError> {
        self.run_in(trainer, Surroundings::default(), &mut || ())
    }

    /// Runs the work with checkpoints and slices, and calls back when training is over and the update is clipped, encoded and masked.
    /// After [`WorkError::Paused`] it may run again, and resumes.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn run_in(
        &self,
        trainer: &mut dyn Trainer,
        surroundings: Surroundings,
        encodes: &mut dyn FnMut(),
    ) -> Result<Contribution, WorkError> {
        let run = self.log.begin(trainer, surroundings);
        match self.compute(&mut Logged::new(trainer, &self.log, run), encodes) {
            Err(WorkError::Trainer(TrainerError::Paused)) => Err(WorkError::Paused),
            result => result,
        }
    }

    fn compute(&self, trainer: &mut dyn Trainer, encodes: &mut dyn FnMut()) -> Result<Contribution, WorkError> {
        match (&self.plan.recipe.codec, self.received()?) {
            (codec @ (UpdateCodec::Sums(_) | UpdateCodec::Private(_)), RoundBase::State(state)) => {
                let analysis = self.plan.recipe.tensors.analysis.as_ref().ok_or(PipelineError::WrongLayout)?;
                self.add_up(analysis, codec, &state, trainer, encodes)
            }
            (_, RoundBase::Model(received)) => self.train(received, trainer, encodes),
            (_, RoundBase::Update(update)) => self.aggregate(update, encodes),
            // Plan and base come from the same assignment, so this cannot occur.
            (_, RoundBase::State(_) | RoundBase::Held) => Err(PipelineError::WrongLayout.into()),
        }
    }

    fn received(&self) -> Result<RoundBase, WorkError> {
        let received = self.received.lock().unwrap_or_else(PoisonError::into_inner).clone();
        received.ok_or(WorkError::MasksUsed)
    }

    /// Whether the computation trains.
    #[must_use]
    pub fn trains(&self) -> bool {
        self.plan.wanted.is_none()
    }

    /// Encodes an update trained ahead, weighted by its staleness.
    fn aggregate(&self, held: Arc<Update>, encodes: &mut dyn FnMut()) -> Result<Contribution, WorkError> {
        encodes();
        let (mut update, examples) = (Update::clone(&held), held.examples);
        drop(held);
        let weight = self.plan.wanted.map_or(1.0, |(_, weight)| weight);
        let bound = self.plan.recipe.codec.norm_bound(self.plan.private().map(|round| round.clip));
        discount(&mut update, bound, weight);
        let output = WorkOutput::MaskedInput(Box::new(self.masked(update)?));
        Ok(Contribution::without_training(output, examples))
    }

    /// Computes the device's contribution to an analysis.
    fn add_up(
        &self,
        analysis: &Analysis,
        codec: &UpdateCodec,
        state: &AnalyticsState,
        trainer: &mut dyn Trainer,
        encodes: &mut dyn FnMut(),
    ) -> Result<Contribution, WorkError> {
        let evaluated = self.plan.recipe.tensors.evaluated.as_ref();
        let table = if let (AnalyticsState::Evaluation(state), Some(layout)) = (state, evaluated) {
            let model = checkpoint::read(&state.model_file()?, layout)?;
            Cow::Owned(trainer.predictions(&model, &self.job)?)
        } else {
            trainer.table(&self.job)?
        };
        let values = analysis.contribution(state, &table)?;
        encodes();
        let input = match codec {
            UpdateCodec::Private(_) => {
                let delta = analysis.private_form(state)?.encode(&values)?;
                self.masked(Update { delta, examples: 1, metrics: Vec::new() })?
            }
            UpdateCodec::Plain(_) | UpdateCodec::Sums(_) => {
                self.protected(|protection| pipeline::masked_sums(&values, analysis.codec(), protection))?
            }
        };
        let output = WorkOutput::MaskedInput(Box::new(input));
        Ok(Contribution::without_training(output, table.rows() as u64))
    }

    fn train(
        &self,
        file: Arc<Parameters>,
        trainer: &mut dyn Trainer,
        encodes: &mut dyn FnMut(),
    ) -> Result<Contribution, WorkError> {
        let Recipe { rule, tensors, .. } = &self.plan.recipe;
        let received = Received::open(rule, &file, &tensors.whole)?;
        let control = self.control.as_ref().map_or(&[][..], |control| &control.values);
        let measures_as_it_trains = trainer.measures_as_it_trains();
        // From here on personal and shared parts are separate.
        let (trained, mut evaluated, (personal, own)) = match &self.plan.personalizer {
            Some(personalizer) => {
                let kept = self.personal.as_ref();
                let mut round = LocalRound { trainer, job: &self.job, received: &received.model, kept };
                let LocalResult { mut update, personal, evaluated, own } = personalizer.run(&mut round)?;
                // Metrics from before the device's own model was made belong to another one.
                update.metrics.retain(|(name, _)| own.metrics.iter().all(|(said, _)| said != name));
                update.metrics.extend(own.metrics);
                (update, evaluated, (personal, Some(own.model)))
            }
            None => {
                let evaluated = trainer.evaluate(&received.model, &self.job)?;
                (received.train(rule, control, &self.job, trainer)?, evaluated, (None, None))
            }
        };
        let below = trainer.record_below();
        encodes();
        if measures_as_it_trains {
            evaluated = measured_of_model(&evaluated, &trained.metrics);
        }
        let metrics = self.in_order(&evaluated, &trained.metrics);
        let weight = received.weight(rule, &trained, &evaluated, control)?;
        let Trained { parameters, metrics: trained, examples } = trained;
        let WeightedUpdate { update, control } = pipeline::update(&received.model, parameters, weight, metrics)?;
        // The update is all that is needed from here on.
        drop(received);
        drop(file);
        let clipping = self.clipping(&update).map(Box::new);
        let output = match self.plan.is_ahead {
            true => WorkOutput::Update(Box::new(update)),
            false => WorkOutput::MaskedInput(Box::new(MaskedInput { control, ..self.masked(update)? })),
        };
        Ok(Contribution { output, personal, own, evaluated, trained, examples, clipping, below })
    }

    /// The effect of clipping on an update.
    fn clipping(&self, update: &Update) -> Option<Clipping> {
        let Recipe { codec, .. } = &self.plan.recipe;
        let encoding = &self.plan.assignment.encoding;
        // Other codecs have ranges of their own, which follow from the norm.
        let is_dense = matches!(codec, UpdateCodec::Plain(_)) && encoding.compression.is_none();
        let bound = codec.norm_bound(self.plan.private().map(|round| round.clip));
        Clipping::of(&update.delta, bound, is_dense.then_some(encoding.clip_range))
    }

    /// The control variate that counted at the start.
    pub(in crate::participant) fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    fn masked(&self, update: Update) -> Result<MaskedInput, WorkError> {
        let assignment = &*self.plan.assignment;
        let seed = codec_seed(assignment.encoding.compression.as_ref(), assignment.attempt_key()).0;
        let mut rng;
        let encoder = match (&self.plan.recipe.codec, self.plan.private()) {
            (UpdateCodec::Plain(codec), _) => {
                rng = self.draws.seeds.rounding.clone();
                Encoder::Plain { codec, residual: self.residual.as_ref(), seed: &seed, rounding: &mut rng }
            }
            (UpdateCodec::Private(_), Some(round)) => {
                rng = self.draws.noise.take()?;
                Encoder::Private(round, &mut rng)
            }
            // Codec and privacy terms were checked together, so this cannot occur.
            (UpdateCodec::Sums(_) | UpdateCodec::Private(_), _) => return Err(PipelineError::WrongLayout.into()),
        };
        self.protected(|protection| pipeline::masked_update(update, encoder, protection))
    }

    /// Passes the round's masks to `send`, if the task has secure aggregation. Only once, so the received model is
    /// dropped first.
    fn protected(
        &self,
        send: impl FnOnce(Protection<'_>) -> Result<MaskedInput, PipelineError>,
    ) -> Result<MaskedInput, WorkError> {
        let signer;
        let protection = match &self.masks {
            Some(masks) => {
                signer = masks.key.signer()?;
                let masking = masks.take()?;
                drop(self.received.lock().unwrap_or_else(PoisonError::into_inner).take());
                Protection::Masks(masking, &signer)
            }
            None => Protection::Plaintext,
        };
        Ok(send(protection)?)
    }

    /// Makes the computation return at its next check.
    pub fn cancel(&self) {
        self.job.cancel.cancel();
    }

    /// Requests the current training to save its state and stop. A training with pause support then ends with [`WorkError::Paused`].
    pub fn pause(&self) {
        self.log.pause();
    }

    /// Takes back [`Self::pause`], if the training has not paused yet.
    pub fn go_on(&self) {
        self.log.go_on();
    }

    /// Whether the training could resume later if it were paused now, or still has time to save the state for that
    /// ([`Trainer::pause_grace`]).
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        self.log.can_go_on()
    }

    /// Whether the present training may pause, so that the app's conditions are checked now and then.
    #[must_use]
    pub fn may_pause(&self) -> bool {
        self.log.may_pause()
    }

    /// Whether a run of the training has ended, so that leaving it is useless.
    pub(in crate::participant) fn has_ended(&self) -> bool {
        self.log.has_ended()
    }

    /// Whether its last run used up its time to save a checkpoint.
    pub(in crate::participant) fn ran_out(&self) -> bool {
        self.log.ran_out()
    }

    /// Whether a run that pauses now can go on later.
    pub(in crate::participant) fn has_state(&self) -> bool {
        self.log.has_state()
    }

    /// The record of its newest checkpoint, if the journal lacks it and the run has ended. Returned once.
    pub(in crate::participant) fn unwritten(&self) -> Result<Option<Record>, JournalError> {
        self.log.unwritten()
    }

    /// Waits for a checkpoint still being written by a cancelled run. Call it before writing a record after the cancellation.
    pub fn settle(&self) {
        self.log.settle();
    }

    /// Whether the journal may hold a checkpoint of it.
    pub(in crate::participant) fn has_checkpoint(&self) -> bool {
        self.log.is_written()
    }

    /// The metrics named by the task, in its order; "not measured" for names unknown to the trainer. All metrics stay
    /// on the device if the update is private.
    fn in_order(&self, evaluated: &[(String, MetricValue)], trained: &[(String, MetricValue)]) -> Vec<MetricValue> {
        if self.plan.private().is_some() {
            return Vec::new();
        }
        let find = |name: &str| evaluated.iter().chain(trained).find(|(own, _)| own == name).map(|(_, value)| *value);
        let metrics = self.plan.assignment.metrics.iter();
        metrics.map(|name| find(name).or_else(|| is_below(name, find)).unwrap_or_default()).collect()
    }
}

/// A participant's contribution to the distribution of a metric: 1 if its value is below the bound in `name`, else 0.
/// The mean over participants is a point of the distribution; the sum hides single values.
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
