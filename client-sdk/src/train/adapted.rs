//! Training of adapters of a frozen model ([`learning::Adapters`]): a step takes the gradient of the merged model, on
//! any device and with any model, and updates only the adapters.

use learning::{Adapters, Parameters};
use task_spec::{LocalOptimizer, Precision, TrainingPlan};

use super::adamw::AdamW;
use super::batches::Batches;
use super::config::{Sgd, check as check_plan, narrow};
use super::device::Device;
use super::error::TrainError;
use super::examples::Examples;
use super::learner::{Learner, LearnerState, Score, StepResult};
use super::steering::{Steering, While};
use super::{Stepper, Trained, check, chunk, learner, run, trained};
use crate::models::Architecture;

/// Adapters and their base.
#[derive(Clone, Copy, Debug)]
pub struct AdaptedBase<'a> {
    /// The parameters that the adapters are added to; training does not change them.
    pub base: &'a Parameters,
    /// The adapters' parameters at the start of the training.
    pub start: &'a Parameters,
    pub adapters: &'a Adapters,
}

/// Trains adapters; the delta is theirs. Momentum, decay, clipping and the proximal term of the plan apply to them too.
/// `go_on` is called as by [`super::train_while`].
///
/// # Errors
/// As for [`super::train`], and [`TrainError::Constraints`] for adapters of another model.
pub fn train_adapters(
    architecture: &Architecture,
    adapted: AdaptedBase<'_>,
    examples: Examples<'_>,
    sgd: Sgd<'_>,
    device: &Device,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Trained, TrainError> {
    train_adapters_steered(architecture, adapted, examples, sgd, device, &mut While(go_on))
}

/// [`train_adapters`] that may also be left between two steps and go on later, with the same bits.
///
/// # Errors
/// As [`train_adapters`], and [`TrainError::Paused`] if the steering paused it.
pub(crate) fn train_adapters_steered(
    architecture: &Architecture,
    adapted: AdaptedBase<'_>,
    examples: Examples<'_>,
    Sgd { plan, seed }: Sgd<'_>,
    device: &Device,
    steering: &mut dyn Steering,
) -> Result<Trained, TrainError> {
    check(architecture, adapted.base, &examples)?;
    if let Architecture::Graph(model) = architecture
        && !model.graph().batch_statistics().is_empty()
    {
        return Err(TrainError::Constraints(
            "adapters train on a frozen base, and the graph's batch normalizations train by the batch: import it with \
             `--batch-norm frozen`",
        ));
    }
    let (interrupt, memory) = (steering.interrupt(), steering.memory());
    let (passes, trains) = (of_passes(plan), adapted.adapters.adapted());
    let mut made: Option<(usize, Box<dyn Learner + '_>)> = None;
    let mut gradient = |merged: &Parameters, chosen: &[usize]| {
        let batch = chunk(architecture, &examples, chosen.len(), memory)?;
        // A smaller last batch of an epoch needs no learner of its own.
        let fits = |most: usize| most == batch || (batch < most && batch == chosen.len());
        let (most, mut model) = match made.take() {
            Some((most, model)) if fits(most) => (most, model),
            Some(_) | None => {
                let mut model = learner(architecture, adapted.base, &examples, &passes, device, batch)?;
                model.train_only(&trains);
                model.interrupt_by(interrupt.clone());
                (batch, model)
            }
        };
        model.set_values(merged.values())?;
        let result = model.gradient(&examples, chosen);
        made = Some((most, model));
        result
    };
    train_on_gradients(adapted, examples.count(), Sgd { plan, seed }, steering, &mut gradient)
}

/// The score and the flat gradient of the mean loss of the chosen examples, at given parameters.
pub(super) type Gradient<'a> = &'a mut dyn FnMut(&Parameters, &[usize]) -> Result<(Score, Vec<f32>), TrainError>;

/// Trains adapters by the gradients of the merged model on so many examples.
///
/// # Errors
/// As [`train_adapters_steered`], and those of `gradient`.
pub(super) fn train_on_gradients(
    adapted: AdaptedBase<'_>,
    count: usize,
    Sgd { plan, seed }: Sgd<'_>,
    steering: &mut dyn Steering,
    gradient: Gradient<'_>,
) -> Result<Trained, TrainError> {
    check_plan(plan)?;
    if count == 0 {
        return Err(TrainError::NoExamples);
    }
    let plan = &in_32_bits(plan);
    let mut batches = Batches::new(count, Sgd { plan, seed });
    let (own, adamw) = (adapted.start.clone(), AdamW::of(plan));
    let moments = vec![vec![0.0; own.values().len()]; if adamw.is_some() { 2 } else { 1 }];
    let merged = adapted.base.clone();
    let mut steps = OfAdapters { adapted, gradient, plan, own, merged, moments, adamw, steps: 0 };
    let run = run(plan, adapted.start, count, &mut batches, steering, &mut steps)?;
    trained(&run, plan, steps.own.into_values(), adapted.start, count)
}

/// The plan without 16-bit passes: their loss scale adapts over several steps, but each step has a new learner.
fn in_32_bits(plan: &TrainingPlan) -> TrainingPlan {
    TrainingPlan { precision: Precision::F32, ..plan.clone() }
}

/// A plan of gradients alone: the optimizer is that of the adapters.
fn of_passes(plan: &TrainingPlan) -> TrainingPlan {
    TrainingPlan { momentum: 0.0, proximal_mu: 0.0, optimizer: LocalOptimizer::Sgd {}, ..in_32_bits(plan) }
}

/// Adapters in training.
struct OfAdapters<'a> {
    adapted: AdaptedBase<'a>,
    gradient: Gradient<'a>,
    plan: &'a TrainingPlan,
    own: Parameters,
    /// The base with the adapters of the last step in it.
    merged: Parameters,
    /// Of momentum, or the two of AdamW.
    moments: Vec<Vec<f32>>,
    adamw: Option<AdamW>,
    /// Steps taken.
    steps: u64,
}

impl Stepper for OfAdapters<'_> {
    fn step(&mut self, chosen: &[usize], rate: f32) -> Result<(Score, StepResult), TrainError> {
        let AdaptedBase { base, start, adapters } = self.adapted;
        let others = |_| TrainError::Constraints("the adapters are another model's");
        let [momentum, weight_decay, proximal_mu] =
            [self.plan.momentum, self.plan.weight_decay, self.plan.proximal_mu].map(narrow);
        adapters.merge_into(base, &self.own, &mut self.merged).map_err(others)?;
        let (batch, gradient) = (self.gradient)(&self.merged, chosen)?;
        let gradient = adapters.gradient(&gradient, &self.own).map_err(others)?;
        let gradient = clipped(gradient, self.plan.gradient_clip.map(narrow));
        self.steps += 1;
        let pairs = self.own.values_mut().iter_mut().zip(start.values()).zip(gradient);
        match (self.adamw, &mut self.moments[..]) {
            (Some(adamw), [means, squares]) => {
                let sizes = adamw.sizes(rate, self.steps);
                for (((value, start), gradient), (mean, square)) in pairs.zip(means.iter_mut().zip(squares)) {
                    let gradient = gradient + proximal_mu * (*value - start);
                    *value = *value * sizes.kept - adamw.step(sizes, gradient, mean, square);
                }
            }
            (_, moments) => {
                for (((value, start), gradient), velocity) in pairs.zip(moments.iter_mut().flatten()) {
                    let pull = weight_decay * *value + proximal_mu * (*value - start);
                    *velocity = momentum * *velocity + gradient + pull;
                    *value -= rate * *velocity;
                }
            }
        }
        Ok((batch, StepResult::Taken))
    }

    fn state(&self) -> Result<LearnerState, TrainError> {
        Ok(LearnerState {
            values: self.own.values().to_vec(),
            moments: self.moments.clone(),
            steps: self.steps,
            scale: None,
        })
    }

    fn restore(&mut self, state: &LearnerState) -> Result<(), TrainError> {
        self.own.values_mut().copy_from_slice(&state.values);
        for (moment, saved) in self.moments.iter_mut().zip(&state.moments) {
            moment.copy_from_slice(saved);
        }
        self.steps = state.steps;
        Ok(())
    }
}

/// Clips a gradient to an L2 norm, if given.
fn clipped(mut gradient: Vec<f32>, most: Option<f32>) -> Vec<f32> {
    let norm = gradient.iter().map(|value| value * value).sum::<f32>().sqrt();
    if let Some(most) = most.filter(|most| norm > *most) {
        gradient.iter_mut().for_each(|value| *value *= most / norm);
    }
    gradient
}
