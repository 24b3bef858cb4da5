//! Shapes of results at one point.

use graph::{Convolution, Element, Operation, Point, Pool, Size};

type Shape = Vec<i64>;
type Result<T> = std::result::Result<T, String>;

/// Type of the first result's elements.
pub(crate) fn element(operation: &Operation, inputs: &[Element]) -> Element {
    let first = inputs.first().copied().unwrap_or(Element::F32);
    match operation {
        Operation::Comparison(_) | Operation::Logic(_) => Element::Bool,
        Operation::Where => inputs.get(1).copied().unwrap_or(Element::F32),
        Operation::Cast { to } => *to,
        Operation::ArgMax { .. } | Operation::Range { .. } => Element::I64,
        Operation::Activation(_)
        | Operation::Arithmetic(_)
        | Operation::MatMul
        | Operation::Gemm { .. }
        | Operation::Conv(_)
        | Operation::ConvTranspose { .. }
        | Operation::Pool(_)
        | Operation::Reduce { .. }
        | Operation::Softmax { .. }
        | Operation::LogSoftmax { .. }
        | Operation::LayerNorm { .. }
        | Operation::GroupNorm { .. }
        | Operation::BatchNorm { .. }
        | Operation::Dropout { .. }
        | Operation::Reshape { .. }
        | Operation::Transpose { .. }
        | Operation::Expand { .. }
        | Operation::Concat { .. }
        | Operation::Slice { .. }
        | Operation::Gather { .. }
        | Operation::GatherElements { .. }
        | Operation::Pad { .. }
        | Operation::Resize { .. }
        | Operation::Fill { .. }
        | Operation::Triangle { .. }
        | Operation::CumSum { .. }
        | Operation::Recurrent(_) => first,
    }
}

/// Shapes of the results of an operation for inputs of these shapes.
pub(crate) fn infer(operation: &Operation, inputs: &[&[i64]], point: Point) -> Result<Vec<Shape>> {
    let first = || inputs.first().copied().ok_or_else(|| "an input is missing".to_owned());
    let second = || inputs.get(1).copied().ok_or_else(|| "the second input is missing".to_owned());
    let one = match operation {
        Operation::Activation(_)
        | Operation::Cast { .. }
        | Operation::Softmax { .. }
        | Operation::LogSoftmax { .. }
        | Operation::LayerNorm { .. }
        | Operation::GroupNorm { .. }
        | Operation::BatchNorm { .. }
        | Operation::Dropout { .. }
        | Operation::Triangle { .. }
        | Operation::CumSum { .. } => first()?.to_vec(),
        Operation::Arithmetic(_) | Operation::Comparison(_) | Operation::Logic(_) | Operation::Where => {
            inputs[1..].iter().try_fold(first()?.to_vec(), |shape, other| broadcast(&shape, other))?
        }
        Operation::MatMul => matmul(first()?, second()?)?,
        Operation::Gemm { transpose_a, transpose_b, .. } => gemm(first()?, second()?, *transpose_a, *transpose_b)?,
        Operation::Conv(of) => conv(first()?, second()?, of)?,
        Operation::ConvTranspose { of, output_padding } => conv_transpose(first()?, second()?, of, output_padding)?,
        Operation::Pool(pool) => pooled(first()?, pool)?,
        Operation::Reduce { axes, keep, .. } => reduce(first()?, axes, *keep),
        Operation::ArgMax { axis } => reduce(first()?, &[*axis], false),
        Operation::Reshape { to } => reshape(first()?, to, point)?,
        Operation::Transpose { order } => {
            let shape = first()?;
            order.iter().map(|axis| dim(shape, *axis)).collect::<Result<_>>()?
        }
        Operation::Expand { to } => broadcast(first()?, &sizes(to, point)?)?,
        Operation::Concat { axis } => concat(inputs, *axis)?,
        Operation::Slice { axis, start, end, step } => {
            let mut shape = first()?.to_vec();
            let size = dim(&shape, *axis)?;
            shape[*axis as usize] = slice_count(size, at(*start, point)?, at(*end, point)?, *step).1;
            shape
        }
        Operation::Gather { axis } => {
            let (shape, positions) = (first()?, second()?);
            dim(shape, *axis)?;
            let axis = *axis as usize;
            [&shape[..axis], positions, &shape[axis + 1..]].concat()
        }
        Operation::GatherElements { .. } => second()?.to_vec(),
        Operation::Pad { pads, .. } => first()?
            .iter()
            .zip(pads)
            .map(|(size, (before, after))| size + i64::from(*before) + i64::from(*after))
            .collect(),
        Operation::Resize { to, .. } => [&first()?[..2], &sizes(to, point)?].concat(),
        Operation::Range { start, end, step } => {
            let (start, end) = (i128::from(at(*start, point)?), i128::from(at(*end, point)?));
            let (distance, step) = (end - start, i128::from(*step));
            let count = (distance + step - step.signum()).checked_div(step).ok_or("a range has the step 0")?;
            vec![i64::try_from(count.max(0)).map_err(|_| format!("a range has {count} integers, which is too many"))?]
        }
        Operation::Fill { shape } => sizes(shape, point)?,
        Operation::Recurrent(recurrence) => return Ok(recurrent(first()?, second()?, recurrence, operation.outputs())),
    };
    match one.iter().find(|size| **size < 0) {
        Some(_) => Err(format!("the result would have the shape {one:?}")),
        None => Ok(vec![one]),
    }
}

fn at(size: Size, point: Point) -> Result<i64> {
    size.at(point).ok_or_else(|| "a size overflows".to_owned())
}

fn sizes(sizes: &[Size], point: Point) -> Result<Shape> {
    sizes.iter().map(|size| at(*size, point)).collect()
}

fn dim(shape: &[i64], axis: u32) -> Result<i64> {
    shape.get(axis as usize).copied().ok_or_else(|| format!("axis {axis} is outside of shape {shape:?}"))
}

/// The shape to which two shapes broadcast.
pub(crate) fn broadcast(a: &[i64], b: &[i64]) -> Result<Shape> {
    let rank = a.len().max(b.len());
    let size = |shape: &[i64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (size(a, axis), size(b, axis)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) => Ok(b),
            _ => Err(format!("shapes {a:?} and {b:?} do not broadcast")),
        })
        .collect()
}

fn matmul(a: &[i64], b: &[i64]) -> Result<Shape> {
    let wrong = || format!("matrices of shapes {a:?} and {b:?} cannot be multiplied");
    if a.is_empty() || b.is_empty() {
        return Err(wrong());
    }
    let row = if a.len() == 1 { vec![1, a[0]] } else { a.to_vec() };
    let column = if b.len() == 1 { vec![b[0], 1] } else { b.to_vec() };
    let ((batch_a, [m, k]), (batch_b, [l, n])) =
        (row.split_last_chunk::<2>().ok_or_else(wrong)?, column.split_last_chunk::<2>().ok_or_else(wrong)?);
    if k != l {
        return Err(wrong());
    }
    let mut shape = broadcast(batch_a, batch_b)?;
    shape.extend((a.len() > 1).then_some(*m));
    shape.extend((b.len() > 1).then_some(*n));
    Ok(shape)
}

fn gemm(a: &[i64], b: &[i64], transpose_a: bool, transpose_b: bool) -> Result<Shape> {
    let wrong = || format!("matrices of shapes {a:?} and {b:?} cannot be multiplied");
    let (&[a0, a1], &[b0, b1]) = (a, b) else { return Err(wrong()) };
    let (m, k) = if transpose_a { (a1, a0) } else { (a0, a1) };
    let (l, n) = if transpose_b { (b1, b0) } else { (b0, b1) };
    if k == l { Ok(vec![m, n]) } else { Err(wrong()) }
}

fn conv(x: &[i64], w: &[i64], of: &Convolution) -> Result<Shape> {
    let wrong = || format!("weights of shape {w:?} do not fit an input of shape {x:?} in {} groups", of.groups);
    if x.len() != w.len() || x.len() < 3 || x[1] != w[1] * i64::from(of.groups) || of.strides.len() + 2 != x.len() {
        return Err(wrong());
    }
    let mut shape = vec![x[0], w[0]];
    for axis in 0..of.strides.len() {
        let padded = x[axis + 2] + i64::from(of.pads[axis].0) + i64::from(of.pads[axis].1);
        let window = (w[axis + 2] - 1) * i64::from(of.dilations[axis]) + 1;
        if padded < window {
            return Err(format!("a window of {window} positions is larger than the {padded} of the input"));
        }
        shape.push((padded - window) / i64::from(of.strides[axis]) + 1);
    }
    Ok(shape)
}

fn conv_transpose(x: &[i64], w: &[i64], of: &Convolution, output_padding: &[u32]) -> Result<Shape> {
    if x.len() != w.len() || x.len() < 3 || x[1] != w[0] || of.strides.len() + 2 != x.len() {
        return Err(format!("weights of shape {w:?} do not fit an input of shape {x:?}"));
    }
    let mut shape = vec![x[0], w[1] * i64::from(of.groups)];
    for axis in 0..of.strides.len() {
        let window = (w[axis + 2] - 1) * i64::from(of.dilations[axis]) + 1;
        let pads = i64::from(of.pads[axis].0) + i64::from(of.pads[axis].1);
        let size = (x[axis + 2] - 1) * i64::from(of.strides[axis]) + window + i64::from(output_padding[axis]) - pads;
        shape.push(size);
    }
    Ok(shape)
}

fn pooled(x: &[i64], pool: &Pool) -> Result<Shape> {
    if pool.kernel.len() + 2 != x.len() {
        return Err(format!("a window of {} axes does not fit an input of shape {x:?}", pool.kernel.len()));
    }
    let mut shape = x[..2].to_vec();
    for axis in 0..pool.kernel.len() {
        let ((before, after), stride) = (pool.pads[axis], i64::from(pool.strides[axis]));
        let padded = x[axis + 2] + i64::from(before) + i64::from(after);
        let room = padded - i64::from(pool.kernel[axis]);
        if room < 0 {
            return Err(format!(
                "a window of {} positions is larger than the {padded} of the input",
                pool.kernel[axis]
            ));
        }
        let mut count = room / stride + 1;
        // A further window counts if it begins inside of the input or its left padding.
        if pool.ceil && room % stride != 0 && count * stride < x[axis + 2] + i64::from(before) {
            count += 1;
        }
        shape.push(count);
    }
    Ok(shape)
}

fn reduce(shape: &[i64], axes: &[u32], keep: bool) -> Shape {
    let is_reduced = |axis: usize| axes.iter().any(|reduced| *reduced as usize == axis);
    let sizes = shape.iter().enumerate();
    sizes
        .filter(|(axis, _)| keep || !is_reduced(*axis))
        .map(|(axis, size)| if is_reduced(axis) { 1 } else { *size })
        .collect()
}

fn reshape(shape: &[i64], to: &[Option<Size>], point: Point) -> Result<Shape> {
    let count = super::super::data::count(shape)?;
    let mut known: Vec<Option<i64>> = Vec::with_capacity(to.len());
    for size in to {
        known.push(size.map(|size| at(size, point)).transpose()?);
    }
    let fixed: Shape = known.iter().flatten().copied().collect();
    let product = super::super::data::count(&fixed)?;
    let rest = count.checked_div(product).unwrap_or(0);
    let result: Shape = known.iter().map(|size| size.unwrap_or(i64::try_from(rest).unwrap_or(i64::MAX))).collect();
    if super::super::data::count(&result)? == count {
        Ok(result)
    } else {
        Err(format!("shape {shape:?} cannot become {result:?}: the numbers of elements differ"))
    }
}

fn concat(inputs: &[&[i64]], axis: u32) -> Result<Shape> {
    let mut shape = inputs.first().ok_or("nothing to concatenate")?.to_vec();
    dim(&shape, axis)?;
    for other in &inputs[1..] {
        let fits =
            other.len() == shape.len() && (0..shape.len()).all(|at| at == axis as usize || other[at] == shape[at]);
        if !fits {
            return Err(format!("shapes {shape:?} and {other:?} do not fit along axis {axis}"));
        }
        shape[axis as usize] += other[axis as usize];
    }
    Ok(shape)
}

/// First position and number of positions of a slice.
pub(crate) fn slice_count(size: i64, start: i64, end: i64, step: i32) -> (i64, i64) {
    let from_end = |position: i64| if position < 0 { position.saturating_add(size) } else { position };
    let step = i64::from(step);
    if step > 0 {
        let (start, end) = (from_end(start).clamp(0, size), from_end(end).clamp(0, size));
        (start, ((end - start + step - 1) / step).max(0))
    } else {
        let (start, end) = (from_end(start).clamp(-1, size - 1), from_end(end).clamp(-1, size - 1));
        (start, ((start - end - step - 1) / -step).max(0))
    }
}

fn recurrent(x: &[i64], w: &[i64], recurrence: &graph::Recurrence, outputs: u32) -> Vec<Shape> {
    let (length, batch) = (x.first().copied().unwrap_or(0), x.get(1).copied().unwrap_or(0));
    let (directions, hidden) = (w.first().copied().unwrap_or(1), i64::from(recurrence.hidden));
    let mut shapes = vec![vec![length, directions, batch, hidden]];
    shapes.resize(outputs as usize, vec![directions, batch, hidden]);
    shapes
}
