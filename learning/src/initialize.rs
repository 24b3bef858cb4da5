//! Draws a task's initial model version from a seed.
//!
//! Every device must reproduce it bit for bit, so values come from random integers and operations that are exact or
//! round once. The values of a tensor depend on the seed and the tensor's index, not on the tensors before it.

use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::parameters::{Layout, Parameters, TensorSpec};

/// Distribution of a tensor's initial values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Initializer {
    Zeros,
    /// Uniform in `[-bound, bound)`.
    Uniform {
        /// Finite, at least 0.
        bound: f32,
    },
    /// Uniform in `±sqrt(6 / fan_in)` (He et al. 2015, for rectified units). `fan_in` is the product of all dimensions
    /// after the first, so the tensor needs at least two: `[out, in]`, `[out, in, height, width]`.
    KaimingUniform,
}

/// A tensor of a model that is declared by shape and distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorInit {
    pub spec: TensorSpec,
    pub init: Initializer,
}

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
    /// The tensor has fewer than two dimensions, so it has no fan-in.
    #[error("tensor {0:?} has fewer than two dimensions; give it `uniform` with a bound, or `zeros`")]
    NoFanIn(String),
}

/// The initializers of `layout` as a task declares them: a uniform bound for each tensor, or `None` for zeros. Fewer
/// bounds than tensors give fewer initializers, which [`initialize`] rejects.
pub fn declared(layout: &Layout, bounds: impl Iterator<Item = Option<f32>>) -> Vec<TensorInit> {
    let tensors = layout.tensors().iter().cloned().zip(bounds);
    let init = |bound: Option<f32>| bound.map_or(Initializer::Zeros, |bound| Initializer::Uniform { bound });
    tensors.map(|(spec, bound)| TensorInit { spec, init: init(bound) }).collect()
}

/// Draws the initial values of `layout`; the same arguments give the same bits on every device.
///
/// # Errors
/// Any [`InitError`]; `inits` must name the tensors of `layout`, in order.
pub fn initialize(layout: Arc<Layout>, inits: &[TensorInit], seed: u64) -> Result<Parameters, InitError> {
    let tensors = layout.tensors();
    let mismatch = tensors.iter().zip(inits).position(|(tensor, init)| *tensor != init.spec);
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
        let bound = init.bound()?;
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

impl TensorInit {
    /// The bound of the uniform distribution, 0 for zeros. `Uniform` with this bound draws the same bits.
    ///
    /// # Errors
    /// [`InitError::BadBound`] or [`InitError::NoFanIn`].
    pub fn bound(&self) -> Result<f32, InitError> {
        match self.init {
            Initializer::Zeros => Ok(0.0),
            Initializer::Uniform { bound } if bound.is_finite() && bound >= 0.0 => Ok(bound),
            Initializer::Uniform { bound } => Err(InitError::BadBound { tensor: self.spec.name.clone(), bound }),
            Initializer::KaimingUniform => match self.spec.shape.split_first() {
                Some((_, inner)) if !inner.is_empty() => {
                    let fan_in = inner.iter().fold(1_u64, |product, &n| product.saturating_mul(n)).max(1);
                    #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
                    let bound = (6.0 / fan_in as f64).sqrt() as f32;
                    Ok(bound)
                }
                _ => Err(InitError::NoFanIn(self.spec.name.clone())),
            },
        }
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

    fn tensor(name: &str, shape: &[u64], init: Initializer) -> TensorInit {
        TensorInit { spec: TensorSpec { name: name.into(), shape: shape.to_vec() }, init }
    }

    #[test]
    fn what_tasks_declare_is_drawn_within_bounds_or_zero() {
        let expected = [tensor("a", &[2], Initializer::Uniform { bound: 0.5 }), tensor("b", &[3], Initializer::Zeros)];
        let layout = layout_of(&expected);
        assert_eq!(declared(&layout, [Some(0.5), None].into_iter()), expected);
        let short = declared(&layout, [Some(0.5)].into_iter());
        assert_eq!(initialize(layout, &short, 1), Err(InitError::Mismatch(1)));
    }

    fn layout_of(inits: &[TensorInit]) -> Arc<Layout> {
        Arc::new(Layout::new(inits.iter().map(|init| init.spec.clone()).collect()).unwrap())
    }

    #[test]
    fn draws_within_bounds_and_spreads_over_them() {
        let inits = [
            tensor("w", &[100, 24], Initializer::KaimingUniform),
            tensor("b", &[1000], Initializer::Uniform { bound: 0.25 }),
            tensor("z", &[10], Initializer::Zeros),
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

        let mut explicit = inits.clone();
        explicit[0].init = Initializer::Uniform { bound: inits[0].bound().unwrap() };
        assert_eq!(initialize(layout_of(&explicit), &explicit, 7).unwrap(), parameters);
    }

    #[test]
    fn known_values_of_a_known_seed() {
        let inits = [tensor("w", &[4], Initializer::Uniform { bound: 1.0 })];
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
            |first| [tensor("a", &[first], Initializer::Zeros), tensor("b", &[3, 3], Initializer::KaimingUniform)];
        let draw = |first| initialize(layout_of(&inits(first)), &inits(first), 1).unwrap().tensor(1).to_vec();
        assert_eq!(draw(1), draw(9));
    }

    #[test]
    fn refuses_what_it_cannot_draw() {
        let draw = |init| {
            let inits = [tensor("w", &[3], init)];
            initialize(layout_of(&inits), &inits, 0).unwrap_err()
        };
        assert_eq!(draw(Initializer::KaimingUniform), InitError::NoFanIn("w".into()));
        assert_eq!(draw(Initializer::Uniform { bound: -1.0 }), InitError::BadBound { tensor: "w".into(), bound: -1.0 });
        assert!(matches!(draw(Initializer::Uniform { bound: f32::NAN }), InitError::BadBound { .. }));
        let two = [tensor("a", &[1], Initializer::Zeros), tensor("b", &[1], Initializer::Zeros)];
        let swapped = [two[1].clone(), two[0].clone()];
        assert_eq!(initialize(layout_of(&two), &swapped, 0).unwrap_err(), InitError::Mismatch(0));
        assert_eq!(initialize(layout_of(&two), &two[..1], 0).unwrap_err(), InitError::Mismatch(1));
    }

    #[test]
    fn reads_as_people_write_it() {
        let read = |text| serde_json::from_str::<Initializer>(text);
        assert_eq!(read(r#""kaiming_uniform""#).unwrap(), Initializer::KaimingUniform);
        assert_eq!(read(r#"{"uniform":{"bound":0.5}}"#).unwrap(), Initializer::Uniform { bound: 0.5 });
        assert!(read(r#"{"uniform":{"bound":0.5,"seed":1}}"#).is_err());
    }
}
