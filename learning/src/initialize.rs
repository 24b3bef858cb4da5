//! Draws a task's initial model version from a seed.
//!
//! Every device must reproduce it bit for bit, so values come from random integers and operations that are exact or
//! round once. The values of a tensor depend on the seed and the tensor's index, not on the tensors before it.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use task_spec::{Initial, TensorDeclaration};

use crate::parameters::{Layout, Parameters};

/// Why a model cannot be initialized.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InitError {
    /// The initializers do not match the layout's tensors in order; the index is that of the first mismatch.
    #[error("the initializers do not name the model's tensors in the model's order, first at position {0}")]
    Mismatch(usize),
    /// The bound is negative, NaN or infinite.
    #[error("tensor {tensor:?}: the bound of a uniform initializer must be finite and not negative, not {bound}")]
    BadBound { tensor: String, bound: f32 },
}

/// Draws the initial values of `layout`; the same arguments give the same bits on every device.
///
/// # Errors
/// Any [`InitError`]; `inits` must name the tensors of `layout`, in order.
pub fn initialize(layout: Arc<Layout>, inits: &[TensorDeclaration], seed: u64) -> Result<Parameters, InitError> {
    let tensors = layout.tensors();
    let mismatch =
        tensors.iter().zip(inits).position(|(tensor, init)| tensor.name != init.name || tensor.shape != init.shape);
    if let Some(index) = mismatch {
        return Err(InitError::Mismatch(index));
    }
    if tensors.len() != inits.len() {
        return Err(InitError::Mismatch(tensors.len().min(inits.len())));
    }
    let mut key = *b"--------tributary initial model.";
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut parameters = Parameters::zeros(Arc::clone(&layout));
    for (index, init) in inits.iter().enumerate() {
        let bound = bound(init)?;
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(index as u64);
        if bound > 0.0 {
            for value in &mut parameters.values_mut()[layout.range(index)] {
                *value = bound * symmetric_unit(&mut rng);
            }
        }
    }
    Ok(parameters)
}

/// The bound a tensor's values are drawn within, 0 for zeros.
fn bound(tensor: &TensorDeclaration) -> Result<f32, InitError> {
    match tensor.init {
        Initial::Zeros => Ok(0.0),
        Initial::Uniform { bound } if bound.is_finite() && bound >= 0.0 => Ok(bound),
        Initial::Uniform { bound } => Err(InitError::BadBound { tensor: tensor.name.clone(), bound }),
    }
}

/// Uniform on the 2^24 multiples of 2^-23 in `[-1, 1)`; every step is exact in `f32`.
fn symmetric_unit(rng: &mut impl Rng) -> f32 {
    let unit = (rng.next_u32() >> 8) as f32 / 16_777_216.0;
    2.0 * unit - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::TensorSpec;

    fn tensor(name: &str, shape: &[u64], init: Initial) -> TensorDeclaration {
        TensorDeclaration { name: name.into(), shape: shape.to_vec(), init }
    }

    fn layout_of(inits: &[TensorDeclaration]) -> Arc<Layout> {
        let spec = |init: &TensorDeclaration| TensorSpec { name: init.name.clone(), shape: init.shape.clone() };
        Arc::new(Layout::new(inits.iter().map(spec).collect()).unwrap())
    }

    #[test]
    fn draws_within_bounds_and_spreads_over_them() {
        let inits = [
            tensor("w", &[100, 24], Initial::Uniform { bound: 0.5 }),
            tensor("b", &[1000], Initial::Uniform { bound: 0.25 }),
            tensor("z", &[10], Initial::Zeros),
        ];
        let parameters = initialize(layout_of(&inits), &inits, 7).unwrap();
        for (index, bound) in [(0, 0.5_f32), (1, 0.25)] {
            let values = parameters.tensor(index);
            assert!(values.iter().all(|v| v.abs() <= bound));
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            let square = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
            assert!(mean.abs() < 0.05 * bound, "{mean}");
            assert!((square / (bound * bound / 3.0) - 1.0).abs() < 0.1, "{square}");
        }
        assert_eq!(parameters.tensor(2), [0.0; 10]);
    }

    #[test]
    fn known_values_of_a_known_seed() {
        let inits = [tensor("w", &[4], Initial::Uniform { bound: 1.0 })];
        let values = initialize(layout_of(&inits), &inits, 42).unwrap().into_values();
        assert_eq!(values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), KNOWN_BITS);
        let other = initialize(layout_of(&inits), &inits, 43).unwrap().into_values();
        assert_ne!(values, other);
    }

    /// Computed by an independent ChaCha8 in Python (key of seed 42, stream 0). A change here changes every initial
    /// model version.
    const KNOWN_BITS: [u32; 4] = [0xbdae_6490, 0xbf50_faa4, 0x3f03_a2de, 0xbf4e_e062];

    #[test]
    fn a_tensor_does_not_depend_on_the_ones_before_it() {
        let inits =
            |first| [tensor("a", &[first], Initial::Zeros), tensor("b", &[3, 3], Initial::Uniform { bound: 1.0 })];
        let draw = |first| initialize(layout_of(&inits(first)), &inits(first), 1).unwrap().tensor(1).to_vec();
        assert_eq!(draw(1), draw(9));
    }

    #[test]
    fn refuses_what_it_cannot_draw() {
        let draw = |init| {
            let inits = [tensor("w", &[3], init)];
            initialize(layout_of(&inits), &inits, 0).unwrap_err()
        };
        assert_eq!(draw(Initial::Uniform { bound: -1.0 }), InitError::BadBound { tensor: "w".into(), bound: -1.0 });
        assert!(matches!(draw(Initial::Uniform { bound: f32::NAN }), InitError::BadBound { .. }));
        let two = [tensor("a", &[1], Initial::Zeros), tensor("b", &[1], Initial::Zeros)];
        let swapped = [two[1].clone(), two[0].clone()];
        assert_eq!(initialize(layout_of(&two), &swapped, 0).unwrap_err(), InitError::Mismatch(0));
        assert_eq!(initialize(layout_of(&two), &two[..1], 0).unwrap_err(), InitError::Mismatch(1));
    }
}
