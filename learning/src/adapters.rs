//! Low-rank adapters (LoRA, Hu et al. 2021): each frozen matrix W gets two thin matrices, trained in its place.
//!
//! A layer computes with W + (α / r) B A, where A is r × inputs and B is outputs × r. B starts at zero, so training starts from W. Only A
//! and B are trained; the task decides whether they are aggregated or stay local. This module selects the matrices, initializes their
//! adapters and does the arithmetic.

use std::sync::Arc;

use task_spec::{Initial, TensorDeclaration};

use crate::initialize::{InitError, initialize};
use crate::parameters::{Layout, LayoutError, Parameters, TensorSpec, WrongLayout};
use crate::partition::{PatternError, Patterns};
use crate::vectorized::vectorized;

/// The adapters of one model: for each adapted matrix, in layout order, A and then B.
#[derive(Clone, Debug)]
pub struct Adapters {
    whole: Arc<Layout>,
    own: Arc<Layout>,
    layers: Vec<Layer>,
    rank: usize,
    scale: f32,
}

/// Domain separator: adapters and model are drawn from the same seed but get independent values.
const ADAPTERS: u64 = u64::from_le_bytes(*b"adapters");

#[derive(Clone, Copy, Debug)]
struct Layer {
    /// Index of the adapted matrix in the whole model.
    index: usize,
    outputs: usize,
    inputs: usize,
}

/// Reasons a model cannot have the requested adapters.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// The patterns match zero tensors, or all.
    #[error(transparent)]
    Patterns(#[from] PatternError),
    /// The pattern matches tensors, but none of them is a matrix.
    #[error("pattern {0:?} matches no linear layer: adapters attach to matrices, which are tensors of two dimensions")]
    NoMatrix(String),
    /// The rank exceeds the shorter side of a matrix.
    #[error(
        "rank {rank} is above {most}, the shorter side of {tensor:?} of {outputs} by {inputs}; a larger rank saves nothing"
    )]
    Rank {
        /// The configured rank, above `most`.
        rank: u32,
        tensor: String,
        outputs: u64,
        inputs: u64,
        /// The smaller of `outputs` and `inputs`.
        most: u64,
    },
    /// The rank is 0.
    #[error("the rank must be at least 1")]
    NoRank,
    /// The adapters do not form a valid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl Adapters {
    /// Adapts every matrix of `whole` whose name matches; matching tensors of other shapes are ignored. `alpha`
    /// defaults to `rank`.
    ///
    /// # Errors
    /// [`AdapterError`]: the patterns match no matrix or every tensor, or the rank exceeds a matrix's shorter side.
    pub fn new(whole: &Arc<Layout>, patterns: &Patterns, rank: u32, alpha: Option<f64>) -> Result<Self, AdapterError> {
        let matching = whole.partition(patterns)?;
        let is_matrix = |tensor: &TensorSpec| tensor.shape.len() == 2;
        for pattern in patterns.as_slice() {
            let alone = Patterns::new(vec![pattern.clone()])?;
            if !matching.personal().tensors().iter().any(|tensor| is_matrix(tensor) && alone.matches(&tensor.name)) {
                return Err(AdapterError::NoMatrix(pattern.clone()));
            }
        }
        let Some(thin) = std::num::NonZeroU32::new(rank) else { return Err(AdapterError::NoRank) };
        let (mut layers, mut tensors) = (Vec::new(), Vec::new());
        for (index, tensor) in whole.tensors().iter().enumerate() {
            let [outputs, inputs] = tensor.shape[..] else { continue };
            if !patterns.matches(&tensor.name) {
                continue;
            }
            let most = outputs.min(inputs);
            if u64::from(rank) > most {
                return Err(AdapterError::Rank { rank, tensor: tensor.name.clone(), outputs, inputs, most });
            }
            let thin = u64::from(thin.get());
            tensors.push(TensorSpec { name: format!("{}.lora_a", tensor.name), shape: vec![thin, inputs] });
            tensors.push(TensorSpec { name: format!("{}.lora_b", tensor.name), shape: vec![outputs, thin] });
            // A checked layout's dimensions are below 2^28.
            let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            layers.push(Layer { index, outputs: size(outputs), inputs: size(inputs) });
        }
        let own = Arc::new(Layout::new(tensors)?);
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        let alpha = alpha.unwrap_or(f64::from(rank)) as f32;
        let scale = alpha / rank as f32;
        Ok(Self { whole: Arc::clone(whole), own, layers, rank: rank as usize, scale })
    }

    /// Layout of the whole model.
    #[must_use]
    pub fn whole(&self) -> &Arc<Layout> {
        &self.whole
    }

    /// Layout of the adapters alone: `NAME.lora_a` and `NAME.lora_b` for each adapted matrix.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.own
    }

    /// α / r, the factor of B A.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Initial distributions: A is uniform within ±1/√inputs, as in a linear layer, and B is zero.
    #[must_use]
    pub fn inits(&self) -> Vec<TensorDeclaration> {
        let inits = self.own.tensors().iter().enumerate().map(|(index, spec)| {
            let init = match index % 2 {
                #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
                0 => Initial::Uniform { bound: (1.0 / spec.shape[1] as f64).sqrt() as f32 },
                _ => Initial::Zeros,
            };
            TensorDeclaration { name: spec.name.clone(), shape: spec.shape.clone(), init }
        });
        inits.collect()
    }

    /// The initial adapters for a task's seed. They share no random bits with the task's model.
    ///
    /// # Errors
    /// [`InitError`], which a layout that [`Adapters::new`] accepted never causes.
    pub fn initial(&self, seed: u64) -> Result<Parameters, InitError> {
        initialize(Arc::clone(&self.own), &self.inits(), seed ^ ADAPTERS)
    }

    /// The model with adapters applied: W + (α / r) B A for each adapted matrix, and `base` everywhere else.
    ///
    /// # Errors
    /// [`WrongLayout`] if either argument belongs to another model.
    pub fn merge(&self, base: &Parameters, adapters: &Parameters) -> Result<Parameters, WrongLayout> {
        let mut merged = base.clone();
        self.merge_into(base, adapters, &mut merged)?;
        Ok(merged)
    }

    /// Overwrites the adapted matrices of `merged` with those of [`Self::merge`]. Its other tensors stay the same.
    ///
    /// # Errors
    /// [`WrongLayout`] if an argument belongs to another model.
    pub fn merge_into(
        &self,
        base: &Parameters,
        adapters: &Parameters,
        merged: &mut Parameters,
    ) -> Result<(), WrongLayout> {
        self.check(adapters)?;
        if **base.layout() != *self.whole || **merged.layout() != *self.whole {
            return Err(WrongLayout);
        }
        for (at, layer) in self.layers.iter().enumerate() {
            let (a, b) = (adapters.tensor(2 * at), adapters.tensor(2 * at + 1));
            let weight = &mut merged.values_mut()[self.whole.range(layer.index)];
            weight.copy_from_slice(base.tensor(layer.index));
            vectorized(
                #[inline(always)]
                || {
                    for (row, b) in weight.chunks_exact_mut(layer.inputs).zip(b.chunks_exact(self.rank)) {
                        for (a, factor) in a.chunks_exact(layer.inputs).zip(b) {
                            let factor = self.scale * factor;
                            row.iter_mut().zip(a).for_each(|(weight, a)| *weight += factor * a);
                        }
                    }
                },
            );
        }
        Ok(())
    }

    /// For each tensor of the whole model, whether it has adapters.
    #[must_use]
    pub fn adapted(&self) -> Vec<bool> {
        let mut adapted = vec![false; self.whole.tensors().len()];
        self.layers.iter().for_each(|layer| adapted[layer.index] = true);
        adapted
    }

    /// The flat gradient of the adapters, given the gradient G of the merged model: (α / r) Bᵀ G for A and (α / r) G Aᵀ
    /// for B. Only the gradients of adapted matrices are read.
    ///
    /// # Errors
    /// [`WrongLayout`] if either argument belongs to another model.
    pub fn gradient(&self, merged: &[f32], adapters: &Parameters) -> Result<Vec<f32>, WrongLayout> {
        self.check(adapters)?;
        if merged.len() != self.whole.len() {
            return Err(WrongLayout);
        }
        let mut gradient = vec![0.0; self.own.len()];
        for (at, layer) in self.layers.iter().enumerate() {
            let (a, b) = (adapters.tensor(2 * at), adapters.tensor(2 * at + 1));
            let (of_a, of_b) = gradient[self.own.range(2 * at).start..].split_at_mut(a.len());
            let of_b = &mut of_b[..layer.outputs * self.rank];
            let rows = &merged[self.whole.range(layer.index)];
            layer.add_gradient(rows, (a, b), (of_a, of_b), self.scale);
        }
        Ok(gradient)
    }

    fn check(&self, adapters: &Parameters) -> Result<(), WrongLayout> {
        if **adapters.layout() == *self.own { Ok(()) } else { Err(WrongLayout) }
    }
}

impl Layer {
    /// Adds the gradient of A, and writes that of B, given the `rows` of the matrix' gradient.
    fn add_gradient(&self, rows: &[f32], (a, b): (&[f32], &[f32]), (of_a, of_b): (&mut [f32], &mut [f32]), scale: f32) {
        let rank = a.len() / self.inputs;
        // A column for each input, so that the sums over inputs advance side by side, each in the order of the inputs.
        let columns: Vec<f32> =
            (0..self.inputs).flat_map(|input| a[input..].iter().step_by(self.inputs)).copied().collect();
        let mut sums = vec![0.0_f32; rank];
        vectorized(
            #[inline(always)]
            || {
                let pairs = b.chunks_exact(rank).zip(of_b.chunks_exact_mut(rank));
                for (row, (b, of_b)) in rows.chunks_exact(self.inputs).zip(pairs) {
                    for (of_a, b) in of_a.chunks_exact_mut(self.inputs).zip(b) {
                        let factor = scale * b;
                        of_a.iter_mut().zip(row).for_each(|(of_a, g)| *of_a += factor * g);
                    }
                    sums.fill(0.0);
                    for (g, column) in row.iter().zip(columns.chunks_exact(rank)) {
                        sums.iter_mut().zip(column).for_each(|(sum, a)| *sum += g * a);
                    }
                    of_b.iter_mut().zip(&sums).for_each(|(of_b, sum)| *of_b = scale * sum);
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Arc<Layout> {
        let tensor = |name: &str, shape: &[u64]| TensorSpec { name: name.into(), shape: shape.to_vec() };
        let tensors = vec![tensor("fc1.weight", &[2, 3]), tensor("fc1.bias", &[2]), tensor("fc2.weight", &[2, 2])];
        Arc::new(Layout::new(tensors).unwrap())
    }

    fn adapters(patterns: &[&str], rank: u32, alpha: f64) -> Result<Adapters, AdapterError> {
        let patterns = Patterns::new(patterns.iter().map(|&pattern| pattern.into()).collect())?;
        Adapters::new(&whole(), &patterns, rank, Some(alpha))
    }

    fn filled(layout: &Arc<Layout>, values: &[f32]) -> Parameters {
        Parameters::new(Arc::clone(layout), values.to_vec()).unwrap()
    }

    #[test]
    fn they_stand_beside_the_matrices_that_are_named() {
        let adapters = adapters(&["fc1.*"], 2, 4.0).unwrap();
        let names: Vec<_> =
            adapters.layout().tensors().iter().map(|tensor| (&*tensor.name, &tensor.shape[..])).collect();
        assert_eq!(names, [("fc1.weight.lora_a", &[2, 3][..]), ("fc1.weight.lora_b", &[2, 2][..])]);
        let inits = adapters.inits();
        assert!(matches!(inits[0].init, Initial::Uniform { bound } if (bound - 0.577_350_3).abs() < 1e-6));
        assert_eq!(inits[1].init, Initial::Zeros);
    }

    #[test]
    fn merging_adds_the_scaled_product_and_nothing_at_first() {
        // α / r = 2; A = [1 2 3], B = [10, 20]ᵀ.
        let adapters = adapters(&["fc1.weight"], 1, 2.0).unwrap();
        let base = filled(&whole(), &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0, 7.0, 5.0, 5.0, 5.0, 5.0]);
        let own = filled(adapters.layout(), &[1.0, 2.0, 3.0, 10.0, 20.0]);
        let merged = adapters.merge(&base, &own).unwrap();
        assert_eq!(merged.values(), [21.0, 41.0, 61.0, 41.0, 81.0, 121.0, 7.0, 7.0, 5.0, 5.0, 5.0, 5.0]);
        let first = adapters.initial(3).unwrap();
        assert_eq!(adapters.merge(&base, &first).unwrap(), base);
        assert_eq!(adapters.merge(&own, &base), Err(WrongLayout));
        // Merging once more starts from the base, and leaves other tensors alone.
        let mut again = merged.clone();
        again.values_mut()[11] = 9.0;
        adapters.merge_into(&base, &first, &mut again).unwrap();
        assert_eq!(again.values()[..11], base.values()[..11]);
        assert_eq!(again.values()[11], 9.0);
        assert_eq!(adapters.merge_into(&base, &own, &mut first.clone()), Err(WrongLayout));
        assert_eq!(adapters.adapted(), [true, false, false]);
    }

    #[test]
    fn an_alpha_that_is_not_said_is_the_rank() {
        let patterns = Patterns::new(vec!["fc1.weight".into()]).unwrap();
        assert_eq!(Adapters::new(&whole(), &patterns, 2, None).unwrap().scale, 1.0);
    }

    #[test]
    fn the_gradient_is_that_of_the_merged_model() {
        // A linear loss Σ G ∘ W: its gradient with regard to any parameter is a difference quotient, exactly.
        let adapters = adapters(&["fc1.weight", "fc2.*"], 2, 3.0).unwrap();
        let count = u8::try_from(adapters.layout().len()).unwrap();
        let own = filled(adapters.layout(), &(0..count).map(|i| f32::from(i % 5) - 2.0).collect::<Vec<_>>());
        let g: Vec<f32> = (0..12_u8).map(|i| f32::from(i % 7) - 3.0).collect();
        let zero = Parameters::zeros(whole());
        let loss = |own: &Parameters| -> f32 {
            adapters.merge(&zero, own).unwrap().values().iter().zip(&g).map(|(w, g)| w * g).sum()
        };
        let gradient = adapters.gradient(&g, &own).unwrap();
        for (at, gradient) in gradient.iter().enumerate() {
            let mut moved = own.clone();
            moved.values_mut()[at] += 1.0;
            assert!((loss(&moved) - loss(&own) - gradient).abs() < 1e-3, "parameter {at}");
        }
        assert_eq!(adapters.gradient(&g[1..], &own), Err(WrongLayout));
    }

    #[test]
    fn patterns_and_ranks_that_cannot_be_are_refused() {
        let refused = |patterns: &[&str], rank| adapters(patterns, rank, 1.0).unwrap_err().to_string();
        assert!(refused(&["fc3.*"], 1).contains("matches no tensor"));
        assert!(refused(&["fc2.*", "fc1.bias"], 1).contains("\"fc1.bias\" matches no linear layer"));
        assert!(refused(&["*"], 1).contains("match every tensor"));
        assert!(refused(&["fc1.*"], 3).contains("rank 3 is above 2, the shorter side of \"fc1.weight\" of 2 by 3"));
        assert_eq!(adapters(&["fc1.*"], 0, 1.0).unwrap_err(), AdapterError::NoRank);
    }
}
