//! Operations on each element.

use super::inputs::{Inferred, Inputs, broadcast, finite, of, positive};
use crate::attributes::{Activation, Comparison, Logic};
use crate::element::Element;
use crate::shapes::TensorType;

pub(super) fn activation(activation: Activation, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    of(x, Element::F32)?;
    match activation {
        Activation::LeakyRelu { alpha } => finite("alpha", alpha)?,
        Activation::Elu { alpha } => positive("alpha", alpha)?,
        Activation::HardSigmoid { alpha, beta } => {
            positive("alpha", alpha)?;
            finite("beta", beta)?;
        }
        Activation::Clip { min, max } => {
            [min, max].into_iter().flatten().try_for_each(|bound| finite("a bound", bound))?;
            if let (Some(min), Some(max)) = (min, max)
                && min > max
            {
                return Err(format!("clips to the empty range from {min} to {max}"));
            }
        }
        Activation::Identity
        | Activation::Neg
        | Activation::Abs
        | Activation::Exp
        | Activation::Log
        | Activation::Sqrt
        | Activation::Reciprocal
        | Activation::Erf
        | Activation::Sin
        | Activation::Cos
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Relu
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Softplus
        | Activation::HardSwish
        | Activation::Floor
        | Activation::Ceil
        | Activation::Sign => {}
    }
    Ok(x.clone())
}

pub(super) fn arithmetic(inputs: &Inputs<'_>) -> Inferred {
    let [a, b] = inputs.exactly()?;
    if a.element == Element::Bool {
        return Err("takes numbers, not truth values".to_owned());
    }
    of(b, a.element)?;
    Ok(TensorType { element: a.element, shape: broadcast(&a.shape, &b.shape)? })
}

pub(super) fn comparison(comparison: Comparison, inputs: &Inputs<'_>) -> Inferred {
    let [a, b] = inputs.exactly()?;
    if a.element == Element::Bool && comparison != Comparison::Equal {
        return Err("orders numbers, not truth values".to_owned());
    }
    of(b, a.element)?;
    Ok(TensorType { element: Element::Bool, shape: broadcast(&a.shape, &b.shape)? })
}

pub(super) fn logic(logic: Logic, inputs: &Inputs<'_>) -> Inferred {
    let shape = match logic {
        Logic::Not => {
            let [a] = inputs.exactly()?;
            of(a, Element::Bool)?;
            a.shape.clone()
        }
        Logic::And | Logic::Or | Logic::Xor => {
            let [a, b] = inputs.exactly()?;
            of(a, Element::Bool)?;
            of(b, Element::Bool)?;
            broadcast(&a.shape, &b.shape)?
        }
    };
    Ok(TensorType { element: Element::Bool, shape })
}

pub(super) fn choice(inputs: &Inputs<'_>) -> Inferred {
    let [condition, a, b] = inputs.exactly()?;
    of(condition, Element::Bool)?;
    of(b, a.element)?;
    let shape = broadcast(&condition.shape, &broadcast(&a.shape, &b.shape)?)?;
    Ok(TensorType { element: a.element, shape })
}

pub(super) fn cast(to: Element, inputs: &Inputs<'_>) -> Inferred {
    let [x] = inputs.exactly()?;
    Ok(TensorType { element: to, shape: x.shape.clone() })
}
