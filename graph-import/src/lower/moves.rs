//! Operators that rearrange elements.

use graph::{Operation, Padding, Size};

use super::context::{Context, Result, small};
use crate::build::{Id, broadcast};

/// A position beyond every end.
const FAR: i64 = i32::MAX as i64;
/// Largest block of pixels that becomes channels.
const MAX_BLOCK: i64 = 1 << 14;

pub(super) fn reshape(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let columns = match c.optional(1) {
        Some(shape) => c.builder.integers(shape)?,
        None => {
            let shape = c.ints("shape").ok_or("its shape is missing")?;
            shape.iter().map(|size| vec![*size; c.builder.points().len()]).collect()
        }
    };
    let keeps_zero = c.int("allowzero", 0) != 0;
    let mut shapes = Vec::new();
    for (point, from) in c.builder.shapes(x).iter().enumerate() {
        let mut to = Vec::new();
        for (axis, column) in columns.iter().enumerate() {
            let size = column[point];
            to.push(if size == 0 && !keeps_zero {
                *from.get(axis).ok_or_else(|| format!("size {axis} is that of the input, which has fewer axes"))?
            } else {
                size
            });
        }
        if let Some(rest) = to.iter().position(|size| *size == -1) {
            to[rest] = 1;
            let (all, known) = (crate::data::count(from)?, crate::data::count(&to)?);
            to[rest] = i64::try_from(all.checked_div(known).unwrap_or(0)).map_err(|error| error.to_string())?;
        }
        shapes.push(to);
    }
    c.reshaped(x, &shapes)
}

pub(super) fn flatten(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let axis = c.int("axis", 1);
    let axis = if axis == i64::try_from(rank).unwrap_or(0) { rank } else { c.axis(axis, rank)? as usize };
    let flat = |shape: &Vec<i64>| vec![shape[..axis].iter().product(), shape[axis..].iter().product()];
    let shapes: Vec<Vec<i64>> = c.builder.shapes(x).iter().map(flat).collect();
    c.reshaped(x, &shapes)
}

pub(super) fn squeeze(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let axes = match c.ints_of("axes", 1)? {
        Some(axes) => c.axes(&axes, rank)?,
        None => (0..rank)
            .filter(|axis| c.builder.dims(x, *axis).iter().all(|size| *size == 1))
            .filter_map(|axis| u32::try_from(axis).ok())
            .collect(),
    };
    for axis in &axes {
        if c.builder.dims(x, *axis as usize).iter().any(|size| *size != 1) {
            return Err(format!("axis {axis} is removed, but its size is not 1"));
        }
    }
    let is_kept = |axis: usize| !axes.iter().any(|removed| *removed as usize == axis);
    let keep =
        |shape: &Vec<i64>| shape.iter().enumerate().filter(|(axis, _)| is_kept(*axis)).map(|(_, size)| *size).collect();
    let shapes: Vec<Vec<i64>> = c.builder.shapes(x).iter().map(keep).collect();
    c.reshaped(x, &shapes)
}

pub(super) fn unsqueeze(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let axes = c.ints_of("axes", 1)?.ok_or("its axes are missing")?;
    let axes = c.axes(&axes, c.builder.rank(x) + axes.len())?;
    let mut shapes = c.builder.shapes(x).to_vec();
    for shape in &mut shapes {
        for axis in &axes {
            shape.insert(*axis as usize, 1);
        }
    }
    c.reshaped(x, &shapes)
}

pub(super) fn transpose(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let order: Vec<u32> = match c.ints("perm") {
        Some(order) => order.iter().map(|axis| c.axis(*axis, rank)).collect::<Result<_>>()?,
        None => (0..rank).rev().filter_map(|axis| u32::try_from(axis).ok()).collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.len() != rank || sorted.iter().zip(0..).any(|(axis, at)| *axis != at) {
        return Err(format!("{order:?} is no order of {rank} axes"));
    }
    c.transposed(x, &order)
}

/// The sizes that integers stand for.
fn sizes_of(c: &Context<'_>, id: Id) -> Result<Vec<Size>> {
    c.builder.integers(id)?.iter().map(|column| c.builder.fit(column)).collect()
}

pub(super) fn expand(c: &mut Context<'_>) -> Result<Id> {
    let (x, shape) = (c.input(0)?, c.input(1)?);
    let columns = c.builder.integers(shape)?;
    let mut changes = false;
    for (point, from) in c.builder.shapes(x).iter().enumerate() {
        let to: Vec<i64> = columns.iter().map(|column| column[point]).collect();
        changes |= broadcast(from, &to)? != *from;
    }
    if !changes {
        return Ok(x);
    }
    let to = sizes_of(c, shape)?;
    c.add(Operation::Expand { to }, &[x])
}

/// Repeats by broadcasting over new axes of size 1.
pub(super) fn tile(c: &mut Context<'_>) -> Result<Id> {
    let (x, repeats) = (c.input(0)?, c.input(1)?);
    let columns = c.builder.integers(repeats)?;
    let shapes = c.builder.shapes(x).to_vec();
    if columns.len() != shapes[0].len() {
        return Err("there must be one number of repeats for each axis".to_owned());
    }
    let interleaved: Vec<Vec<i64>> =
        shapes.iter().map(|shape| shape.iter().flat_map(|size| [1, *size]).collect()).collect();
    let mut to = Vec::new();
    for (axis, column) in columns.iter().enumerate() {
        to.push(c.builder.fit(column)?);
        to.push(c.builder.fit(&c.builder.dims(x, axis))?);
    }
    if columns.iter().all(|column| column.iter().all(|repeats| *repeats == 1)) {
        return Ok(x);
    }
    let y = c.reshaped(x, &interleaved)?;
    let y = c.add(Operation::Expand { to }, &[y])?;
    let whole: Vec<Vec<i64>> = shapes
        .iter()
        .enumerate()
        .map(|(point, shape)| {
            shape.iter().zip(&columns).map(|(size, column)| size.saturating_mul(column[point])).collect()
        })
        .collect();
    c.reshaped(y, &whole)
}

pub(super) fn concat(c: &mut Context<'_>) -> Result<Id> {
    let mut inputs = Vec::new();
    for number in 0..c.node.inputs.len() {
        inputs.push(c.input(number)?);
    }
    // An empty vector stands for nothing, whatever the rank of the others.
    let rank = inputs.iter().map(|id| c.builder.rank(*id)).max().unwrap_or(0);
    inputs.retain(|id| c.builder.rank(*id) == rank || c.builder.shapes(*id).iter().any(|shape| shape != &[0]));
    let axis = c.axis(c.int("axis", 0), rank)?;
    // So does a part without positions along the axis. One part stays if all are empty.
    let is_empty = |id: Id| c.builder.dims(id, axis as usize).iter().all(|size| *size == 0);
    let first = inputs.first().copied();
    inputs.retain(|id| c.builder.rank(*id) != rank || !is_empty(*id));
    inputs.extend(first.filter(|_| inputs.is_empty()));
    match inputs[..] {
        [one] => Ok(one),
        _ => c.add(Operation::Concat { axis }, &inputs),
    }
}

pub(super) fn split(c: &mut Context<'_>) -> Result<Vec<Id>> {
    let x = c.input(0)?;
    let axis = c.axis(c.int("axis", 0), c.builder.rank(x))?;
    let whole = c.builder.dims(x, axis as usize);
    let count = c.node.outputs.len();
    let columns = match (c.ints("split"), c.optional(1)) {
        (Some(sizes), _) => sizes.iter().map(|size| vec![*size; whole.len()]).collect(),
        (None, Some(id)) => c.builder.integers(id)?,
        (None, None) => {
            let parts = i64::try_from(count.max(1)).map_err(|error| error.to_string())?;
            let size = |number: i64, whole: &i64| {
                let part = (whole + parts - 1) / parts;
                (whole - number * part).clamp(0, part)
            };
            (0..parts).map(|number| whole.iter().map(|whole| size(number, whole)).collect()).collect::<Vec<_>>()
        }
    };
    if columns.len() < count {
        return Err(format!("it has {} sizes for {count} results", columns.len()));
    }
    let mut start = vec![0_i64; whole.len()];
    let mut results = Vec::new();
    for column in columns {
        let end: Vec<i64> = start.iter().zip(&column).map(|(start, size)| start.saturating_add(*size)).collect();
        if column.iter().any(|size| *size < 0) || end.iter().zip(&whole).any(|(end, whole)| end > whole) {
            return Err(format!("its parts do not fit the size {whole:?} of axis {axis}"));
        }
        let (from, to) = (c.builder.fit(&start)?, c.builder.fit(&end)?);
        results.push(c.add(Operation::Slice { axis, start: from, end: to, step: 1 }, &[x])?);
        start = end;
    }
    Ok(results)
}

pub(super) fn slice(c: &mut Context<'_>) -> Result<Id> {
    let mut x = c.input(0)?;
    let (rank, points) = (c.builder.rank(x), c.builder.points().len());
    let list = |name: &str, number: usize| -> Result<Option<Vec<Vec<i64>>>> {
        match (c.ints(name), c.optional(number)) {
            (Some(values), _) => Ok(Some(values.iter().map(|value| vec![*value; points]).collect())),
            (None, Some(id)) => c.builder.integers(id).map(Some),
            (None, None) => Ok(None),
        }
    };
    let starts = list("starts", 1)?.ok_or("its starts are missing")?;
    let ends = list("ends", 2)?.ok_or("its ends are missing")?;
    let axes = c.ints_of("axes", 3)?;
    let steps = c.optional(4).map(|id| c.fixed_ints(id, "steps")).transpose()?;
    if starts.len() != ends.len() || axes.as_ref().is_some_and(|axes| axes.len() != starts.len()) {
        return Err("it has not as many starts as ends and axes".to_owned());
    }
    for (number, (start, end)) in starts.iter().zip(&ends).enumerate() {
        let axis = axes.as_ref().map_or(i64::try_from(number).unwrap_or(0), |axes| axes[number]);
        let axis = c.axis(axis, rank)?;
        let step = steps.as_ref().map_or(Some(1), |steps| steps.get(number).copied()).ok_or("a step is missing")?;
        x = slice_one(c, x, axis, (start, end), small(step.clamp(-FAR, FAR), "a step")?)?;
    }
    Ok(x)
}

fn slice_one(c: &mut Context<'_>, x: Id, axis: u32, (start, end): (&[i64], &[i64]), step: i32) -> Result<Id> {
    if step == 0 {
        return Err("its step is 0".to_owned());
    }
    let whole = c.builder.dims(x, axis as usize);
    let is_whole = step == 1
        && start.iter().zip(&whole).all(|(start, whole)| *start == 0 || *start <= -whole)
        && end.iter().zip(&whole).all(|(end, whole)| end >= whole);
    if is_whole {
        return Ok(x);
    }
    // A position outside is the same as one at the border.
    let near =
        |positions: &[i64]| -> Vec<i64> { positions.iter().map(|position| (*position).clamp(-FAR, FAR)).collect() };
    let past = |positions: &[i64]| positions.iter().zip(&whole).all(|(position, whole)| position >= whole);
    let end = if past(end) { vec![FAR; whole.len()] } else { near(end) };
    let (start, end) = (c.builder.fit(&near(start))?, c.builder.fit(&end)?);
    c.add(Operation::Slice { axis, start, end, step }, &[x])
}

pub(super) fn pad(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = c.builder.rank(x);
    let amounts = c.ints_of("pads", 1)?.ok_or("its pads are missing")?;
    let axes = match c.optional(3) {
        Some(axes) => c.fixed_ints(axes, "axes")?.iter().map(|axis| c.axis(*axis, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).filter_map(|axis| u32::try_from(axis).ok()).collect(),
    };
    if amounts.len() != 2 * axes.len() {
        return Err(format!("it has {} pads for {} axes", amounts.len(), axes.len()));
    }
    let mut pads = vec![(0, 0); rank];
    for (number, axis) in axes.iter().enumerate() {
        pads[*axis as usize] = (small(amounts[number], "a pad")?, small(amounts[number + axes.len()], "a pad")?);
    }
    if pads.iter().all(|pad| *pad == (0, 0)) {
        return Ok(x);
    }
    let with = match c.text("mode", "constant").as_str() {
        "constant" | "" => Padding::Constant(match c.optional(2) {
            Some(id) => c.fixed_float(id, "the padding")?,
            None => c.float("value", 0.0),
        }),
        "edge" => Padding::Edge,
        "reflect" => Padding::Reflect,
        other => return Err(format!("the mode `{other}` is not supported; constant, edge and reflect are")),
    };
    c.add(Operation::Pad { pads, with }, &[x])
}

pub(super) fn depth_space(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let block = c.int("blocksize", 0);
    if c.builder.rank(x) != 4 || !(1..=MAX_BLOCK).contains(&block) {
        return Err(format!("it needs four axes and a block size from 1 to {MAX_BLOCK}, not {block}"));
    }
    let is_depth = c.node.operator == "DepthToSpace";
    let column_row = c.text("mode", "DCR") == "CRD";
    let split = |shape: &Vec<i64>| match (is_depth, column_row) {
        (true, false) => vec![shape[0], block, block, shape[1] / (block * block), shape[2], shape[3]],
        (true, true) => vec![shape[0], shape[1] / (block * block), block, block, shape[2], shape[3]],
        (false, _) => vec![shape[0], shape[1], shape[2] / block, block, shape[3] / block, block],
    };
    let order: [u32; 6] = match (is_depth, column_row) {
        (true, false) => [0, 3, 4, 1, 5, 2],
        (true, true) => [0, 1, 4, 2, 5, 3],
        (false, _) => [0, 3, 5, 1, 2, 4],
    };
    let joined = |shape: &Vec<i64>| {
        if is_depth {
            vec![shape[0], shape[1] / (block * block), shape[2] * block, shape[3] * block]
        } else {
            vec![shape[0], shape[1] * block * block, shape[2] / block, shape[3] / block]
        }
    };
    let shapes = c.builder.shapes(x).to_vec();
    let y = c.reshaped(x, &shapes.iter().map(split).collect::<Vec<_>>())?;
    let y = c.transposed(y, &order)?;
    c.reshaped(y, &shapes.iter().map(joined).collect::<Vec<_>>())
}
