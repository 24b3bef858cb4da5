//! Other sizes of spatial axes.

use graph::{Operation, Resampling, ResizeCoordinates};

use super::context::{Context, Result};
use crate::build::Id;

pub(super) fn resize(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let by = match c.text("mode", "nearest").as_str() {
        "nearest" => Resampling::Nearest,
        "linear" | "bilinear" => Resampling::Linear,
        other => return Err(format!("the mode `{other}` is not supported; nearest and linear are")),
    };
    if c.int("antialias", 0) != 0 || !matches!(c.text("keep_aspect_ratio_policy", "stretch").as_str(), "stretch" | "") {
        return Err("`antialias` and `keep_aspect_ratio_policy` are not supported".to_owned());
    }
    let (targets, exact) = targets(c, x)?;
    let rank = targets.len();
    if rank < 3 || (0..2).any(|axis| targets[axis] != c.builder.dims(x, axis)) {
        return Err("it changes the batch or the channels; only spatial axes may change".to_owned());
    }
    if (2..rank).all(|axis| targets[axis] == c.builder.dims(x, axis)) {
        return Ok(x);
    }
    let coordinates = coordinates(c, x, by, &targets)?;
    if !exact && coordinates != ResizeCoordinates::AlignCorners {
        return Err("its scales do not give whole sizes; give sizes instead".to_owned());
    }
    let to = targets[2..].iter().map(|sizes| c.builder.fit(sizes)).collect::<Result<_>>()?;
    c.add(Operation::Resize { to, by, coordinates }, &[x])
}

/// Sizes of all axes at all points, and whether they are exactly the scaled ones.
fn targets(c: &Context<'_>, x: Id) -> Result<(Vec<Vec<i64>>, bool)> {
    let rank = c.builder.rank(x);
    let mut targets: Vec<Vec<i64>> = (0..rank).map(|axis| c.builder.dims(x, axis)).collect();
    let axes: Vec<usize> = match c.ints("axes") {
        Some(axes) => axes.iter().map(|axis| c.axis(*axis, rank).map(|axis| axis as usize)).collect::<Result<_>>()?,
        None => (0..rank).collect(),
    };
    let is_old = c.node.operator == "Upsample" || c.opset < 11;
    if let Some(sizes) = c.optional(3).filter(|_| !is_old) {
        let columns = c.builder.integers(sizes)?;
        if columns.len() != axes.len() {
            return Err(format!("it has {} sizes for {} axes", columns.len(), axes.len()));
        }
        for (axis, column) in axes.into_iter().zip(columns) {
            targets[axis] = column;
        }
        return Ok((targets, true));
    }
    let scales = match (c.attribute("scales"), c.optional(if is_old { 1 } else { 2 })) {
        (Some(attribute), _) => attribute.floats.clone(),
        (None, Some(id)) => c.fixed_floats(id, "the scales")?,
        (None, None) => return Err("it has neither sizes nor scales".to_owned()),
    };
    if scales.len() != axes.len() {
        return Err(format!("it has {} scales for {} axes", scales.len(), axes.len()));
    }
    let mut exact = true;
    for (axis, scale) in axes.into_iter().zip(scales) {
        for size in &mut targets[axis] {
            #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^28")]
            let wanted = *size as f64 * f64::from(scale);
            exact &= (wanted - wanted.round()).abs() < 1e-4;
            #[expect(clippy::cast_possible_truncation, reason = "infinities and NaN become sizes that are rejected")]
            let floor = (wanted + 1e-4).floor() as i64;
            *size = floor;
        }
    }
    Ok((targets, exact))
}

fn coordinates(c: &Context<'_>, x: Id, by: Resampling, targets: &[Vec<i64>]) -> Result<ResizeCoordinates> {
    let is_old = c.node.operator == "Upsample" || c.opset < 11;
    let mode = c.text("coordinate_transformation_mode", if is_old { "asymmetric" } else { "half_pixel" });
    let factors = (2..targets.len()).flat_map(|axis| c.builder.dims(x, axis).into_iter().zip(&targets[axis]));
    let whole: Option<Vec<i64>> = factors.map(|(from, to)| (from > 0 && to % from == 0).then(|| to / from)).collect();
    let coordinates = match mode.as_str() {
        "asymmetric" => ResizeCoordinates::Asymmetric,
        "half_pixel" => ResizeCoordinates::HalfPixel,
        // The same, except that a single result is taken from the first position.
        "pytorch_half_pixel" if targets[2..].iter().flatten().all(|size| *size > 1) => ResizeCoordinates::HalfPixel,
        "align_corners" => ResizeCoordinates::AlignCorners,
        other => return Err(format!("coordinates `{other}` are not supported")),
    };
    if by == Resampling::Linear {
        return Ok(coordinates);
    }
    let rounding = c.text("nearest_mode", if is_old { "floor" } else { "round_prefer_floor" });
    match (rounding.as_str(), coordinates, whole) {
        ("floor", _, _) => Ok(coordinates),
        // Whole factors repeat each element, which is asymmetric and rounded down.
        ("round_prefer_floor", ResizeCoordinates::HalfPixel, Some(_)) => Ok(ResizeCoordinates::Asymmetric),
        ("round_prefer_floor", ResizeCoordinates::Asymmetric, Some(factors)) if factors.iter().all(|f| *f <= 2) => {
            Ok(ResizeCoordinates::Asymmetric)
        }
        (rounding, _, _) => Err(format!(
            "nearest elements by `{rounding}` and `{mode}` are not supported for this factor; `floor` and `asymmetric` are"
        )),
    }
}
