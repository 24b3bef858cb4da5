//! Normalizations, softmax and dropout.

use graph::{Activation, Arithmetic, Operation, Reduction, Size};

use super::context::{Context, Result, small};
use crate::build::Id;
use crate::data::Data;
use crate::error::Warning;
use crate::options::{BatchNorm, Dropout};

pub(super) fn softmax(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let axis = c.axis(c.int("axis", if c.opset < 13 { 1 } else { -1 }), rank)?;
    let is_log = c.node.operator == "LogSoftmax";
    let operation = |axis| if is_log { Operation::LogSoftmax { axis } } else { Operation::Softmax { axis } };
    if c.opset >= 13 || axis as usize + 1 == rank {
        return c.add(operation(axis), &[x]);
    }
    // Before version 13 all axes from this one on were one axis.
    let shapes = c.builder.shapes(x).to_vec();
    let flat: Vec<Vec<i64>> = shapes
        .iter()
        .map(|shape| vec![shape[..axis as usize].iter().product(), shape[axis as usize..].iter().product()])
        .collect();
    let y = c.reshaped(x, &flat)?;
    let y = c.add(operation(1), &[y])?;
    c.reshaped(y, &shapes)
}

fn epsilon(c: &Context<'_>) -> f32 {
    c.float("epsilon", 1e-5)
}

/// Rejects later results of a node.
fn one_result(c: &Context<'_>) -> Result<()> {
    if c.node.outputs.iter().skip(1).any(|name| !name.is_empty()) {
        return Err("only its first result is supported".to_owned());
    }
    Ok(())
}

pub(super) fn layer(c: &mut Context<'_>) -> Result<Id> {
    one_result(c)?;
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int("axis", -1), c.builder.rank(x))?;
    let sizes: Vec<Size> = c.sizes(x)?[axis as usize..].to_vec();
    let mut inputs = vec![x];
    for id in [Some(scale), c.optional(2)].into_iter().flatten() {
        inputs.push(if c.sizes(id)? == sizes { id } else { c.add(Operation::Expand { to: sizes.clone() }, &[id])? });
    }
    c.add(Operation::LayerNorm { axis, epsilon: epsilon(c) }, &inputs)
}

pub(super) fn rms(c: &mut Context<'_>) -> Result<Id> {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let rank = c.builder.rank(x);
    let axis = c.axis(c.int("axis", -1), rank)?;
    let axes = (axis..).take(rank - axis as usize).collect();
    let y = c.arithmetic(Arithmetic::Mul, x, x)?;
    let y = c.add(Operation::Reduce { by: Reduction::Mean, axes, keep: true }, &[y])?;
    let epsilon = c.builder.scalar(epsilon(c));
    let y = c.arithmetic(Arithmetic::Add, y, epsilon)?;
    let y = c.activate(Activation::Sqrt, y)?;
    let y = c.arithmetic(Arithmetic::Div, x, y)?;
    c.arithmetic(Arithmetic::Mul, y, scale)
}

pub(super) fn instance(c: &mut Context<'_>) -> Result<Id> {
    let inputs = [c.input(0)?, c.input(1)?, c.input(2)?];
    if c.builder.rank(inputs[0]) < 3 {
        return Err("its input has no spatial axes".to_owned());
    }
    let groups = small(c.builder.fixed_dim(inputs[0], 1)?, "the number of channels")?;
    c.add(Operation::GroupNorm { groups, epsilon: epsilon(c) }, &inputs)
}

pub(super) fn group(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    if c.builder.rank(x) < 2 {
        return Err("its input has no channels".to_owned());
    }
    let groups = c.int("num_groups", 0);
    let channels = c.builder.fixed_dim(x, 1)?;
    if groups <= 0 || channels % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels} channels"));
    }
    let mut inputs = vec![x];
    for number in [1, 2] {
        let id = c.input(number)?;
        let points = c.builder.points().len();
        inputs.push(if c.builder.fixed_dim(id, 0)? == channels {
            id
        } else {
            // Up to version 20 there was one factor for each group.
            let column = c.reshaped(id, &vec![vec![groups, 1]; points])?;
            let to = vec![Size::fixed(groups), Size::fixed(channels / groups)];
            let spread = c.add(Operation::Expand { to }, &[column])?;
            c.reshaped(spread, &vec![vec![channels]; points])?
        });
    }
    c.add(Operation::GroupNorm { groups: small(groups, "num_groups")?, epsilon: epsilon(c) }, &inputs)
}

/// Normalizes by the running statistics, which become constants, or in training by the batch; later results are the
/// running statistics.
pub(super) fn batch(c: &mut Context<'_>) -> Result<Vec<Id>> {
    let inputs = [c.input(0)?, c.input(1)?, c.input(2)?, c.input(3)?, c.input(4)?];
    if c.builder.rank(inputs[0]) < 2 {
        return Err("its input has no channels".to_owned());
    }
    let statistics = [inputs[3], inputs[4]];
    let momentum = match c.batch_norm {
        BatchNorm::Batch if c.builder.keep_running(statistics) => Some(momentum(c)?),
        BatchNorm::Batch => {
            c.warnings.push(Warning::FrozenBatchNorm(c.place.clone()));
            None
        }
        BatchNorm::Frozen => {
            if c.int("training_mode", 0) != 0 {
                c.warnings.push(Warning::FrozenBatchNorm(c.place.clone()));
            }
            None
        }
    };
    if momentum.is_none() {
        statistics.into_iter().for_each(|id| c.builder.freeze(id));
    }
    let y = c.add(Operation::BatchNorm { epsilon: epsilon(c), momentum }, &inputs)?;
    Ok(vec![y, inputs[3], inputs[4]])
}

/// The share of a batch in the running statistics. ONNX has the share of the statistics before, as a float near the
/// decimal number that was meant.
fn momentum(c: &Context<'_>) -> Result<f32> {
    let kept = c.float("momentum", 0.9);
    let share = (1e6 * (1.0 - f64::from(kept))).round() / 1e6;
    if share > 0.0 && share <= 1.0 {
        #[expect(clippy::cast_possible_truncation, reason = "one rounding to f32 is meant")]
        return Ok(share as f32);
    }
    Err(format!("its momentum is {kept}; from 0 to below 1 is right"))
}

pub(super) fn dropout(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let is_training = match c.optional(2).map(|id| c.builder.fixed(id)) {
        Some(Some(Data::Bool(values))) => values.first() == Some(&true),
        Some(_) => return Err("whether it drops elements must be fixed".to_owned()),
        // Before version 12 the file did not say.
        None => c.opset < 12,
    };
    let rate = match c.optional(1) {
        Some(id) => c.fixed_float(id, "the rate")?,
        None => c.float("ratio", 0.5),
    };
    if !is_training || rate == 0.0 {
        return Ok(x);
    }
    if !(0.0..1.0).contains(&rate) {
        return Err(format!("its rate is {rate}; from 0 to below 1 is right"));
    }
    match c.dropout {
        Dropout::Keep => c.add(Operation::Dropout { rate }, &[x]),
        Dropout::Drop => {
            c.warnings.push(Warning::DropoutRemoved(c.place.clone()));
            Ok(x)
        }
    }
}
