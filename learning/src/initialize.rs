//! Draws a task's initial model version from a seed.
//!
//! Every device must reproduce it bit for bit, so values come from random integers and from operations that are exact, round
//! once, or are computed by `libm`. The values of a tensor depend on the seed and the tensor's index, not on the tensors before it.

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
    /// The constant is NaN or infinite.
    #[error("tensor {tensor:?}: the value of a constant initializer must be finite, not {value}")]
    BadConstant { tensor: String, value: f32 },
    /// The standard deviation is negative, NaN or infinite.
    #[error("tensor {tensor:?}: the deviation of a normal initializer must be finite and not negative, not {std}")]
    BadDeviation { tensor: String, std: f32 },
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
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(index as u64);
        fill(&mut parameters.values_mut()[layout.range(index)], init, &mut rng)?;
    }
    Ok(parameters)
}

/// Sets the initial values of one tensor, given as zeros.
fn fill(values: &mut [f32], declared: &TensorDeclaration, rng: &mut impl Rng) -> Result<(), InitError> {
    let is_size = |size: f32| size.is_finite() && size >= 0.0;
    let tensor = || declared.name.clone();
    match declared.init {
        Initial::Zeros => {}
        Initial::Ones => values.fill(1.0),
        Initial::Constant { value } if value.is_finite() => values.fill(value),
        Initial::Constant { value } => return Err(InitError::BadConstant { tensor: tensor(), value }),
        Initial::Uniform { bound: 0.0 } => {}
        Initial::Uniform { bound } if is_size(bound) => {
            values.iter_mut().for_each(|value| *value = bound * symmetric_unit(rng));
        }
        Initial::Uniform { bound } => return Err(InitError::BadBound { tensor: tensor(), bound }),
        Initial::Normal { std } if is_size(std) => {
            values.iter_mut().for_each(|value| *value = std * standard_normal(rng));
        }
        Initial::Normal { std } => return Err(InitError::BadDeviation { tensor: tensor(), std }),
    }
    Ok(())
}

/// Uniform on the 2^24 multiples of 2^-23 in `[-1, 1)`; every step is exact in `f32`.
fn symmetric_unit(rng: &mut impl Rng) -> f32 {
    let unit = (rng.next_u32() >> 8) as f32 / 16_777_216.0;
    2.0 * unit - 1.0
}

/// Normal with mean 0 and deviation 1, from 64 random bits (Box and Muller 1958); at most 6.7 in size.
#[expect(clippy::cast_possible_truncation, reason = "rounds")]
fn standard_normal(rng: &mut impl Rng) -> f32 {
    const STEPS: f64 = 4_294_967_296.0;
    let radius = (-2.0 * libm::log((f64::from(rng.next_u32()) + 1.0) / STEPS)).sqrt();
    (radius * libm::cos(std::f64::consts::TAU * (f64::from(rng.next_u32()) / STEPS))) as f32
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
    fn constants_fill_and_normal_values_have_their_deviation() {
        let inits = [
            tensor("one", &[3], Initial::Ones),
            tensor("half", &[2], Initial::Constant { value: 0.5 }),
            tensor("normal", &[200, 50], Initial::Normal { std: 0.02 }),
        ];
        let parameters = initialize(layout_of(&inits), &inits, 7).unwrap();
        assert_eq!((parameters.tensor(0), parameters.tensor(1)), (&[1.0; 3][..], &[0.5; 2][..]));
        let values: Vec<f64> = parameters.tensor(2).iter().map(|&value| f64::from(value) / 0.02).collect();
        let moment = |power| values.iter().map(|value| value.powi(power)).sum::<f64>() / values.len() as f64;
        assert!(moment(1).abs() < 0.03, "{}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.05, "{}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.3, "{}", moment(4));
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
        let infinite = Initial::Constant { value: f32::INFINITY };
        assert_eq!(draw(infinite), InitError::BadConstant { tensor: "w".into(), value: f32::INFINITY });
        assert_eq!(draw(Initial::Normal { std: -1.0 }), InitError::BadDeviation { tensor: "w".into(), std: -1.0 });
        let two = [tensor("a", &[1], Initial::Zeros), tensor("b", &[1], Initial::Zeros)];
        let swapped = [two[1].clone(), two[0].clone()];
        assert_eq!(initialize(layout_of(&two), &swapped, 0).unwrap_err(), InitError::Mismatch(0));
        assert_eq!(initialize(layout_of(&two), &two[..1], 0).unwrap_err(), InitError::Mismatch(1));
    }
}
