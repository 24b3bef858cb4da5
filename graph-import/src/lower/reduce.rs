//! Reductions over axes.

use graph::{Activation, Arithmetic, Element, Operation, Reduction};

use super::context::{Context, Result};
use crate::build::Id;

pub(super) fn global(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let axes = (2..c.builder.rank(x)).filter_map(|axis| u32::try_from(axis).ok()).collect();
    let by = if c.node.operator == "GlobalMaxPool" { Reduction::Max } else { Reduction::Mean };
    c.add(Operation::Reduce { by, axes, keep: true }, &[x])
}

pub(super) fn reduce(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let given = c.ints_of("axes", 1)?.filter(|axes| !axes.is_empty());
    if given.is_none() && c.int("noop_with_empty_axes", 0) != 0 {
        return Ok(x);
    }
    let axes = match given {
        Some(axes) => c.axes(&axes, rank)?,
        None => (0..rank).filter_map(|axis| u32::try_from(axis).ok()).collect(),
    };
    let keep = c.int("keepdims", 1) != 0;
    let operator = c.node.operator.clone();
    if operator == "ReduceLogSumExp" {
        return log_sum_exp(c, x, axes, keep);
    }
    let (x, by) = match operator.as_str() {
        "ReduceMean" => (x, Reduction::Mean),
        "ReduceMax" => (x, Reduction::Max),
        "ReduceMin" => (x, Reduction::Min),
        "ReduceProd" => (x, Reduction::Product),
        "ReduceL2" => (x, Reduction::Norm),
        "ReduceL1" => (c.activate(Activation::Abs, x)?, Reduction::Sum),
        "ReduceSumSquare" => (c.arithmetic(Arithmetic::Mul, x, x)?, Reduction::Sum),
        _ => (x, Reduction::Sum),
    };
    let sum = reduced(c, x, by, axes, keep)?;
    if operator == "ReduceLogSum" { c.activate(Activation::Log, sum) } else { Ok(sum) }
}

/// Reduces floats; integers at import if they are known, else as floats.
fn reduced(c: &mut Context<'_>, x: Id, by: Reduction, axes: Vec<u32>, keep: bool) -> Result<Id> {
    let element = c.builder.element(x);
    if element == Element::F32 {
        return c.add(Operation::Reduce { by, axes, keep }, &[x]);
    }
    if element == Element::I64
        && let Some(known) = c.builder.reduce(x, by, &axes)?
    {
        let is_reduced = |axis: usize| axes.iter().any(|reduced| *reduced as usize == axis);
        let shape = |shape: &Vec<i64>| {
            let kept = shape.iter().enumerate().filter(|(axis, _)| keep || !is_reduced(*axis));
            kept.map(|(axis, size)| if is_reduced(axis) { 1 } else { *size }).collect()
        };
        let shapes = c.builder.shapes(x).iter().map(shape).collect();
        return Ok(c.builder.computed(shapes, known));
    }
    let floats = c.cast(x, Element::F32)?;
    let result = c.add(Operation::Reduce { by, axes, keep }, &[floats])?;
    c.cast(result, Element::I64)
}

fn log_sum_exp(c: &mut Context<'_>, x: Id, axes: Vec<u32>, keep: bool) -> Result<Id> {
    let max = c.add(Operation::Reduce { by: Reduction::Max, axes: axes.clone(), keep: true }, &[x])?;
    let y = c.arithmetic(Arithmetic::Sub, x, max)?;
    let y = c.activate(Activation::Exp, y)?;
    let y = c.add(Operation::Reduce { by: Reduction::Sum, axes: axes.clone(), keep: true }, &[y])?;
    let y = c.activate(Activation::Log, y)?;
    let y = c.arithmetic(Arithmetic::Add, y, max)?;
    // The largest of one element is that element without its axis.
    if keep { Ok(y) } else { c.add(Operation::Reduce { by: Reduction::Sum, axes, keep }, &[y]) }
}

pub(super) fn arg(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    if c.int("select_last_index", 0) != 0 {
        return Err("`select_last_index=1` is not supported".to_owned());
    }
    let axis = c.axis(c.int("axis", 0), c.builder.rank(x))?;
    let mut shapes = c.builder.shapes(x).to_vec();
    let x = if c.node.operator == "ArgMin" { c.activate(Activation::Neg, x)? } else { x };
    let y = c.add(Operation::ArgMax { axis }, &[x])?;
    if c.int("keepdims", 1) == 0 {
        return Ok(y);
    }
    for shape in &mut shapes {
        shape[axis as usize] = 1;
    }
    c.reshaped(y, &shapes)
}
