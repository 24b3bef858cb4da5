//! Operations on each element.

use std::f64::consts::FRAC_1_SQRT_2;

use candle_core::{Result, Tensor};
use candle_nn::ops::sigmoid;
use graph::{Activation, Arithmetic};

use crate::train::graph::candle::value::filled;

/// `sqrt(2 / pi)`.
const ROOT: f64 = 0.797_884_560_802_865_4;
/// The cubic coefficient of the hyperbolic tangent's approximation of GELU.
const CUBIC: f64 = 0.044_715;

/// A number in every place of `x`.
fn number(value: f32, x: &Tensor) -> Result<Tensor> {
    filled(value, x, x.dims())
}

/// `max(x, 0)`. The gradient at 0 is 0, and NaN stays.
fn relu(x: &Tensor) -> Result<Tensor> {
    let zero = number(0.0, x)?;
    x.le(&zero)?.where_cond(&zero, x)
}

pub(super) fn activation(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Identity => Ok(x.clone()),
        Activation::Neg => x.neg(),
        // candle's has a gradient at 0.
        Activation::Abs => x * x.detach().sign()?,
        Activation::Exp => x.exp(),
        Activation::Log => x.log(),
        Activation::Sqrt => x.sqrt(),
        Activation::Reciprocal => x.recip(),
        Activation::Erf => x.erf(),
        Activation::Sin => x.sin(),
        Activation::Cos => x.cos(),
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => sigmoid(x),
        Activation::Relu => relu(x),
        Activation::LeakyRelu { alpha } => x.gt(&number(0.0, x)?)?.where_cond(x, &x.affine(alpha.into(), 0.0)?),
        Activation::Elu { alpha } => x.elu(alpha.into()),
        Activation::Gelu => x * x.affine(FRAC_1_SQRT_2, 0.0)?.erf()?.affine(0.5, 0.5)?,
        Activation::GeluTanh => {
            let cubic = (x.sqr()? * x)?.affine(CUBIC, 0.0)?;
            x * (x + cubic)?.affine(ROOT, 0.0)?.tanh()?.affine(0.5, 0.5)?
        }
        Activation::Softplus => softplus(x),
        Activation::HardSigmoid { alpha, beta } => gate(&x.affine(alpha.into(), beta.into())?),
        Activation::HardSwish => x * gate(&x.affine(1.0 / 6.0, 0.5)?)?,
        Activation::Clip { min, max } => {
            let mut y = x.clone();
            if let Some(min) = min {
                let min = number(min, x)?;
                y = x.lt(&min)?.where_cond(&min, &y)?;
            }
            if let Some(max) = max {
                let max = number(max, x)?;
                y = x.gt(&max)?.where_cond(&max, &y)?;
            }
            Ok(y)
        }
        Activation::Floor => x.detach().floor(),
        Activation::Ceil => x.detach().ceil(),
        Activation::Sign => x.detach().sign(),
    }
}

/// `x` from 0 to 1. The gradient is 0 at the bounds and outside.
fn gate(x: &Tensor) -> Result<Tensor> {
    let (zero, one) = (number(0.0, x)?, number(1.0, x)?);
    let y = x.le(&zero)?.where_cond(&zero, x)?;
    x.ge(&one)?.where_cond(&one, &y)
}

/// `ln(1 + e^x)`.
fn softplus(x: &Tensor) -> Result<Tensor> {
    let fixed = x.detach();
    let largest = relu(&fixed)?;
    // Its derivative is the sigmoid; its value has no digits where it is small.
    let rough = (((x - &largest)?.exp()? + largest.neg()?.exp()?)?.log()? + &largest)?;
    let small = fixed.abs()?.neg()?.exp()?;
    let sum = small.affine(1.0, 1.0)?;
    let one = number(1.0, x)?;
    // Kahan's ln(1 + small).
    let part = (&small * (sum.log()? / (&sum - &one)?)?)?;
    let exact = (largest + sum.eq(&one)?.where_cond(&small, &part)?)?;
    &rough + (exact - rough.detach())?
}

/// Two tensors in one shape.
fn alike([a, b]: [&Tensor; 2], shape: &[usize]) -> Result<[Tensor; 2]> {
    Ok([a.broadcast_as(shape)?, b.broadcast_as(shape)?])
}

/// A function of two tensors that broadcast to `shape`. `exponent` is the exponent of a power, if it is known.
pub(super) fn arithmetic(
    kind: Arithmetic,
    [a, b]: [&Tensor; 2],
    shape: &[usize],
    exponent: Option<f32>,
) -> Result<Tensor> {
    match kind {
        Arithmetic::Add => a.broadcast_add(b),
        Arithmetic::Sub => a.broadcast_sub(b),
        Arithmetic::Mul => a.broadcast_mul(b),
        Arithmetic::Div => a.broadcast_div(b),
        Arithmetic::Pow => match exponent {
            Some(2.0) => a.sqr(),
            Some(0.5) => a.sqrt(),
            Some(exponent) => a.powf(exponent.into()),
            None => power(alike([a, b], shape)?),
        },
        Arithmetic::Mod => {
            let divisor = b.detach();
            a.broadcast_sub(&a.detach().broadcast_div(&divisor)?.floor()?.broadcast_mul(&divisor)?)
        }
        // candle's share the gradient of a tie.
        Arithmetic::Min => {
            let [a, b] = alike([a, b], shape)?;
            b.lt(&a)?.where_cond(&b, &a)
        }
        Arithmetic::Max => {
            let [a, b] = alike([a, b], shape)?;
            b.gt(&a)?.where_cond(&b, &a)
        }
    }
}

/// `a^b` for any `a`; candle's takes positive ones. The gradient of `b` is 0 where `a` is not positive.
fn power([a, b]: [Tensor; 2]) -> Result<Tensor> {
    let (zero, one) = (number(0.0, &a)?, number(1.0, &a)?);
    let (is_zero, is_negative) = (a.eq(&zero)?, a.lt(&zero)?);
    let fixed = b.detach();
    let magnitude = is_zero.where_cond(&one, &is_negative.where_cond(&a.neg()?, &a)?)?;
    let exponent = is_negative.where_cond(&fixed, &b)?;
    let power = (exponent * magnitude.log()?)?.exp()?;
    // 1 for even exponents, -1 for odd ones, and no number for others.
    let is_odd = (&fixed - fixed.affine(0.5, 0.0)?.floor()?.affine(2.0, 0.0)?)?;
    let is_whole = fixed.floor()?.eq(&fixed)?;
    let sign = is_whole.where_cond(&is_odd.affine(-2.0, 1.0)?, &number(f32::NAN, &a)?)?;
    let power = (power * is_negative.where_cond(&sign, &one)?)?;
    // Powers of 0. The first one is `a` itself, with its gradient.
    let of_zero = fixed.lt(&zero)?.where_cond(&number(f32::INFINITY, &a)?, &zero)?;
    let of_zero = fixed.eq(&zero)?.where_cond(&one, &of_zero)?;
    let of_zero = fixed.eq(&one)?.where_cond(&a, &of_zero)?;
    is_zero.where_cond(&of_zero, &power)
}

/// From `a` where the condition holds, else from `b`; all broadcast to `shape`.
pub(super) fn choice(condition: &Tensor, values: [&Tensor; 2], shape: &[usize]) -> Result<Tensor> {
    let [a, b] = alike(values, shape)?;
    condition.broadcast_as(shape)?.where_cond(&a, &b)
}
