//! Constants, shapes and ranges.

use graph::{Element, Operation};

use super::context::{Context, Result, small};
use crate::build::Id;
use crate::data::{self, Data};

pub(super) fn constant(c: &mut Context<'_>) -> Result<Id> {
    let attribute = c.node.attributes.first().ok_or("its value is missing")?;
    let length = |count: usize| vec![i64::try_from(count).unwrap_or(0)];
    let (shape, data) = match attribute.name.as_str() {
        "value" => data::decode(attribute.tensor.clone().ok_or("its value is missing")?)?,
        "value_float" => (Vec::new(), Data::F32(vec![attribute.float])),
        "value_floats" => (length(attribute.floats.len()), Data::F32(attribute.floats.clone())),
        "value_int" => (Vec::new(), Data::I64(vec![attribute.integer])),
        "value_ints" => (length(attribute.integers.len()), Data::I64(attribute.integers.clone())),
        other => return Err(format!("constants by `{other}` are not supported")),
    };
    let name = c.node.outputs.first().cloned().unwrap_or_default();
    Ok(c.builder.constant(&name, shape, data))
}

pub(super) fn fill(c: &mut Context<'_>) -> Result<Id> {
    let shape = c.input(0)?;
    let value = match c.attribute("value").and_then(|attribute| attribute.tensor.clone()) {
        Some(tensor) => data::decode(tensor)?.1,
        None => Data::F32(vec![0.0]),
    };
    if value.len() != 1 {
        return Err("its value must be one number".to_owned());
    }
    let columns = c.builder.integers(shape)?;
    let shape = columns.iter().map(|column| c.builder.fit(column)).collect::<Result<_>>()?;
    let scalar = c.builder.constant("", Vec::new(), value);
    c.add(Operation::Fill { shape }, &[scalar])
}

pub(super) fn shape(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rank = i64::try_from(c.builder.rank(x)).map_err(|error| error.to_string())?;
    let position =
        |at: i64| usize::try_from(if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank)).unwrap_or(0);
    let (start, end) = (position(c.int("start", 0)), position(c.int("end", rank)));
    let part = |shape: &Vec<i64>| shape.get(start..end).unwrap_or_default().to_vec();
    let rows: Vec<Vec<i64>> = c.builder.shapes(x).iter().map(part).collect();
    let shapes = rows.iter().map(|row| vec![i64::try_from(row.len()).unwrap_or(0)]).collect();
    Ok(known(c, shapes, rows))
}

pub(super) fn size(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let rows: Vec<Vec<i64>> = c.builder.shapes(x).iter().map(|shape| vec![shape.iter().product()]).collect();
    Ok(known(c, vec![Vec::new(); rows.len()], rows))
}

/// Integers that are known at each point.
fn known(c: &mut Context<'_>, shapes: Vec<Vec<i64>>, rows: Vec<Vec<i64>>) -> Id {
    let mut data: Vec<Data> = rows.into_iter().map(Data::I64).collect();
    if data.windows(2).all(|pair| pair[0] == pair[1]) {
        data.truncate(1);
    }
    c.builder.computed(shapes, data)
}

pub(super) fn range(c: &mut Context<'_>) -> Result<Id> {
    let inputs = [c.input(0)?, c.input(1)?, c.input(2)?];
    let is_float = c.builder.element(inputs[0]) == Element::F32;
    let mut ends = Vec::new();
    for id in inputs {
        let column = whole(c, id)?;
        ends.push(column);
    }
    let step = ends[2][0];
    if ends[2].iter().any(|other| *other != step) || step == 0 {
        return Err("its step must be fixed and not 0".to_owned());
    }
    let (start, end) = (c.builder.fit(&ends[0])?, c.builder.fit(&ends[1])?);
    let y = c.add(Operation::Range { start, end, step: small(step, "its step")? }, &[])?;
    if is_float { c.cast(y, Element::F32) } else { Ok(y) }
}

/// A single number at each point, which must be whole.
fn whole(c: &Context<'_>, id: Id) -> Result<Vec<i64>> {
    (0..c.builder.points().len())
        .map(|point| {
            let known = c.builder.known_at(id, point).ok_or("its ends depend on the examples")?;
            if known.data.len() != 1 {
                return Err("its ends must be single numbers".to_owned());
            }
            let value = match known.data.cast(Element::I64) {
                Data::I64(values) => values.first().copied(),
                Data::F32(_) | Data::Bool(_) => None,
            };
            let value = value.ok_or("its ends must be single numbers")?;
            let back = Data::I64(vec![value]).cast(known.data.element());
            if known.data.pick(&[0]).is_same(&back) {
                Ok(value)
            } else {
                Err("a range of floats that are not whole is not supported".to_owned())
            }
        })
        .collect()
}
