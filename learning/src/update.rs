//! The plaintext result of a participant's training. It stays on the device; only the integers of a
//! [`Codec`](crate::Codec) leave it.

use crate::metrics::MetricValue;
use crate::parameters::{Parameters, WrongLayout};

/// A participant's contribution to one round.
#[derive(Clone, PartialEq)]
pub struct Update {
    /// Trained minus received parameters, in the shared layout.
    pub delta: Vec<f32>,
    /// Number of training examples; at least 1. The task caps it when it weights the update.
    pub examples: u64,
    /// In the order of the task's metrics; `count` is 0 for an unmeasured metric.
    pub metrics: Vec<MetricValue>,
}

impl Update {
    /// The change made by training, `trained - received`, rounded once per value, in the memory of `trained`. Both are the
    /// shared part of the model.
    ///
    /// # Errors
    /// [`WrongLayout`] if their tensors differ.
    pub fn between(
        received: &Parameters,
        trained: Parameters,
        examples: u64,
        metrics: Vec<MetricValue>,
    ) -> Result<Self, WrongLayout> {
        if received.layout() != trained.layout() {
            return Err(WrongLayout);
        }
        let mut delta = trained.into_values();
        delta.iter_mut().zip(received.values()).for_each(|(after, before)| *after -= before);
        Ok(Self { delta, examples, metrics })
    }
}

/// Shows sizes only: an update in a log would be a leak.
impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Update")
            .field("parameters", &self.delta.len())
            .field("metrics", &self.metrics.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::parameters::{Layout, TensorSpec};

    fn parameters(name: &str, values: &[f32]) -> Parameters {
        let spec = TensorSpec { name: name.into(), shape: vec![values.len() as u64] };
        Parameters::new(Arc::new(Layout::new(vec![spec]).unwrap()), values.to_vec()).unwrap()
    }

    #[test]
    fn is_what_training_changed() {
        let (received, trained) = (parameters("w", &[1.0, 2.0]), parameters("w", &[1.5, 0.0]));
        assert_eq!(Update::between(&received, trained, 3, vec![]).unwrap().delta, [0.5, -2.0]);
        assert_eq!(Update::between(&received, parameters("v", &[1.5, 0.0]), 3, vec![]), Err(WrongLayout));
    }

    #[test]
    fn debug_shows_no_values() {
        let update = Update { delta: vec![0.123], examples: 77, metrics: vec![MetricValue { value: 0.456, count: 8 }] };
        assert_eq!(format!("{update:?}"), "Update { parameters: 1, metrics: 1, .. }");
    }
}
