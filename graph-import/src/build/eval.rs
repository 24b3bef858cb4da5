//! Results of operations on known elements.

use graph::{Activation, Arithmetic, Comparison, Logic, Operation, Point, Reduction};

use super::shape::slice_count;
use crate::data::Data;

#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) shape: &'a [i64],
    pub(crate) data: &'a Data,
}

/// The elements of an operation's result, if it is one of those that are computed at import.
pub(crate) fn evaluate(operation: &Operation, inputs: &[Known<'_>], shape: &[i64], point: Point) -> Option<Data> {
    let first = inputs.first().copied();
    match operation {
        Operation::Activation(activation) => activate(*activation, first?.data),
        Operation::Arithmetic(by) => arithmetic(*by, first?, *inputs.get(1)?, shape),
        Operation::Comparison(by) => compare(*by, first?, *inputs.get(1)?, shape),
        Operation::Logic(by) => logic(*by, inputs, shape),
        Operation::Where => choose(inputs, shape),
        Operation::Cast { to } => Some(first?.data.cast(*to)),
        Operation::Reshape { .. } => Some(first?.data.clone()),
        Operation::Expand { .. } | Operation::Fill { .. } => Some(spread(first?, shape)),
        Operation::Transpose { order } => Some(transpose(first?, order, shape)),
        Operation::Concat { axis } => concat(inputs, *axis as usize, shape),
        Operation::Slice { axis, start, step, end } => {
            let input = first?;
            let axis = *axis as usize;
            let (start, _) = slice_count(input.shape[axis], start.at(point)?, end.at(point)?, *step);
            along(input, axis, shape, |at| start + at * i64::from(*step))
        }
        Operation::Gather { axis } => gather(first?, *inputs.get(1)?, *axis as usize),
        Operation::Range { start, step, .. } => {
            let start = start.at(point)?;
            Some(Data::I64((0..*shape.first()?).map(|at| start + at * i64::from(*step)).collect()))
        }
        Operation::Triangle { upper, k } => triangle(first?, *upper, i64::from(*k)),
        Operation::CumSum { axis } => cumulate(first?, *axis as usize),
        Operation::Reduce { by, axes, .. } => reduce(first?, *by, axes),
        Operation::MatMul
        | Operation::Gemm { .. }
        | Operation::Conv(_)
        | Operation::ConvTranspose { .. }
        | Operation::Pool(_)
        | Operation::ArgMax { .. }
        | Operation::Softmax { .. }
        | Operation::LogSoftmax { .. }
        | Operation::LayerNorm { .. }
        | Operation::GroupNorm { .. }
        | Operation::BatchNorm { .. }
        | Operation::Dropout { .. }
        | Operation::GatherElements { .. }
        | Operation::Pad { .. }
        | Operation::Resize { .. }
        | Operation::Recurrent(_) => None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shapes are checked to have few elements")]
fn to_usize(value: i64) -> usize {
    value as usize
}

/// Row-major distances of the axes.
fn strides(shape: &[i64]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * to_usize(shape[axis]);
    }
    strides
}

/// For each element of a result in row-major order: the sum over axes of position times that axis's distance.
fn walk(shape: &[i64], distances: &[usize]) -> Vec<usize> {
    if shape.contains(&0) {
        return Vec::new();
    }
    let mut positions = vec![0];
    for (size, distance) in shape.iter().zip(distances) {
        let size = to_usize(*size);
        positions = positions.iter().flat_map(|base| (0..size).map(move |at| base + at * distance)).collect();
    }
    positions
}

/// Positions of the elements of a tensor that is broadcast.
fn spread_positions(from: &[i64], to: &[i64]) -> Vec<usize> {
    let mut distances = vec![0; to.len()];
    let offset = to.len().saturating_sub(from.len());
    for (axis, stride) in strides(from).into_iter().enumerate() {
        if from[axis] != 1 {
            distances[axis + offset] = stride;
        }
    }
    walk(to, &distances)
}

fn spread(input: Known<'_>, shape: &[i64]) -> Data {
    input.data.pick(&spread_positions(input.shape, shape))
}

fn transpose(input: Known<'_>, order: &[u32], shape: &[i64]) -> Data {
    let strides = strides(input.shape);
    let distances: Vec<usize> = order.iter().map(|axis| strides[*axis as usize]).collect();
    input.data.pick(&walk(shape, &distances))
}

/// Elements at chosen positions of an axis.
fn along(input: Known<'_>, axis: usize, shape: &[i64], position: impl Fn(i64) -> i64) -> Option<Data> {
    let mut distances = strides(input.shape);
    let stride = distances[axis];
    let size = to_usize(*shape.get(axis)?);
    distances[axis] = 0;
    let inner: usize = shape[axis + 1..].iter().map(|size| to_usize(*size)).product();
    let mut positions = walk(shape, &distances);
    for (number, base) in positions.iter_mut().enumerate() {
        *base += to_usize(position(i64::try_from(number / inner.max(1) % size.max(1)).ok()?)) * stride;
    }
    let inside = positions.iter().all(|position| *position < input.data.len());
    inside.then(|| input.data.pick(&positions))
}

fn gather(input: Known<'_>, positions: Known<'_>, axis: usize) -> Option<Data> {
    let Data::I64(wanted) = positions.data else { return None };
    let size = input.shape[axis];
    let inside: Vec<i64> = wanted.iter().map(|at| if *at < 0 { at + size } else { *at }).collect();
    if inside.iter().any(|at| *at < 0 || *at >= size) {
        return None;
    }
    let mut flat = input.shape.to_vec();
    flat[axis] = i64::try_from(inside.len()).ok()?;
    along(input, axis, &flat, |at| inside[to_usize(at)])
}

fn concat(inputs: &[Known<'_>], axis: usize, shape: &[i64]) -> Option<Data> {
    let outer: usize = shape[..axis].iter().map(|size| to_usize(*size)).product();
    let chunk = |input: &Known<'_>| input.shape[axis..].iter().map(|size| to_usize(*size)).product::<usize>();
    macro_rules! join {
        ($kind:ident) => {{
            let mut joined = Vec::new();
            for row in 0..outer {
                for input in inputs {
                    let Data::$kind(values) = input.data else { return None };
                    let size = chunk(input);
                    joined.extend_from_slice(values.get(row * size..(row + 1) * size)?);
                }
            }
            Some(Data::$kind(joined))
        }};
    }
    match inputs.first()?.data {
        Data::F32(_) => join!(F32),
        Data::I64(_) => join!(I64),
        Data::Bool(_) => join!(Bool),
    }
}

fn choose(inputs: &[Known<'_>], shape: &[i64]) -> Option<Data> {
    let [condition, a, b] = inputs else { return None };
    let Data::Bool(condition) = spread(*condition, shape) else { return None };
    match (spread(*a, shape), spread(*b, shape)) {
        (Data::F32(a), Data::F32(b)) => Some(Data::F32(pick_each(&condition, &a, &b))),
        (Data::I64(a), Data::I64(b)) => Some(Data::I64(pick_each(&condition, &a, &b))),
        (Data::Bool(a), Data::Bool(b)) => Some(Data::Bool(pick_each(&condition, &a, &b))),
        (Data::F32(_) | Data::I64(_) | Data::Bool(_), _) => None,
    }
}

fn pick_each<T: Copy>(condition: &[bool], a: &[T], b: &[T]) -> Vec<T> {
    condition.iter().zip(a.iter().zip(b)).map(|(first, (a, b))| if *first { *a } else { *b }).collect()
}

fn pairs<T: Copy, R>(a: &[T], b: &[T], f: impl Fn(T, T) -> Option<R>) -> Option<Vec<R>> {
    a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect()
}

fn arithmetic(by: Arithmetic, a: Known<'_>, b: Known<'_>, shape: &[i64]) -> Option<Data> {
    match (spread(a, shape), spread(b, shape)) {
        (Data::I64(a), Data::I64(b)) => pairs(&a, &b, |a, b| whole(by, a, b)).map(Data::I64),
        (Data::F32(a), Data::F32(b)) => pairs(&a, &b, |a, b| Some(real(by, a, b))).map(Data::F32),
        (Data::F32(_) | Data::I64(_) | Data::Bool(_), _) => None,
    }
}

fn whole(by: Arithmetic, a: i64, b: i64) -> Option<i64> {
    match by {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Sub => a.checked_sub(b),
        Arithmetic::Mul => a.checked_mul(b),
        Arithmetic::Div => a.checked_div(b),
        Arithmetic::Pow => a.checked_pow(u32::try_from(b).ok()?),
        Arithmetic::Mod => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest.checked_add(b) } else { Some(rest) }
        }
        Arithmetic::Min => Some(a.min(b)),
        Arithmetic::Max => Some(a.max(b)),
    }
}

fn real(by: Arithmetic, a: f32, b: f32) -> f32 {
    match by {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div => a / b,
        Arithmetic::Pow => a.powf(b),
        Arithmetic::Mod => a - (a / b).floor() * b,
        Arithmetic::Min => a.min(b),
        Arithmetic::Max => a.max(b),
    }
}

fn compare(by: Comparison, a: Known<'_>, b: Known<'_>, shape: &[i64]) -> Option<Data> {
    fn test<T: PartialOrd>(by: Comparison, a: T, b: T) -> bool {
        match by {
            Comparison::Equal => a == b,
            Comparison::Less => a < b,
            Comparison::LessOrEqual => a <= b,
            Comparison::Greater => a > b,
            Comparison::GreaterOrEqual => a >= b,
        }
    }
    match (spread(a, shape), spread(b, shape)) {
        (Data::I64(a), Data::I64(b)) => pairs(&a, &b, |a, b| Some(test(by, a, b))).map(Data::Bool),
        (Data::F32(a), Data::F32(b)) => pairs(&a, &b, |a, b| Some(test(by, a, b))).map(Data::Bool),
        (Data::Bool(a), Data::Bool(b)) => pairs(&a, &b, |a, b| Some(test(by, a, b))).map(Data::Bool),
        (Data::F32(_) | Data::I64(_) | Data::Bool(_), _) => None,
    }
}

fn logic(by: Logic, inputs: &[Known<'_>], shape: &[i64]) -> Option<Data> {
    let truth = |at: usize| match spread(*inputs.get(at)?, shape) {
        Data::Bool(values) => Some(values),
        Data::F32(_) | Data::I64(_) => None,
    };
    let a = truth(0)?;
    let both = |f: fn(bool, bool) -> bool| pairs(&a, &truth(1)?, |a, b| Some(f(a, b)));
    Some(Data::Bool(match by {
        Logic::And => both(|a, b| a && b)?,
        Logic::Or => both(|a, b| a || b)?,
        Logic::Xor => both(|a, b| a != b)?,
        Logic::Not => a.iter().map(|a| !a).collect(),
    }))
}

fn activate(activation: Activation, input: &Data) -> Option<Data> {
    let f: fn(f32) -> f32 = match activation {
        Activation::Neg => |x| -x,
        Activation::Abs => f32::abs,
        Activation::Exp => f32::exp,
        Activation::Log => f32::ln,
        Activation::Sqrt => f32::sqrt,
        Activation::Reciprocal => f32::recip,
        Activation::Sin => f32::sin,
        Activation::Cos => f32::cos,
        Activation::Floor => f32::floor,
        Activation::Ceil => f32::ceil,
        Activation::Clip { min, max } => {
            let Data::F32(values) = input else { return None };
            let bound = |x: f32| x.max(min.unwrap_or(f32::NEG_INFINITY)).min(max.unwrap_or(f32::INFINITY));
            return Some(Data::F32(values.iter().map(|x| bound(*x)).collect()));
        }
        Activation::Identity
        | Activation::Erf
        | Activation::Tanh
        | Activation::Sigmoid
        | Activation::Relu
        | Activation::LeakyRelu { .. }
        | Activation::Elu { .. }
        | Activation::Gelu
        | Activation::GeluTanh
        | Activation::Softplus
        | Activation::HardSigmoid { .. }
        | Activation::HardSwish
        | Activation::Sign => return None,
    };
    match (input, activation) {
        (Data::F32(values), _) => Some(Data::F32(values.iter().map(|x| f(*x)).collect())),
        (Data::I64(values), Activation::Neg) => {
            values.iter().map(|x| x.checked_neg()).collect::<Option<_>>().map(Data::I64)
        }
        (Data::I64(values), Activation::Abs) => {
            values.iter().map(|x| x.checked_abs()).collect::<Option<_>>().map(Data::I64)
        }
        (Data::I64(_) | Data::Bool(_), _) => None,
    }
}

fn triangle(input: Known<'_>, upper: bool, k: i64) -> Option<Data> {
    let (_, [rows, columns]) = input.shape.split_last_chunk::<2>()?;
    let keeps = |number: usize| {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let (row, column) = (number / columns % rows, number % columns);
        if upper { column - row >= k } else { column - row <= k }
    };
    Some(match input.data {
        Data::F32(v) => Data::F32(v.iter().enumerate().map(|(at, v)| if keeps(at) { *v } else { 0.0 }).collect()),
        Data::I64(v) => Data::I64(v.iter().enumerate().map(|(at, v)| if keeps(at) { *v } else { 0 }).collect()),
        Data::Bool(v) => Data::Bool(v.iter().enumerate().map(|(at, v)| keeps(at) && *v).collect()),
    })
}

fn cumulate(input: Known<'_>, axis: usize) -> Option<Data> {
    let Data::I64(values) = input.data else { return None };
    let (stride, size) = (strides(input.shape)[axis], to_usize(input.shape[axis]));
    let mut sums = values.clone();
    for at in 0..sums.len() {
        if at / stride % size > 0 {
            sums[at] = sums[at].checked_add(sums[at - stride])?;
        }
    }
    Some(Data::I64(sums))
}

/// A reduction of integers or of floats.
pub(crate) fn reduce(input: Known<'_>, by: Reduction, axes: &[u32]) -> Option<Data> {
    let mut kept = input.shape.to_vec();
    for axis in axes {
        *kept.get_mut(*axis as usize)? = 1;
    }
    let targets = spread_positions(&kept, input.shape);
    let count: usize = kept.iter().map(|size| to_usize(*size)).product();
    match input.data {
        Data::I64(values) => {
            let f = match by {
                Reduction::Sum => Arithmetic::Add,
                Reduction::Product => Arithmetic::Mul,
                Reduction::Max => Arithmetic::Max,
                Reduction::Min => Arithmetic::Min,
                Reduction::Mean | Reduction::Norm => return None,
            };
            let mut results: Vec<Option<i64>> = vec![None; count];
            for (value, target) in values.iter().zip(targets) {
                let so_far = results[target];
                results[target] = Some(so_far.map_or(Some(*value), |so_far| whole(f, so_far, *value))?);
            }
            results.into_iter().collect::<Option<_>>().map(Data::I64)
        }
        Data::F32(_) | Data::Bool(_) => None,
    }
}
