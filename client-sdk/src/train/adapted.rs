//! Training adapters beside a model that stays as it is ([`learning::Adapters`]): a step takes the gradient of the merged
//! model, on whichever device and with whichever model, and moves nothing but the adapters.

use candle_core::Device;
use learning::{Adapters, Parameters};
use task_spec::Precision;

use super::batches::Batches;
use super::config::SgdConfig;
use super::error::TrainError;
use super::examples::Examples;
use super::learner::Step;
use super::{Run, Trained, check, learner};
use crate::models::Architecture;

/// Adapters, and what they stand beside.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The model that stays as it is.
    pub base: &'a Parameters,
    /// The adapters that training begins with.
    pub start: &'a Parameters,
    /// Which they are.
    pub adapters: &'a Adapters,
}

/// Trains adapters; the delta is theirs. What `config` says of momentum, decay, clipping and pull is about them, too. `go_on`
/// is asked as by [`super::train_while`].
///
/// # Errors
/// As [`super::train`], and [`TrainError::Constraints`] for adapters of another model.
pub fn train_adapters(
    architecture: &Architecture,
    Beside { base, start, adapters }: Beside<'_>,
    examples: Examples<'_>,
    config: &SgdConfig,
    device: &Device,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Trained, TrainError> {
    config.validate()?;
    // The scale of losses in 16 bits is learned over steps, and there is a new learner in each.
    let config = &SgdConfig { precision: Precision::F32, ..config.clone() };
    check(architecture, base, &examples)?;
    let others = |_| TrainError::Constraints("the adapters are another model's");
    let count = examples.count();
    let mut batches = Batches::new(count, config);
    let (mut own, mut velocity) = (start.clone(), vec![0.0; start.values().len()]);
    let run = Run::of(config, &mut batches, go_on, |chosen, rate| {
        let merged = adapters.merge(base, &own).map_err(others)?;
        let mut model = learner(architecture, &merged, &examples, config, device, chosen.len())?;
        let (batch, gradient) = model.gradient(&examples, chosen)?;
        let gradient = clipped(adapters.gradient(&gradient, &own).map_err(others)?, config.gradient_clip);
        let pairs = own.values_mut().iter_mut().zip(start.values());
        for ((value, start), (velocity, gradient)) in pairs.zip(velocity.iter_mut().zip(gradient)) {
            let pull = config.weight_decay * *value + config.proximal_mu * (*value - start);
            *velocity = config.momentum * *velocity + gradient + pull;
            *value -= rate * *velocity;
        }
        Ok((batch, Step::Taken))
    })?;
    run.trained(config, own.into_values(), start, count)
}

/// Scaled down to an L2 norm, if there is one to keep to.
fn clipped(mut gradient: Vec<f32>, most: Option<f32>) -> Vec<f32> {
    let norm = gradient.iter().map(|value| value * value).sum::<f32>().sqrt();
    if let Some(most) = most.filter(|most| norm > *most) {
        gradient.iter_mut().for_each(|value| *value *= most / norm);
    }
    gradient
}
