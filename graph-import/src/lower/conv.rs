//! Convolutions and pooling.

use graph::{Convolution, Operation, Pool, PoolKind};

use super::context::{Context, Result, small};
use crate::build::Id;

/// Positions before and after each spatial axis.
type Pads = Vec<(u32, u32)>;

pub(super) fn conv(c: &mut Context<'_>) -> Result<Id> {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let (mut of, kernel) = convolution(c, x, w)?;
    of.pads = pads(c, x, &kernel, &of.strides, &of.dilations)?;
    let mut inputs = vec![x, w];
    inputs.extend(c.optional(2));
    c.add(Operation::Conv(of), &inputs)
}

/// Attributes but the pads, and sizes of the kernel.
fn convolution(c: &Context<'_>, x: Id, w: Id) -> Result<(Convolution, Vec<u32>)> {
    let axes = spatial_axes(c, x)?;
    if c.builder.rank(w) != axes + 2 {
        return Err(format!("its weights have {} axes, its input {}", c.builder.rank(w), axes + 2));
    }
    let kernel = (2..axes + 2).map(|axis| small(c.builder.fixed_dim(w, axis)?, "a size of the kernel"));
    let kernel = positive(kernel.collect::<Result<_>>()?, "kernel_shape")?;
    let of = Convolution {
        strides: positive(c.spatial("strides", axes, 1)?, "strides")?,
        pads: Vec::new(),
        dilations: positive(c.spatial("dilations", axes, 1)?, "dilations")?,
        groups: small(c.int("group", 1), "group")?,
    };
    Ok((of, kernel))
}

fn positive(values: Vec<u32>, name: &str) -> Result<Vec<u32>> {
    if values.contains(&0) {
        Err(format!("its `{name}` {values:?} contains 0; 1 or more is right"))
    } else {
        Ok(values)
    }
}

fn spatial_axes(c: &Context<'_>, x: Id) -> Result<usize> {
    match c.builder.rank(x) {
        rank @ (3 | 4) => Ok(rank - 2),
        rank => Err(format!("its input has {rank} axes; one or two spatial axes are supported")),
    }
}

/// Explicit pads, or those that `auto_pad` stands for.
fn pads(c: &Context<'_>, x: Id, kernel: &[u32], strides: &[u32], dilations: &[u32]) -> Result<Pads> {
    let axes = kernel.len();
    let mode = c.text("auto_pad", "NOTSET");
    match mode.as_str() {
        "NOTSET" | "" => {
            let Some(pads) = c.ints("pads") else { return Ok(vec![(0, 0); axes]) };
            if pads.len() != 2 * axes {
                return Err(format!("its attribute `pads` has {} numbers for {axes} spatial axes", pads.len()));
            }
            (0..axes).map(|axis| Ok((small(pads[axis], "pads")?, small(pads[axis + axes], "pads")?))).collect()
        }
        "VALID" => Ok(vec![(0, 0); axes]),
        "SAME_UPPER" | "SAME_LOWER" => (0..axes)
            .map(|axis| {
                let total = |size: i64| {
                    let (stride, window) =
                        (i64::from(strides[axis]), i64::from(kernel[axis] - 1) * i64::from(dilations[axis]) + 1);
                    (((size + stride - 1) / stride - 1) * stride + window - size).max(0)
                };
                let totals: Vec<i64> = c.builder.dims(x, axis + 2).into_iter().map(total).collect();
                if totals.iter().any(|total| *total != totals[0]) {
                    return Err("padding by `auto_pad` depends on the length; give explicit pads".to_owned());
                }
                let (less, more) = (small(totals[0] / 2, "pads")?, small(totals[0] - totals[0] / 2, "pads")?);
                Ok(if mode == "SAME_UPPER" { (less, more) } else { (more, less) })
            })
            .collect(),
        other => Err(format!("`auto_pad={other}` is not known")),
    }
}

pub(super) fn conv_transpose(c: &mut Context<'_>) -> Result<Id> {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let (mut of, kernel) = convolution(c, x, w)?;
    let axes = kernel.len();
    let output_padding = c.spatial("output_padding", axes, 0)?;
    let automatic = c.text("auto_pad", "NOTSET");
    let wanted = c.ints("output_shape").map(|shape| shape[shape.len().saturating_sub(axes)..].to_vec());
    of.pads = if wanted.is_none() && !automatic.starts_with("SAME") {
        pads(c, x, &kernel, &of.strides, &of.dilations)?
    } else {
        let mut pads = Vec::new();
        for axis in 0..axes {
            let (size, stride) = (c.builder.fixed_dim(x, axis + 2)?, i64::from(of.strides[axis]));
            let window = i64::from(kernel[axis] - 1) * i64::from(of.dilations[axis]) + 1;
            let target = wanted.as_ref().and_then(|wanted| wanted.get(axis).copied()).unwrap_or(size * stride);
            let whole = (size - 1) * stride + i64::from(output_padding[axis]) + window;
            let total =
                whole.checked_sub(target).ok_or_else(|| format!("its `output_shape` {target} is out of range"))?;
            let (less, more) = (small(total / 2, "padding")?, small(total - total / 2, "padding")?);
            pads.push(if automatic == "SAME_UPPER" { (less, more) } else { (more, less) });
        }
        pads
    };
    let mut inputs = vec![x, w];
    inputs.extend(c.optional(2));
    c.add(Operation::ConvTranspose { of, output_padding }, &inputs)
}

pub(super) fn pool(c: &mut Context<'_>) -> Result<Id> {
    let x = c.input(0)?;
    let axes = spatial_axes(c, x)?;
    if c.spatial("dilations", axes, 1)?.iter().any(|dilation| *dilation != 1) {
        return Err("dilated pooling is not supported".to_owned());
    }
    if c.attribute("kernel_shape").is_none() {
        return Err("its attribute `kernel_shape` is missing".to_owned());
    }
    let kernel = positive(c.spatial("kernel_shape", axes, 1)?, "kernel_shape")?;
    let strides = positive(c.spatial("strides", axes, 1)?, "strides")?;
    let pads = pads(c, x, &kernel, &strides, &vec![1; axes])?;
    let by = match (c.node.operator.as_str(), c.int("count_include_pad", 0)) {
        ("MaxPool", _) => PoolKind::Max,
        (_, 0) => PoolKind::Mean,
        _ => PoolKind::MeanWithPadding,
    };
    c.add(Operation::Pool(Pool { by, kernel, strides, pads, ceil: c.int("ceil_mode", 0) != 0 }), &[x])
}
