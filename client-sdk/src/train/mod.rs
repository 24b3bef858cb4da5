//! The built-in trainer: local stochastic gradient descent on a named model, and its evaluation.
//!
//! On the CPU, models use the passes of `cpu`; on GPUs, candle (feature `candle`). candle's CPU backend is used only by
//! an app that selects it: its products use all cores, which is many times slower on a busy machine, and it allocates
//! at every step. A run on the CPU uses only the calling thread and gives the same bits for the same seed, binary and
//! CPU, under any load; parallelism belongs across participants.
//!
//! Training is independent of rounds and the network: parameters and examples go in, a difference comes out.

mod adamw;
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
mod graph;
mod learner;
mod predictions;
mod steering;

use learning::Parameters;
use learning::contribution::fed_nova::Reach;
use learning::parameters::first_not_finite;
use task_spec::TrainingPlan;

pub(crate) use self::adapted::train_adapters_steered;
pub use self::adapted::{AdaptedBase, train_adapters};
#[cfg(feature = "candle")]
pub(crate) use self::candle::{Module, evaluate_module, train_module, train_module_adapters};
pub use self::config::{ConfigError, Sgd};
pub use self::device::{Device, DeviceChoice, DeviceError};
pub use self::error::TrainError;
pub use self::examples::{Column, Examples, TargetColumn};
pub use self::graph::{
    Derivative, GradientCheck, GraphInputs, GraphOutput, GraphPredictor, NamedTensor, Tensor, Verified, graph_gradient,
    training_speed, verified, verify_gradients, verify_gradients_on,
};
pub(crate) use self::graph::{graph_of, in_order};
pub(crate) use self::predictions::predictions;
pub use self::predictions::{Inputs, Predictor, Scores, scores};

use self::batches::Batches;
#[cfg(feature = "candle")]
use self::candle::CandleLearner;
use self::config::{check as check_plan, narrow, rate};
pub use self::learner::Measures;
use self::learner::{Learner, LearnerState, Score, StepResult};
pub(crate) use self::steering::{Next, Steering};
use self::steering::{RunState, While};
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
    /// Number of optimizer steps that were taken.
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
    /// Mean loss per prediction; cross-entropy is in nats.
    pub loss: f64,
    /// Share of predictions with the highest score for the right class, 0 to 1; 0 for a model of numbers.
    pub accuracy: f64,
    /// Number of examples scored; a text has one prediction per character, other examples have one each.
    pub examples: u64,
    /// Measures of a graph.
    pub measures: Measures,
}

/// Trains `architecture` from `start` on `examples`, on one core or the given GPU.
///
/// # Errors
/// Any [`TrainError`]: sizes or numbers out of range, parameters of another model, examples that do not fit it, a loss
/// that is not finite, a device failure.
pub fn train(
    architecture: &Architecture,
    start: &Parameters,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
) -> Result<Trained, TrainError> {
    train_while(architecture, start, examples, sgd, device, Constraints::default(), &mut |_| true)
}

/// [`train`] that keeps to `constraints` and may stop early: `go_on` is called with the number of steps before each
/// step but the first. When it returns false, the result of the steps so far is returned.
///
/// # Errors
/// As [`train`], and [`TrainError::Constraints`] for those of another model and those that freeze all of it.
pub fn train_while(
    architecture: &Architecture,
    start: &Parameters,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
    constraints: Constraints<'_>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Trained, TrainError> {
    train_steered(architecture, start, examples, sgd, device, constraints, &mut While(go_on))
}

/// [`train_while`] that may also be left between two steps and go on later, with the same bits.
///
/// # Errors
/// As [`train_while`], and [`TrainError::Paused`] if the steering paused it.
pub(crate) fn train_steered(
    architecture: &Architecture,
    start: &Parameters,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
    constraints: Constraints<'_>,
    steering: &mut dyn Steering,
) -> Result<Trained, TrainError> {
    let plan = sgd.plan;
    check_plan(plan)?;
    check(architecture, start, &examples)?;
    constraints.check(start)?;
    let batches = Batches::new(examples.count(), sgd);
    let (mut batches, batch) = whole_batches(architecture, &examples, batches, steering.memory())?;
    let mut learner = learner(architecture, start, &examples, plan, device, batch)?;
    if !constraints.is_empty() {
        learner.constrain(&constraints.flat(start))?;
    }
    learner.interrupt_by(steering.interrupt());
    let mut steps = OnExamples { learner: &mut *learner, examples: &examples };
    let run = run(plan, start, examples.count(), &mut batches, steering, &mut steps)?;
    trained(&run, plan, learner.values()?, start, examples.count())
}

/// Takes the steps of a training.
trait Stepper {
    /// Takes a step on the chosen examples with this learning rate.
    fn step(&mut self, chosen: &[usize], rate: f32) -> Result<(Score, StepResult), TrainError>;
    /// The state between two steps.
    fn state(&self) -> Result<LearnerState, TrainError>;
    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError>;
}

struct OnExamples<'a> {
    learner: &'a mut dyn Learner,
    examples: &'a Examples<'a>,
}

impl Stepper for OnExamples<'_> {
    fn step(&mut self, chosen: &[usize], rate: f32) -> Result<(Score, StepResult), TrainError> {
        self.learner.step(self.examples, chosen, rate)
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        self.learner.state()
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.learner.restore(state)
    }
}

/// Lets `stepper` take every batch with its learning rate, as the steering requires.
fn run(
    plan: &TrainingPlan,
    start: &Parameters,
    examples: usize,
    batches: &mut Batches,
    steering: &mut dyn Steering,
    stepper: &mut dyn Stepper,
) -> Result<RunState, TrainError> {
    let reach = Reach::new(narrow(plan.momentum).into(), narrow(plan.proximal_mu).into());
    let mut run = RunState { tried: 0, taken: 0, reach, score: Score::default() };
    let earlier = steering.resume();
    let earlier = earlier.and_then(|bytes| RunState::read(&run, examples, start.values().len(), &bytes));
    if let Some((earlier, state)) = earlier {
        batches.skip(earlier.tried);
        stepper.restore(&state)?;
        run = earlier;
    }
    let (interrupt, mut has_moved) = (steering.interrupt(), false);
    loop {
        if run.tried > 0 && !batches.is_over() {
            match steering.next(run.tried) {
                Next::Enough => break,
                Next::Save if has_moved => {
                    // The training goes on whether or not it could be kept.
                    let _ = steering.save(&run.write(examples, &stepper.state()?));
                }
                Next::Pause if has_moved && steering.save(&run.write(examples, &stepper.state()?)) => {
                    return Err(TrainError::Paused);
                }
                Next::GoOn | Next::Save | Next::Pause => {}
            }
        }
        let Some(chosen) = batches.next() else { break };
        let rate = rate(plan, run.tried);
        let (batch, step) = match stepper.step(chosen, rate) {
            Err(TrainError::Interrupted) => {
                let is_saved =
                    steering.next(run.tried) == Next::Pause && steering.save(&run.write(examples, &stepper.state()?));
                return Err(if is_saved { TrainError::Paused } else { TrainError::Interrupted });
            }
            step => step?,
        };
        has_moved = true;
        interrupt.allow_pause();
        run.tried += 1;
        if step == StepResult::Taken {
            run.reach.step(rate.into());
            run.taken += 1;
        }
        if !batch.loss.is_finite() {
            return Err(TrainError::Diverged { step: run.tried, learning_rate: narrow(plan.learning_rate) });
        }
        run.score.add(batch);
    }
    Ok(run)
}

/// How far a training came from `start`.
fn trained(
    run: &RunState,
    plan: &TrainingPlan,
    end: Vec<f32>,
    start: &Parameters,
    examples: usize,
) -> Result<Trained, TrainError> {
    if first_not_finite(&end).is_some() {
        return Err(TrainError::Diverged { step: run.tried, learning_rate: narrow(plan.learning_rate) });
    }
    let mut delta = end;
    for (value, start) in delta.iter_mut().zip(start.values()) {
        *value -= start;
    }
    let (mean_loss, reach) = (run.score.mean().0, run.reach.distance());
    Ok(Trained { delta, mean_loss, steps: run.taken, reach, examples: examples as u64 })
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
    let size = chunk(architecture, &examples, EVALUATION_BATCH.min(count), ::graph::MAX_MEMORY)?;
    let plan = TrainingPlan::default();
    let mut learner = learner(architecture, parameters, &examples, &plan, device, size)?;
    let (score, measures) = match architecture {
        Architecture::Graph(model) => graph::evaluate(model, &mut *learner, &examples, size)?,
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => {
            let all: Vec<usize> = (0..count).collect();
            let mut score = Score::default();
            for chosen in all.chunks(size) {
                score.add(learner.score(&examples, chosen)?);
            }
            (score, Measures::default())
        }
    };
    if !score.loss.is_finite() {
        return Err(TrainError::NotFinite);
    }
    let (loss, accuracy) = score.mean();
    Ok(Evaluation { loss, accuracy, examples: count as u64, measures })
}

fn check(architecture: &Architecture, parameters: &Parameters, examples: &Examples<'_>) -> Result<(), TrainError> {
    if architecture.layout()? != **parameters.layout() {
        return Err(TrainError::OtherModel { kind: architecture.kind() });
    }
    check_examples(architecture, examples)
}

/// Checks that the examples fit the model.
fn check_examples(architecture: &Architecture, examples: &Examples<'_>) -> Result<(), TrainError> {
    match architecture {
        Architecture::Graph(model) => graph::check(model, examples),
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => {
            examples.check(architecture)
        }
    }
}

/// Number of examples to compute at once, at most `most`: as many as `memory` bytes hold.
fn chunk(architecture: &Architecture, examples: &Examples<'_>, most: usize, memory: u64) -> Result<usize, TrainError> {
    match architecture {
        Architecture::Graph(model) => graph::chunk(model, examples, most, memory),
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => Ok(most),
    }
}

/// The batches that the model can train on, and the number of examples to compute at once.
fn whole_batches(
    architecture: &Architecture,
    examples: &Examples<'_>,
    batches: Batches,
    memory: u64,
) -> Result<(Batches, usize), TrainError> {
    match architecture {
        Architecture::Graph(model) => {
            let least = graph::least_batch(model, examples)?;
            let got = batches.chunk();
            if got < least {
                return Err(TrainError::SmallBatch { least, got });
            }
            let size = graph::training_chunk(model, examples, got, memory)?;
            Ok((batches.of_at_least(least), size))
        }
        Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => {
            let size = batches.chunk();
            Ok((batches, size))
        }
    }
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
        Device::Candle(device) => match architecture {
            // The candle path has no batch statistics.
            Architecture::Graph(model) if !model.graph().batch_statistics().is_empty() => {
                Ok(cpu::learner(architecture, start.values(), plan, examples, batch))
            }
            Architecture::Graph(model) => {
                Ok(Box::new(graph::CandleGraph::new(model, start.values(), plan, device, batch)?))
            }
            Architecture::Linear(_) | Architecture::Mlp(_) | Architecture::Cnn(_) | Architecture::Gru(_) => {
                Ok(Box::new(CandleLearner::new(architecture, start.values(), plan, device, batch)?))
            }
        },
    }
}

#[cfg(test)]
#[cfg(feature = "candle")]
mod tests;
