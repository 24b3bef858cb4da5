//! Training of adapters of a frozen model ([`learning::Adapters`]): a step takes the gradient of the merged model, on
//! any device and with any model, and updates only the adapters.

use learning::{Adapters, Parameters};
use task_spec::{Precision, TrainingPlan};

use super::batches::Batches;
use super::config::{Sgd, check as check_plan, narrow};
use super::device::Device;
use super::error::TrainError;
use super::examples::Examples;
use super::learner::StepResult;
use super::{Run, Trained, check, learner};
use crate::models::Architecture;

/// Adapters and their base.
#[derive(Clone, Copy, Debug)]
pub struct AdaptedBase<'a> {
    /// The frozen model.
    pub base: &'a Parameters,
    /// The initial adapters.
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
    AdaptedBase { base, start, adapters }: AdaptedBase<'_>,
    examples: Examples<'_>,
    Sgd { plan, seed }: Sgd<'_>,
    device: &Device,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Trained, TrainError> {
    check_plan(plan)?;
    // The 16-bit loss scale adapts over several steps, but each step has a new learner.
    let plan = &TrainingPlan { precision: Precision::F32, ..plan.clone() };
    let clip = plan.gradient_clip.map(narrow);
    let [momentum, weight_decay, proximal_mu] = [plan.momentum, plan.weight_decay, plan.proximal_mu].map(narrow);
    check(architecture, base, &examples)?;
    let others = |_| TrainError::Constraints("the adapters are another model's");
    let count = examples.count();
    let mut batches = Batches::new(count, Sgd { plan, seed });
    let (mut own, mut velocity) = (start.clone(), vec![0.0; start.values().len()]);
    let run = Run::of(plan, &mut batches, go_on, |chosen, rate| {
        let merged = adapters.merge(base, &own).map_err(others)?;
        let mut model = learner(architecture, &merged, &examples, plan, device, chosen.len())?;
        let (batch, gradient) = model.gradient(&examples, chosen)?;
        let gradient = clipped(adapters.gradient(&gradient, &own).map_err(others)?, clip);
        let pairs = own.values_mut().iter_mut().zip(start.values());
        for ((value, start), (velocity, gradient)) in pairs.zip(velocity.iter_mut().zip(gradient)) {
            let pull = weight_decay * *value + proximal_mu * (*value - start);
            *velocity = momentum * *velocity + gradient + pull;
            *value -= rate * *velocity;
        }
        Ok((batch, StepResult::Taken))
    })?;
    run.trained(plan, own.into_values(), start, count)
}

/// Clips a gradient to an L2 norm, if given.
fn clipped(mut gradient: Vec<f32>, most: Option<f32>) -> Vec<f32> {
    let norm = gradient.iter().map(|value| value * value).sum::<f32>().sqrt();
    if let Some(most) = most.filter(|most| norm > *most) {
        gradient.iter_mut().for_each(|value| *value *= most / norm);
    }
    gradient
}
