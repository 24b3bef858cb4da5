//! Operators that choose elements by integers.

use graph::{Arithmetic, Comparison, Element, Operation, Size};

use super::context::{Context, Result, small};
use crate::build::Id;
use crate::data::Data;

pub(super) fn gather(c: &mut Context<'_>) -> Result<Id> {
    let (x, positions) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int("axis", 0), c.builder.rank(x))?;
    c.add(Operation::Gather { axis }, &[x, positions])
}

pub(super) fn gather_elements(c: &mut Context<'_>) -> Result<Id> {
    let (x, positions) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int("axis", 0), c.builder.rank(x))?;
    c.add(Operation::GatherElements { axis }, &[x, positions])
}

/// Several positions for each element become one in the joined axes.
pub(super) fn gather_nd(c: &mut Context<'_>) -> Result<Id> {
    let (x, positions) = (c.input(0)?, c.input(1)?);
    if c.int("batch_dims", 0) != 0 {
        return Err("`batch_dims` is not supported".to_owned());
    }
    let last = c.builder.rank(positions).checked_sub(1).ok_or("its positions are a single number")?;
    let depth: usize = small(c.builder.fixed_dim(positions, last)?, "the number of positions")?;
    if depth == 0 || depth > c.builder.rank(x) {
        return Err(format!("it takes {depth} positions in {} axes", c.builder.rank(x)));
    }
    let axis = small(i64::try_from(last).unwrap_or(0), "an axis")?;
    let mut joined: Option<Id> = None;
    for number in 0..depth {
        let which = c.builder.integer(i64::try_from(number).unwrap_or(0));
        let part = c.add(Operation::Gather { axis }, &[positions, which])?;
        let size = size_of(c, x, number);
        let zero = c.builder.integer(0);
        // A negative position counts from the end, before axes are joined.
        let (is_negative, from_end) =
            (c.compare(Comparison::Less, part, zero)?, c.arithmetic(Arithmetic::Add, part, size)?);
        let part = c.add(Operation::Where, &[is_negative, from_end, part])?;
        joined = Some(match joined {
            None => part,
            Some(so_far) => {
                let so_far = c.arithmetic(Arithmetic::Mul, so_far, size)?;
                c.arithmetic(Arithmetic::Add, so_far, part)?
            }
        });
    }
    let join = |shape: &Vec<i64>| [&[shape[..depth].iter().product::<i64>()], &shape[depth..]].concat();
    let shapes: Vec<Vec<i64>> = c.builder.shapes(x).iter().map(join).collect();
    let flat = c.reshaped(x, &shapes)?;
    let joined = joined.ok_or("it takes no positions")?;
    c.add(Operation::Gather { axis: 0 }, &[flat, joined])
}

/// The size of an axis as a single integer.
fn size_of(c: &mut Context<'_>, x: Id, axis: usize) -> Id {
    let sizes = c.builder.dims(x, axis);
    let data = sizes.iter().map(|size| Data::I64(vec![*size])).collect();
    c.builder.computed(vec![Vec::new(); sizes.len()], data)
}

pub(super) fn one_hot(c: &mut Context<'_>) -> Result<Id> {
    let (positions, depth, values) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let depth = c.fixed_ints(depth, "the depth")?.first().copied().ok_or("its depth is missing")?;
    let rank = c.builder.rank(positions);
    let axis = c.axis(c.int("axis", -1), rank + 1)? as usize;
    let mut shapes = c.builder.shapes(positions).to_vec();
    for shape in &mut shapes {
        shape.insert(axis, 1);
    }
    let (zero, size) = (c.builder.integer(0), c.builder.integer(depth));
    let positions = c.cast(positions, Element::I64)?;
    let (is_negative, from_end) =
        (c.compare(Comparison::Less, positions, zero)?, c.arithmetic(Arithmetic::Add, positions, size)?);
    let positions = c.add(Operation::Where, &[is_negative, from_end, positions])?;
    let positions = c.reshaped(positions, &shapes)?;
    let classes = c.add(Operation::Range { start: Size::fixed(0), end: Size::fixed(depth), step: 1 }, &[])?;
    let mut row = vec![1; rank + 1];
    row[axis] = depth;
    let classes = c.reshaped(classes, &vec![row; shapes.len()])?;
    let is_class = c.compare(Comparison::Equal, positions, classes)?;
    let choose = |c: &mut Context<'_>, number: i64| {
        let number = c.builder.integer(number);
        c.add(Operation::Gather { axis: 0 }, &[values, number])
    };
    let (off, on) = (choose(c, 0)?, choose(c, 1)?);
    c.add(Operation::Where, &[is_class, on, off])
}

pub(super) fn triangle(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    if c.builder.rank(x) < 2 {
        return Err("its input is no matrix".to_owned());
    }
    let k = match c.optional(1) {
        Some(id) => c.fixed_ints(id, "the diagonal")?.first().copied().unwrap_or(0),
        None => 0,
    };
    c.add(Operation::Triangle { upper: c.int("upper", 1) != 0, k: small(k, "the diagonal")? }, &[x])
}

pub(super) fn cumulate(c: &mut Context<'_>) -> Result<Id> {
    let (mut x, axis) = (c.input(0)?, c.input(1)?);
    let axis = c.fixed_ints(axis, "the axis")?.first().copied().ok_or("its axis is missing")?;
    let axis = c.axis(axis, c.builder.rank(x))?;
    let reversed = Operation::Slice { axis, start: Size::fixed(-1), end: Size::fixed(-i64::from(i32::MAX)), step: -1 };
    let is_reversed = c.int("reverse", 0) != 0;
    if is_reversed {
        x = c.add(reversed.clone(), &[x])?;
    }
    let mut sum = c.add(Operation::CumSum { axis }, &[x])?;
    if c.int("exclusive", 0) != 0 {
        sum = c.arithmetic(Arithmetic::Sub, sum, x)?;
    }
    if is_reversed { c.add(reversed, &[sum]) } else { Ok(sum) }
}
