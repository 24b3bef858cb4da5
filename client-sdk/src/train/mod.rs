//! The built-in trainer: local stochastic gradient descent on a named model, and its evaluation.
//!
//! On the CPU, models use the passes of [`cpu`]; on GPUs, candle (feature `candle`). candle's CPU backend is used only by
//! an app that asks for it: its products use all cores, which is many times slower on a busy machine, and it allocates at
//! every step. A run on the CPU uses only
//! the calling thread and gives the same bits for the same seed, binary and CPU, whatever the load; parallelism belongs
//! across participants.
//!
//! Nothing here depends on rounds or the network: parameters and examples go in, a difference comes out.

mod adapted;
mod batches;
#[cfg(feature = "candle")]
mod candle;
mod config;
mod constraints;
mod cpu;
mod device;
mod error;
mod examples;
mod learner;
mod scores;

use learning::Parameters;
use learning::contribution::fed_nova::Reach;
use learning::parameters::first_not_finite;
use task_spec::TrainingPlan;

pub use self::adapted::{AdaptedBase, train_adapters};
pub use self::config::{ConfigError, Sgd};
pub use self::device::{Device, DeviceChoice, DeviceError};
pub use self::error::TrainError;
pub use self::examples::Examples;
pub use self::scores::{Inputs, Scores, scores};

use self::batches::Batches;
#[cfg(feature = "candle")]
use self::candle::CandleLearner;
use self::config::{check as check_plan, narrow, rate};
use self::learner::{Learner, Score, StepResult};
use crate::models::Architecture;
use crate::trainer::Constraints;

/// Number of examples that [`evaluate`] scores at once; bounds its memory.
const EVALUATION_BATCH: usize = 64;

/// The result of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// Flat difference between trained and initial parameters, in layout order. Every value is finite.
    pub delta: Vec<f32>,
    /// Mean cross-entropy over all predictions during training, in nats.
    pub mean_loss: f64,
    /// Number of steps.
    pub steps: u64,
    /// Distance that the steps cover along a constant gradient of 1, in units of a parameter: the sum of the learning
    /// rates for plain SGD, more with momentum, less with a proximal term.
    pub reach: f64,
    /// Number of training examples, each counted once: the update's weight.
    pub examples: u64,
}

/// The quality of a model on some examples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy per prediction, in nats.
    pub loss: f64,
    /// Share of predictions with the highest score for the right class, 0 to 1.
    pub accuracy: f64,
    /// Number of examples scored; a text has one prediction per character, other examples have one each.
    pub examples: u64,
}

/// Trains `architecture` from `start` on `examples`, on one core or the given GPU.
///
/// # Errors
/// Any [`TrainError`]: sizes or numbers out of range, parameters of another model, examples that do not fit it, a loss
/// that is no longer finite, a device failure.
pub fn train(
    architecture: &Architecture,
    start: &Parameters,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
) -> Result<Trained, TrainError> {
    train_while(architecture, start, examples, sgd, device, Constraints::default(), &mut |_| true)
}

/// [`train`] that keeps to `constraints` and may stop early: `go_on` is asked with the number of steps before each step but the
/// first, and what was done by then is what comes back.
///
/// # Errors
/// As [`train`], and [`TrainError::Constraints`] for those of another model and those that leave nothing to train.
pub fn train_while(
    architecture: &Architecture,
    start: &Parameters,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
    constraints: Constraints<'_>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Trained, TrainError> {
    let plan = sgd.plan;
    check_plan(plan)?;
    check(architecture, start, &examples)?;
    constraints.check(start)?;
    let count = examples.count();
    let mut batches = Batches::new(count, sgd);
    let mut learner = learner(architecture, start, &examples, plan, device, batches.chunk())?;
    if !constraints.is_empty() {
        learner.constrain(&constraints.flat(start))?;
    }
    let run = Run::of(plan, &mut batches, go_on, |chosen, rate| learner.step(&examples, chosen, rate))?;
    run.trained(plan, learner.values()?, start, count)
}

/// What the steps of a training came to.
struct Run {
    tried: u64,
    taken: u64,
    reach: f64,
    mean_loss: f64,
}

impl Run {
    /// Lets `step` take every batch with its learning rate, while `go_on` allows it.
    fn of(
        plan: &TrainingPlan,
        batches: &mut Batches,
        go_on: &mut dyn FnMut(u64) -> bool,
        mut step: impl FnMut(&[usize], f32) -> Result<(Score, StepResult), TrainError>,
    ) -> Result<Self, TrainError> {
        let mut reach = Reach::new(narrow(plan.momentum).into(), narrow(plan.proximal_mu).into());
        let (mut score, mut tried, mut taken) = (Score::default(), 0, 0);
        while tried == 0 || go_on(tried) {
            let Some(chosen) = batches.next() else { break };
            let rate = rate(plan, tried);
            let (batch, step) = step(chosen, rate)?;
            tried += 1;
            if step == StepResult::Taken {
                reach.step(rate.into());
                taken += 1;
            }
            if !batch.loss.is_finite() {
                return Err(TrainError::Diverged { step: tried, learning_rate: narrow(plan.learning_rate) });
            }
            score.add(batch);
        }
        Ok(Self { tried, taken, reach: reach.distance(), mean_loss: score.mean().0 })
    }

    /// How far it came from `start`.
    fn trained(
        self,
        plan: &TrainingPlan,
        end: Vec<f32>,
        start: &Parameters,
        examples: usize,
    ) -> Result<Trained, TrainError> {
        if first_not_finite(&end).is_some() {
            return Err(TrainError::Diverged { step: self.tried, learning_rate: narrow(plan.learning_rate) });
        }
        let mut delta = end;
        for (value, start) in delta.iter_mut().zip(start.values()) {
            *value -= start;
        }
        let Self { taken: steps, reach, mean_loss, .. } = self;
        Ok(Trained { delta, mean_loss, steps, reach, examples: examples as u64 })
    }
}

/// Scores `parameters` on `examples`.
///
/// # Errors
/// Any [`TrainError`] except those of the configuration.
pub fn evaluate(
    architecture: &Architecture,
    parameters: &Parameters,
    examples: Examples<'_>,
    device: &Device,
) -> Result<Evaluation, TrainError> {
    check(architecture, parameters, &examples)?;
    let count = examples.count();
    let all: Vec<usize> = (0..count).collect();
    let size = EVALUATION_BATCH.min(count);
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, &examples, &plan, device, size)?;
    let mut score = Score::default();
    for chosen in all.chunks(size) {
        score.add(learner.score(&examples, chosen)?);
    }
    if !score.loss.is_finite() {
        return Err(TrainError::NotFinite);
    }
    let (loss, accuracy) = score.mean();
    Ok(Evaluation { loss, accuracy, examples: count as u64 })
}

fn check(architecture: &Architecture, parameters: &Parameters, examples: &Examples<'_>) -> Result<(), TrainError> {
    if architecture.layout()? != **parameters.layout() {
        return Err(TrainError::OtherModel { kind: architecture.kind() });
    }
    examples.check(architecture)
}

/// The model on its device, for steps in chunks of at most `batch` examples.
fn learner<'a>(
    architecture: &'a Architecture,
    start: &'a Parameters,
    examples: &Examples<'_>,
    plan: &'a TrainingPlan,
    device: &'a Device,
    batch: usize,
) -> Result<Box<dyn Learner + 'a>, TrainError> {
    match device {
        Device::Cpu => Ok(cpu::learner(architecture, start.values(), plan, examples, batch)),
        #[cfg(feature = "candle")]
        Device::Candle(device) => Ok(Box::new(CandleLearner::new(architecture, start.values(), plan, device, batch)?)),
    }
}

#[cfg(test)]
#[cfg(feature = "candle")]
mod tests;
