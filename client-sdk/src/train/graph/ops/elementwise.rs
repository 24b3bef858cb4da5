//! Operations on each element.

use graph::{Activation, Arithmetic, Comparison, Logic};
use pulp::Arch;

use crate::train::graph::context::{Gradients, Step, vectorized};
use crate::train::graph::kernels::math::{erf, exp, sigmoid, softplus, tanh};
use crate::train::graph::kernels::product::Into;
use crate::train::graph::kernels::walk::{Walk, dense, moved, repeated};
use crate::train::graph::tensor::{Operand, Tensor};

/// `sqrt(2 / pi)`.
const ROOT: f32 = 0.797_884_6;
/// The cubic coefficient of the hyperbolic tangent's approximation of GELU.
const CUBIC: f32 = 0.044_715;

/// `y = f(x)` for each element.
fn map(arch: Arch, x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorized(
        arch,
        y,
        #[inline(always)]
        |y| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = f(x);
            }
        },
    );
}

/// Adds `dy * slope(x, y)` to `dx`.
fn map_back(arch: Arch, [x, y, dy]: [&[f32]; 3], dx: &mut [f32], slope: impl Fn(f32, f32) -> f32) {
    vectorized(
        arch,
        dx,
        #[inline(always)]
        |dx| {
            for (((dx, &dy), &x), &y) in dx.iter_mut().zip(dy).zip(x).zip(y) {
                *dx += dy * slope(x, y);
            }
        },
    );
}

pub(super) fn activation(activation: Activation, x: &[f32], y: &mut [f32], arch: Arch) {
    match activation {
        Activation::Identity => y.copy_from_slice(x),
        Activation::Neg => map(arch, x, y, |x| -x),
        Activation::Abs => map(arch, x, y, f32::abs),
        Activation::Exp => map(arch, x, y, f32::exp),
        Activation::Log => map(arch, x, y, f32::ln),
        Activation::Sqrt => map(arch, x, y, f32::sqrt),
        Activation::Reciprocal => map(arch, x, y, f32::recip),
        Activation::Erf => map(arch, x, y, erf),
        Activation::Sin => map(arch, x, y, f32::sin),
        Activation::Cos => map(arch, x, y, f32::cos),
        Activation::Tanh => map(arch, x, y, tanh),
        Activation::Sigmoid => map(arch, x, y, sigmoid),
        // NaN stays, so that divergence is detected.
        Activation::Relu => map(arch, x, y, |x| if x <= 0.0 { 0.0 } else { x }),
        Activation::LeakyRelu { alpha } => map(arch, x, y, |x| if x > 0.0 { x } else { alpha * x }),
        Activation::Elu { alpha } => map(arch, x, y, |x| if x > 0.0 { x } else { alpha * x.exp_m1() }),
        Activation::Gelu => map(arch, x, y, |x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))),
        Activation::GeluTanh => map(arch, x, y, |x| 0.5 * x * (1.0 + tanh(ROOT * (x + CUBIC * x * x * x)))),
        Activation::Softplus => map(arch, x, y, softplus),
        Activation::HardSigmoid { alpha, beta } => map(arch, x, y, |x| (alpha * x + beta).clamp(0.0, 1.0)),
        Activation::HardSwish => map(arch, x, y, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        Activation::Clip { min, max } => {
            let (min, max) = (min.unwrap_or(f32::NEG_INFINITY), max.unwrap_or(f32::INFINITY));
            map(arch, x, y, |x| x.clamp(min, max));
        }
        Activation::Floor => map(arch, x, y, f32::floor),
        Activation::Ceil => map(arch, x, y, f32::ceil),
        Activation::Sign => map(arch, x, y, |x| if x == 0.0 { 0.0 } else { x.signum() }),
    }
}

/// 1 within an open range, else 0.
fn inside(x: f32, low: f32, high: f32) -> f32 {
    if x > low && x < high { 1.0 } else { 0.0 }
}

/// Elements of which the gradient is computed at once: they stay in the first-level cache.
const TOGETHER: usize = 1024;

/// Computes the gradient of `x` from `[x, y, dy]`.
pub(super) fn activation_back(activation: Activation, of: [&[f32]; 3], into: Into, dx: &mut [f32], arch: Arch) {
    for (number, dx) in dx.chunks_mut(TOGETHER).enumerate() {
        into.prepare(dx);
        add_activation_gradient(activation, of.map(|values| &values[number * TOGETHER..][..dx.len()]), dx, arch);
    }
}

fn add_activation_gradient(activation: Activation, of: [&[f32]; 3], dx: &mut [f32], arch: Arch) {
    match activation {
        Activation::Identity => map_back(arch, of, dx, |_, _| 1.0),
        Activation::Neg => map_back(arch, of, dx, |_, _| -1.0),
        Activation::Abs => map_back(arch, of, dx, |x, _| if x == 0.0 { 0.0 } else { x.signum() }),
        Activation::Exp => map_back(arch, of, dx, |_, y| y),
        Activation::Log => map_back(arch, of, dx, |x, _| 1.0 / x),
        Activation::Sqrt => map_back(arch, of, dx, |_, y| 0.5 / y),
        Activation::Reciprocal => map_back(arch, of, dx, |_, y| -y * y),
        Activation::Erf => map_back(arch, of, dx, |x, _| std::f32::consts::FRAC_2_SQRT_PI * exp(-x * x)),
        Activation::Sin => map_back(arch, of, dx, |x, _| x.cos()),
        Activation::Cos => map_back(arch, of, dx, |x, _| -x.sin()),
        Activation::Tanh => map_back(arch, of, dx, |_, y| 1.0 - y * y),
        Activation::Sigmoid => map_back(arch, of, dx, |_, y| y * (1.0 - y)),
        Activation::Relu => map_back(arch, of, dx, |_, y| if y == 0.0 { 0.0 } else { 1.0 }),
        Activation::LeakyRelu { alpha } => map_back(arch, of, dx, |x, _| if x > 0.0 { 1.0 } else { alpha }),
        Activation::Elu { alpha } => map_back(arch, of, dx, |x, y| if x > 0.0 { 1.0 } else { y + alpha }),
        Activation::Gelu => map_back(arch, of, dx, |x, _| {
            let density = exp(-0.5 * x * x) * 0.398_942_3;
            0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)) + x * density
        }),
        Activation::GeluTanh => map_back(arch, of, dx, |x, _| {
            let tanh = tanh(ROOT * (x + CUBIC * x * x * x));
            0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * ROOT * (1.0 + 3.0 * CUBIC * x * x)
        }),
        Activation::Softplus => map_back(arch, of, dx, |x, _| sigmoid(x)),
        Activation::HardSigmoid { alpha, beta } => {
            map_back(arch, of, dx, |x, _| alpha * inside(alpha * x + beta, 0.0, 1.0));
        }
        Activation::HardSwish => map_back(arch, of, dx, |x, _| {
            let gate = x / 6.0 + 0.5;
            if gate >= 1.0 {
                1.0
            } else if gate <= 0.0 {
                0.0
            } else {
                gate + x / 6.0
            }
        }),
        Activation::Clip { min, max } => {
            let (min, max) = (min.unwrap_or(f32::NEG_INFINITY), max.unwrap_or(f32::INFINITY));
            map_back(arch, of, dx, |x, _| if x >= min && x <= max { 1.0 } else { 0.0 });
        }
        Activation::Floor | Activation::Ceil | Activation::Sign => {}
    }
}

/// Axes of a result and of two inputs that broadcast to it.
fn broadcast(result: &[usize], a: &[usize], b: &[usize]) -> Walk<3> {
    Walk::new(result, [&dense(result), &repeated(a, result), &repeated(b, result)])
}

/// `y = f(a, b)` for each element of the result.
fn zip<A: Copy, B: Copy, Y>(walk: &Walk<3>, y: &mut [Y], a: &[A], b: &[B], arch: Arch, f: impl Fn(A, B) -> Y) {
    let [_, a_step, b_step] = walk.inner();
    walk.runs(|[at, a_at, b_at], length| {
        let y = &mut y[at..at + length];
        match (a_step, b_step) {
            (1, 1) => {
                let (a, b) = (&a[a_at..a_at + length], &b[b_at..b_at + length]);
                arch.dispatch(
                    #[inline(always)]
                    || y.iter_mut().zip(a).zip(b).for_each(|((y, &a), &b)| *y = f(a, b)),
                );
            }
            (1, 0) => {
                let (a, b) = (&a[a_at..a_at + length], b[b_at]);
                arch.dispatch(
                    #[inline(always)]
                    || y.iter_mut().zip(a).for_each(|(y, &a)| *y = f(a, b)),
                );
            }
            (_, _) => {
                for (index, y) in y.iter_mut().enumerate() {
                    *y = f(a[moved(a_at, a_step, index)], b[moved(b_at, b_step, index)]);
                }
            }
        }
    });
}

/// Adds `slope(dy, a, b)` to `da`, and sums where `a` was repeated.
fn zip_back(
    walk: &Walk<3>,
    dy: &[f32],
    [a, b]: [&[f32]; 2],
    da: &mut [f32],
    arch: Arch,
    slope: impl Fn(f32, f32, f32) -> f32,
) {
    let [_, a_step, b_step] = walk.inner();
    walk.runs(|[at, a_at, b_at], length| {
        let dy = &dy[at..at + length];
        match (a_step, b_step) {
            (1, 1) => {
                let (a, b, da) = (&a[a_at..a_at + length], &b[b_at..b_at + length], &mut da[a_at..a_at + length]);
                arch.dispatch(
                    #[inline(always)]
                    || {
                        for (((da, &dy), &a), &b) in da.iter_mut().zip(dy).zip(a).zip(b) {
                            *da += slope(dy, a, b);
                        }
                    },
                );
            }
            (1, 0) => {
                let (a, b, da) = (&a[a_at..a_at + length], b[b_at], &mut da[a_at..a_at + length]);
                arch.dispatch(
                    #[inline(always)]
                    || da.iter_mut().zip(dy).zip(a).for_each(|((da, &dy), &a)| *da += slope(dy, a, b)),
                );
            }
            (0, _) => {
                let a = a[a_at];
                let terms = dy.iter().enumerate().map(|(index, &dy)| slope(dy, a, b[moved(b_at, b_step, index)]));
                da[a_at] += terms.sum::<f32>();
            }
            (_, _) => {
                for (index, &dy) in dy.iter().enumerate() {
                    let at = moved(a_at, a_step, index);
                    da[at] += slope(dy, a[at], b[moved(b_at, b_step, index)]);
                }
            }
        }
    });
}

pub(super) fn arithmetic(
    kind: Arithmetic,
    [a, b]: [Operand<'_>; 2],
    result: &[usize],
    y: &mut Tensor,
    arch: Arch,
) -> Step {
    let walk = broadcast(result, a.shape, b.shape);
    if let Tensor::I64(y) = y {
        return integers(kind, &walk, y, a.i64(), b.i64(), arch);
    }
    let (y, a, b) = (y.f32_mut(), a.f32(), b.f32());
    match kind {
        Arithmetic::Add => zip(&walk, y, a, b, arch, |a, b| a + b),
        Arithmetic::Sub => zip(&walk, y, a, b, arch, |a, b| a - b),
        Arithmetic::Mul => zip(&walk, y, a, b, arch, |a, b| a * b),
        Arithmetic::Div => zip(&walk, y, a, b, arch, |a, b| a / b),
        Arithmetic::Pow => match b {
            [2.0] => zip(&walk, y, a, b, arch, |a, _| a * a),
            [0.5] => zip(&walk, y, a, b, arch, |a, _| a.sqrt()),
            _ => zip(&walk, y, a, b, arch, f32::powf),
        },
        Arithmetic::Mod => zip(&walk, y, a, b, arch, |a, b| a - (a / b).floor() * b),
        Arithmetic::Min => zip(&walk, y, a, b, arch, |a, b| if b < a { b } else { a }),
        Arithmetic::Max => zip(&walk, y, a, b, arch, |a, b| if b > a { b } else { a }),
    }
    Ok(())
}

fn integers(kind: Arithmetic, walk: &Walk<3>, y: &mut [i64], a: &[i64], b: &[i64], arch: Arch) -> Step {
    match kind {
        Arithmetic::Add => zip(walk, y, a, b, arch, i64::wrapping_add),
        Arithmetic::Sub => zip(walk, y, a, b, arch, i64::wrapping_sub),
        Arithmetic::Mul => zip(walk, y, a, b, arch, i64::wrapping_mul),
        Arithmetic::Div | Arithmetic::Mod if b.contains(&0) => return Err("divides by 0".to_owned()),
        Arithmetic::Div => zip(walk, y, a, b, arch, i64::wrapping_div),
        Arithmetic::Mod => zip(walk, y, a, b, arch, |a, b| a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b)),
        Arithmetic::Pow => zip(walk, y, a, b, arch, |a, b| a.wrapping_pow(u32::try_from(b).unwrap_or_default())),
        Arithmetic::Min => zip(walk, y, a, b, arch, i64::min),
        Arithmetic::Max => zip(walk, y, a, b, arch, i64::max),
    }
    Ok(())
}

pub(super) fn arithmetic_back(
    kind: Arithmetic,
    [a, b]: [Operand<'_>; 2],
    result: &[usize],
    dy: &[f32],
    gradients: &mut Gradients<'_>,
    arch: Arch,
) {
    let (x, y) = (a.f32(), b.f32());
    if let Some(da) = gradients.of(0) {
        let walk = broadcast(result, a.shape, b.shape);
        let of = [x, y];
        match kind {
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mod => zip_back(&walk, dy, of, da, arch, |dy, _, _| dy),
            Arithmetic::Mul => zip_back(&walk, dy, of, da, arch, |dy, _, b| dy * b),
            Arithmetic::Div => zip_back(&walk, dy, of, da, arch, |dy, _, b| dy / b),
            Arithmetic::Pow if y == [2.0] => zip_back(&walk, dy, of, da, arch, |dy, a, _| 2.0 * dy * a),
            Arithmetic::Pow => zip_back(&walk, dy, of, da, arch, |dy, a, b| dy * b * a.powf(b - 1.0)),
            Arithmetic::Min => zip_back(&walk, dy, of, da, arch, |dy, a, b| if b < a { 0.0 } else { dy }),
            Arithmetic::Max => zip_back(&walk, dy, of, da, arch, |dy, a, b| if b > a { 0.0 } else { dy }),
        }
    }
    if let Some(db) = gradients.of(1) {
        let walk = broadcast(result, b.shape, a.shape);
        let of = [y, x];
        match kind {
            Arithmetic::Add => zip_back(&walk, dy, of, db, arch, |dy, _, _| dy),
            Arithmetic::Sub => zip_back(&walk, dy, of, db, arch, |dy, _, _| -dy),
            Arithmetic::Mul => zip_back(&walk, dy, of, db, arch, |dy, _, a| dy * a),
            Arithmetic::Div => zip_back(&walk, dy, of, db, arch, |dy, b, a| -dy * a / (b * b)),
            // A power of 0 does not change with the exponent.
            Arithmetic::Pow => {
                zip_back(&walk, dy, of, db, arch, |dy, b, a| if a > 0.0 { dy * a.powf(b) * a.ln() } else { 0.0 })
            }
            Arithmetic::Mod => {}
            Arithmetic::Min => zip_back(&walk, dy, of, db, arch, |dy, b, a| if b < a { dy } else { 0.0 }),
            Arithmetic::Max => zip_back(&walk, dy, of, db, arch, |dy, b, a| if b > a { dy } else { 0.0 }),
        }
    }
}

pub(super) fn comparison(kind: Comparison, [a, b]: [Operand<'_>; 2], result: &[usize], y: &mut [bool], arch: Arch) {
    fn ordered<T: PartialOrd + Copy>(kind: Comparison, walk: &Walk<3>, y: &mut [bool], a: &[T], b: &[T], arch: Arch) {
        match kind {
            Comparison::Equal => zip(walk, y, a, b, arch, |a, b| a == b),
            Comparison::Less => zip(walk, y, a, b, arch, |a, b| a < b),
            Comparison::LessOrEqual => zip(walk, y, a, b, arch, |a, b| a <= b),
            Comparison::Greater => zip(walk, y, a, b, arch, |a, b| a > b),
            Comparison::GreaterOrEqual => zip(walk, y, a, b, arch, |a, b| a >= b),
        }
    }
    let walk = broadcast(result, a.shape, b.shape);
    match (a.tensor, b.tensor) {
        (Tensor::F32(a), Tensor::F32(b)) => ordered(kind, &walk, y, a, b, arch),
        (Tensor::I64(a), Tensor::I64(b)) => ordered(kind, &walk, y, a, b, arch),
        (Tensor::Bool(a), Tensor::Bool(b)) => ordered(kind, &walk, y, a, b, arch),
        // Shape inference has excluded different types.
        (Tensor::F32(_) | Tensor::I64(_) | Tensor::Bool(_), _) => {}
    }
}

pub(super) fn logic(kind: Logic, inputs: &[Operand<'_>], result: &[usize], y: &mut [bool], arch: Arch) {
    let [a, others @ ..] = inputs else { return };
    let b = others.first().unwrap_or(a);
    let walk = broadcast(result, a.shape, b.shape);
    let (a, b) = (a.tensor.bool(), b.tensor.bool());
    match kind {
        Logic::And => zip(&walk, y, a, b, arch, |a, b| a && b),
        Logic::Or => zip(&walk, y, a, b, arch, |a, b| a || b),
        Logic::Xor => zip(&walk, y, a, b, arch, |a, b| a != b),
        Logic::Not => zip(&walk, y, a, b, arch, |a, _| !a),
    }
}

/// Axes of a result and of three inputs that broadcast to it.
fn choices(result: &[usize], [condition, a, b]: [Operand<'_>; 3]) -> Walk<4> {
    let steps = [condition, a, b].map(|input| repeated(input.shape, result));
    Walk::new(result, [&dense(result), &steps[0], &steps[1], &steps[2]])
}

pub(super) fn choice(inputs: [Operand<'_>; 3], result: &[usize], y: &mut Tensor) {
    fn choose<T: Copy>(walk: &Walk<4>, condition: &[bool], a: &[T], b: &[T], y: &mut [T]) {
        let [_, if_step, a_step, b_step] = walk.inner();
        walk.runs(|[at, if_at, a_at, b_at], length| {
            for (index, y) in y[at..at + length].iter_mut().enumerate() {
                let chosen = condition[moved(if_at, if_step, index)];
                *y = if chosen { a[moved(a_at, a_step, index)] } else { b[moved(b_at, b_step, index)] };
            }
        });
    }
    let walk = choices(result, inputs);
    let [condition, a, b] = inputs.map(|input| input.tensor);
    match y {
        Tensor::F32(y) => choose(&walk, condition.bool(), a.f32(), b.f32(), y),
        Tensor::I64(y) => choose(&walk, condition.bool(), a.i64(), b.i64(), y),
        Tensor::Bool(y) => choose(&walk, condition.bool(), a.bool(), b.bool(), y),
    }
}

pub(super) fn choice_back(inputs: [Operand<'_>; 3], result: &[usize], dy: &[f32], gradients: &mut Gradients<'_>) {
    let walk = choices(result, inputs);
    let condition = inputs[0].tensor.bool();
    let [_, if_step, a_step, b_step] = walk.inner();
    for (input, wanted, step) in [(1, true, a_step), (2, false, b_step)] {
        let Some(target) = gradients.of(input) else { continue };
        walk.runs(|[at, if_at, a_at, b_at], length| {
            let to = if wanted { a_at } else { b_at };
            for (index, &dy) in dy[at..at + length].iter().enumerate() {
                if condition[moved(if_at, if_step, index)] == wanted {
                    target[moved(to, step, index)] += dy;
                }
            }
        });
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a conversion is asked for")]
pub(super) fn cast(x: &Tensor, y: &mut Tensor) {
    match (x, y) {
        (Tensor::F32(x), Tensor::F32(y)) => y.copy_from_slice(x),
        (Tensor::I64(x), Tensor::I64(y)) => y.copy_from_slice(x),
        (Tensor::Bool(x), Tensor::Bool(y)) => y.copy_from_slice(x),
        (Tensor::F32(x), Tensor::I64(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x as i64),
        (Tensor::F32(x), Tensor::Bool(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x != 0.0),
        (Tensor::I64(x), Tensor::F32(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x as f32),
        (Tensor::I64(x), Tensor::Bool(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = x != 0),
        (Tensor::Bool(x), Tensor::F32(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = f32::from(u8::from(x))),
        (Tensor::Bool(x), Tensor::I64(y)) => y.iter_mut().zip(x).for_each(|(y, &x)| *y = i64::from(x)),
    }
}
