//! Operations that rearrange elements.

use graph::{Padding, Size};

use super::error::ExportError;
use super::names::Names;
use super::writer::{Writer, fixed, integer, integers, text};

type Result = std::result::Result<(), ExportError>;

pub(super) fn reshape(w: &mut Writer<'_>, to: &[Option<Size>], names: &Names) -> Result {
    let mut to = to.to_vec();
    // One size that is not fixed is what the others leave.
    if to.iter().filter(|size| size.and_then(fixed).is_none()).count() == 1 {
        to.iter_mut().filter(|size| size.and_then(fixed).is_none()).for_each(|size| *size = None);
    }
    let shape = w.sizes(&to)?;
    w.node_to("Reshape", &[names.input(0), &shape], &names.output, vec![]);
    Ok(())
}

pub(super) fn transpose(w: &mut Writer<'_>, order: &[u32], names: &Names) {
    match order {
        [] => w.node_to("Identity", &names.all(), &names.output, vec![]),
        _ => {
            let order = order.iter().map(|&axis| axis.into()).collect();
            w.node_to("Transpose", &names.all(), &names.output, vec![integers("perm", order)]);
        }
    }
}

pub(super) fn expand(w: &mut Writer<'_>, to: &[Size], names: &Names) -> Result {
    let shape = w.sizes(&known(to))?;
    w.node_to("Expand", &[names.input(0), &shape], &names.output, vec![]);
    Ok(())
}

fn known(sizes: &[Size]) -> Vec<Option<Size>> {
    sizes.iter().copied().map(Some).collect()
}

pub(super) fn slice(w: &mut Writer<'_>, axis: u32, [start, end]: [Size; 2], step: i32, names: &Names) -> Result {
    let (start, end) = (w.size(start)?, w.size(end)?);
    let (axis, step) = (w.vector(&[axis.into()]), w.vector(&[step.into()]));
    w.node_to("Slice", &[names.input(0), &start, &end, &axis, &step], &names.output, vec![]);
    Ok(())
}

pub(super) fn pad(w: &mut Writer<'_>, pads: &[(i32, i32)], with: Padding, names: &Names) {
    let (before, after) = (pads.iter().map(|pad| pad.0.into()), pads.iter().map(|pad| pad.1.into()));
    let amounts = w.vector(&before.chain(after).collect::<Vec<i64>>());
    let (mode, value) = match with {
        Padding::Constant(value) => ("constant", w.float(value)),
        Padding::Edge => ("edge", String::new()),
        Padding::Reflect => ("reflect", String::new()),
    };
    let all = [names.input(0), &amounts, &value];
    let given = if value.is_empty() { &all[..2] } else { &all[..] };
    w.node_to("Pad", given, &names.output, vec![text("mode", mode)]);
}

pub(super) fn range(w: &mut Writer<'_>, [start, end]: [Size; 2], step: i32, names: &Names) -> Result {
    let (start, end, step) = (w.scalar(start)?, w.scalar(end)?, w.integer(step.into()));
    w.node_to("Range", &[&start, &end, &step], &names.output, vec![]);
    Ok(())
}

/// A single number, which may have axes of size 1, in every place of a shape.
pub(super) fn fill(w: &mut Writer<'_>, shape: &[Size], names: &Names) -> Result {
    let none = w.vector(&[]);
    let value = w.node("Reshape", &[names.input(0), &none], vec![]);
    let shape = w.sizes(&known(shape))?;
    w.node_to("Expand", &[&value, &shape], &names.output, vec![]);
    Ok(())
}

pub(super) fn triangle(w: &mut Writer<'_>, upper: bool, k: i32, names: &Names) {
    let k = w.integer(k.into());
    w.node_to("Trilu", &[names.input(0), &k], &names.output, vec![integer("upper", i64::from(upper))]);
}
