//! Functions of each element.

use graph::{Activation, Arithmetic, Comparison, Element, Logic, Operation};

use super::context::{Context, Result};
use crate::build::Id;
use crate::data::element_of;

/// Adds a function of each element; `None` for other operators.
pub(super) fn lower(c: &mut Context<'_>) -> Result<Option<Id>> {
    if let Some(activation) = activation(c)? {
        let x = c.input(0)?;
        if c.builder.element(x) != Element::F32 && !matches!(activation, Activation::Neg | Activation::Abs) {
            return Err("it applies to floats only".to_owned());
        }
        if c.builder.element(x) == Element::I64 && !c.builder.is_known(x) {
            return integer_activation(c, activation, x).map(Some);
        }
        return c.activate(activation, x).map(Some);
    }
    if let Some(by) = arithmetic(&c.node.operator) {
        return variadic(c, by).map(Some);
    }
    if let Some(by) = comparison(&c.node.operator) {
        let (a, b) = (c.input(0)?, c.input(1)?);
        return c.compare(by, a, b).map(Some);
    }
    let by = match c.node.operator.as_str() {
        "And" => Logic::And,
        "Or" => Logic::Or,
        "Xor" => Logic::Xor,
        "Not" => {
            let x = c.input(0)?;
            return c.not(x).map(Some);
        }
        _ => return others(c),
    };
    let (a, b) = (c.input(0)?, c.input(1)?);
    c.add(Operation::Logic(by), &[a, b]).map(Some)
}

fn activation(c: &Context<'_>) -> Result<Option<Activation>> {
    Ok(Some(match c.node.operator.as_str() {
        "Neg" => Activation::Neg,
        "Abs" => Activation::Abs,
        "Exp" => Activation::Exp,
        "Log" => Activation::Log,
        "Sqrt" => Activation::Sqrt,
        "Reciprocal" => Activation::Reciprocal,
        "Erf" => Activation::Erf,
        "Sin" => Activation::Sin,
        "Cos" => Activation::Cos,
        "Tanh" => Activation::Tanh,
        "Sigmoid" => Activation::Sigmoid,
        "Relu" => Activation::Relu,
        "LeakyRelu" => Activation::LeakyRelu { alpha: c.float("alpha", 0.01) },
        "Elu" => Activation::Elu { alpha: c.float("alpha", 1.0) },
        "Gelu" if c.text("approximate", "none") == "tanh" => Activation::GeluTanh,
        "Gelu" => Activation::Gelu,
        "Softplus" => Activation::Softplus,
        "HardSigmoid" => Activation::HardSigmoid { alpha: c.float("alpha", 0.2), beta: c.float("beta", 0.5) },
        "HardSwish" => Activation::HardSwish,
        "Floor" => Activation::Floor,
        "Ceil" => Activation::Ceil,
        "Sign" => Activation::Sign,
        "Clip" => clip(c)?,
        _ => return Ok(None),
    }))
}

fn clip(c: &Context<'_>) -> Result<Activation> {
    let bound = |name: &str, input: usize| match (c.attribute(name), c.optional(input)) {
        (Some(attribute), _) => Ok(Some(attribute.float)),
        (None, Some(id)) => c.fixed_float(id, name).map(Some),
        (None, None) => Ok(None),
    };
    let (min, max) = (bound("min", 1)?, bound("max", 2)?);
    Ok(Activation::Clip { min: min.filter(|min| *min > f32::MIN), max: max.filter(|max| *max < f32::MAX) })
}

fn integer_activation(c: &mut Context<'_>, activation: Activation, x: Id) -> Result<Id> {
    let zero = c.builder.integer(0);
    let negative = c.arithmetic(Arithmetic::Sub, zero, x)?;
    if activation == Activation::Neg { Ok(negative) } else { c.arithmetic(Arithmetic::Max, x, negative) }
}

fn arithmetic(operator: &str) -> Option<Arithmetic> {
    Some(match operator {
        "Add" | "Sum" | "Mean" => Arithmetic::Add,
        "Sub" => Arithmetic::Sub,
        "Mul" => Arithmetic::Mul,
        "Div" => Arithmetic::Div,
        "Pow" => Arithmetic::Pow,
        "Mod" => Arithmetic::Mod,
        "Min" => Arithmetic::Min,
        "Max" => Arithmetic::Max,
        _ => return None,
    })
}

fn comparison(operator: &str) -> Option<Comparison> {
    Some(match operator {
        "Equal" => Comparison::Equal,
        "Less" => Comparison::Less,
        "LessOrEqual" => Comparison::LessOrEqual,
        "Greater" => Comparison::Greater,
        "GreaterOrEqual" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn variadic(c: &mut Context<'_>, by: Arithmetic) -> Result<Id> {
    if by == Arithmetic::Mod && c.int("fmod", 0) != 0 {
        return Err("`fmod=1` is not supported".to_owned());
    }
    let mut result = c.input(0)?;
    for number in 1..c.node.inputs.len() {
        let mut other = c.input(number)?;
        // The exponent of a power may have another type.
        if by == Arithmetic::Pow {
            other = c.cast(other, c.builder.element(result))?;
        }
        if c.builder.element(result) != c.builder.element(other) || c.builder.element(other) == Element::Bool {
            return Err("its inputs must be both floats or both integers".to_owned());
        }
        result = c.arithmetic(by, result, other)?;
    }
    if c.node.operator == "Mean" {
        #[expect(clippy::cast_precision_loss, reason = "few inputs")]
        let share = 1.0 / c.node.inputs.len() as f32;
        result = c.scale(result, share)?;
    }
    Ok(result)
}

fn others(c: &mut Context<'_>) -> Result<Option<Id>> {
    let operator = c.node.operator.clone();
    Ok(Some(match operator.as_str() {
        "Identity" => c.input(0)?,
        "Where" => {
            let inputs = [c.input(0)?, c.input(1)?, c.input(2)?];
            c.add(Operation::Where, &inputs)?
        }
        "Cast" => {
            let to = element_of(i32::try_from(c.int("to", 0)).unwrap_or(0))?;
            let x = c.input(0)?;
            c.cast(x, to)?
        }
        "CastLike" => {
            let (x, like) = (c.input(0)?, c.input(1)?);
            c.cast(x, c.builder.element(like))?
        }
        "IsNaN" => {
            let x = c.input(0)?;
            let same = c.compare(Comparison::Equal, x, x)?;
            c.not(same)?
        }
        "IsInf" => {
            let x = c.input(0)?;
            let (size, infinity) = (c.activate(Activation::Abs, x)?, c.builder.scalar(f32::INFINITY));
            c.compare(Comparison::Equal, size, infinity)?
        }
        _ => return composed(c, &operator),
    }))
}

/// Functions that are composed of several operations.
fn composed(c: &mut Context<'_>, operator: &str) -> Result<Option<Id>> {
    let x = match operator {
        "PRelu" | "Selu" | "Celu" | "Mish" | "Softsign" | "ThresholdedRelu" | "Swish" => c.input(0)?,
        _ => return Ok(None),
    };
    Ok(Some(match operator {
        "PRelu" => {
            let slope = c.input(1)?;
            let above = c.activate(Activation::Relu, x)?;
            let below = c.arithmetic(Arithmetic::Sub, x, above)?;
            let below = c.arithmetic(Arithmetic::Mul, below, slope)?;
            c.arithmetic(Arithmetic::Add, above, below)?
        }
        "Selu" => {
            let (alpha, gamma) = (c.float("alpha", 1.673_263_2), c.float("gamma", 1.050_701));
            let y = c.activate(Activation::Elu { alpha }, x)?;
            c.scale(y, gamma)?
        }
        "Celu" => {
            let alpha = c.float("alpha", 1.0);
            let inner = c.scale(x, alpha.recip())?;
            let y = c.activate(Activation::Elu { alpha }, inner)?;
            // Above 0 the function is x itself, not x / alpha.
            let (inner, above) = (c.activate(Activation::Relu, inner)?, c.activate(Activation::Relu, x)?);
            let y = c.arithmetic(Arithmetic::Sub, y, inner)?;
            c.arithmetic(Arithmetic::Add, y, above)?
        }
        "Mish" => {
            let y = c.activate(Activation::Softplus, x)?;
            let y = c.activate(Activation::Tanh, y)?;
            c.arithmetic(Arithmetic::Mul, x, y)?
        }
        "Swish" => {
            let inner = c.scale(x, c.float("alpha", 1.0))?;
            let y = c.activate(Activation::Sigmoid, inner)?;
            c.arithmetic(Arithmetic::Mul, x, y)?
        }
        "Softsign" => {
            let (size, one) = (c.activate(Activation::Abs, x)?, c.builder.scalar(1.0));
            let size = c.arithmetic(Arithmetic::Add, size, one)?;
            c.arithmetic(Arithmetic::Div, x, size)?
        }
        _ => {
            let (alpha, zero) = (c.builder.scalar(c.float("alpha", 1.0)), c.builder.scalar(0.0));
            let is_above = c.compare(Comparison::Greater, x, alpha)?;
            c.add(Operation::Where, &[is_above, x, zero])?
        }
    }))
}
