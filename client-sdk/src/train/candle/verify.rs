//! A comparison of a module's gradients with finite differences of its loss.

use candle_core::{Tensor, Var};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::train::error::TrainError;

/// Maximum number of examples that the comparison computes.
pub(super) const EXAMPLES: usize = 4;
/// Number of points at which a tensor's derivatives may agree. Near a kink, such as that of ReLU, a difference is wrong.
const POINTS: usize = 5;
/// Number of directions along which a tensor's derivatives must agree. A wrong gradient agrees along one by chance.
const DIRECTIONS: usize = 3;
/// Distances that are tried in turn along a direction, as multiples of the first. A shorter one can end before a kink.
const DISTANCES: [f64; 5] = [1.0, 0.3, 3.0, 0.1, 0.03];
/// Change of the loss that the first distance aims at, as a share of the loss.
const CHANGE: f64 = 1e-3;
/// Bounds of the first distance, as shares of the tensor's largest value.
const SHARES: [f64; 2] = [1e-4, 3e-2];
/// Size of the random displacement from the received model, as a share of a tensor's largest value. It avoids values such as 0, at
/// which an activation has no derivative.
const DISPLACEMENT: f64 = 1e-2;
/// Difference between derivatives that is accepted, as a share of the gradient's norm and of the derivatives.
const TOLERANCE: f64 = 0.03;
/// Rounding error of a loss in 32 bits: relative, and absolute for losses near zero.
const ROUNDING: [f64; 2] = [1e-6, 5e-7];

/// Compares the derivatives of `loss` along random directions of every variable that is not `frozen`, by its gradient and by a
/// central difference. The variables have their values again afterwards.
///
/// # Errors
/// [`TrainError::WrongGradient`] with the first variable's name, [`TrainError::NoGradient`], [`TrainError::RandomLoss`],
/// [`TrainError::NotFinite`], and errors of `loss`.
pub(super) fn verify(
    variables: &[Var],
    names: &[&str],
    frozen: &[bool],
    loss: &dyn Fn() -> Result<Tensor, TrainError>,
) -> Result<(), TrainError> {
    let values: Vec<Tensor> =
        variables.iter().map(|variable| variable.as_detached_tensor().copy()).collect::<Result<_, _>>()?;
    let restore = || variables.iter().zip(&values).try_for_each(|(variable, value)| variable.set(value));
    let mut open: Vec<usize> = (0..variables.len()).filter(|index| !frozen[*index]).collect();
    let displaced = open.clone();
    let mut draws = ChaCha8Rng::seed_from_u64(0);
    let mut result = Ok(());
    for _ in 0..POINTS {
        result = compare(variables, names, &displaced, &mut open, loss, &mut draws);
        restore()?;
        if !matches!(result, Err(TrainError::WrongGradient { .. })) {
            break;
        }
    }
    result
}

/// Compares the derivatives of the `open` variables at a random point near the present one, and takes those that agree off the list.
fn compare(
    variables: &[Var],
    names: &[&str],
    displaced: &[usize],
    open: &mut Vec<usize>,
    loss: &dyn Fn() -> Result<Tensor, TrainError>,
    draws: &mut ChaCha8Rng,
) -> Result<(), TrainError> {
    for variable in displaced.iter().map(|&index| &variables[index]) {
        let by = DISPLACEMENT * largest(variable)?;
        let (_, direction) = signs(variable, draws)?;
        variable.set(&(variable.as_detached_tensor() + direction.affine(by, 0.0)?)?)?;
    }
    let at = loss()?;
    let [first, second] = [number(&at)?, number(&loss()?)?];
    if !first.is_finite() {
        return Err(TrainError::NotFinite);
    }
    if (first - second).abs() > 2.0 * rounding(first) {
        return Err(TrainError::RandomLoss { first, second });
    }
    let gradients = at.backward()?;
    let mut wrong = Vec::new();
    for &index in &*open {
        let name = names[index];
        let Some(gradient) = gradients.get(&variables[index]) else {
            return Err(TrainError::NoGradient { tensors: format!("`{name}`") });
        };
        let gradient: Vec<f64> = gradient.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f64::from).collect();
        let tensor = Compared { variable: &variables[index], name, loss, at: first };
        match (0..DIRECTIONS).try_for_each(|_| tensor.along(&gradient, draws)) {
            Ok(()) => {}
            Err(error @ TrainError::WrongGradient { .. }) => wrong.push((index, error)),
            Err(error) => return Err(error),
        }
    }
    *open = wrong.iter().map(|(index, _)| *index).collect();
    wrong.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// A variable whose derivatives are compared.
struct Compared<'a> {
    variable: &'a Var,
    name: &'a str,
    loss: &'a dyn Fn() -> Result<Tensor, TrainError>,
    at: f64,
}

impl Compared<'_> {
    /// Compares the derivatives along one direction.
    fn along(&self, gradient: &[f64], draws: &mut ChaCha8Rng) -> Result<(), TrainError> {
        let base = self.variable.as_detached_tensor().copy()?;
        let (signs, direction) = signs(self.variable, draws)?;
        let norm = gradient.iter().map(|value| value * value).sum::<f64>().sqrt();
        let computed: f64 = gradient.iter().zip(&signs).map(|(value, sign)| value * f64::from(*sign)).sum();
        let scale = largest(self.variable)?;
        let aim = CHANGE * (self.at.abs() + CHANGE) / norm;
        let first = aim.clamp(SHARES[0] * scale, SHARES[1] * scale);
        let mut differences = Vec::new();
        for distance in DISTANCES.map(|factor| factor * first) {
            let moved = |by: f64| -> Result<f64, TrainError> {
                self.variable.set(&(&base + direction.affine(by, 0.0)?)?)?;
                number(&(self.loss)()?)
            };
            let difference = (moved(distance)? - moved(-distance)?) / (2.0 * distance);
            let largest = computed.abs().max(difference.abs());
            let accepted = TOLERANCE * (norm + largest) + rounding(self.at) / distance;
            // NaN is no agreement.
            if (computed - difference).abs() <= accepted {
                self.variable.set(&base)?;
                return Ok(());
            }
            differences.push(difference);
        }
        self.variable.set(&base)?;
        let difference = differences.first().copied().unwrap_or(f64::NAN);
        Err(TrainError::WrongGradient { tensor: self.name.to_owned(), computed, difference })
    }
}

/// A random direction: each coordinate is 1 or -1. As numbers, and as a tensor of the variable's shape.
fn signs(variable: &Var, draws: &mut ChaCha8Rng) -> Result<(Vec<f32>, Tensor), TrainError> {
    let signs: Vec<f32> = (0..variable.elem_count()).map(|_| if draws.random::<bool>() { 1.0 } else { -1.0 }).collect();
    let direction = Tensor::from_slice(&signs, variable.shape(), variable.device())?;
    Ok((signs, direction))
}

/// The largest magnitude in a variable, at least 0.1.
fn largest(variable: &Var) -> Result<f64, TrainError> {
    let largest = variable.as_detached_tensor().abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
    Ok(f64::from(largest).max(0.1))
}

fn number(loss: &Tensor) -> Result<f64, TrainError> {
    Ok(loss.to_scalar::<f32>()?.into())
}

/// Bound of the rounding error of a loss.
fn rounding(loss: f64) -> f64 {
    ROUNDING[0] * loss.abs() + ROUNDING[1]
}
