//! Products of matrices.

use graph::Operation;

use super::context::{Context, Result};
use crate::build::Id;

pub(super) fn matmul(c: &mut Context<'_>) -> Result<Id> {
    let inputs = [c.input(0)?, c.input(1)?];
    c.add(Operation::MatMul, &inputs)
}

pub(super) fn gemm(c: &mut Context<'_>) -> Result<Id> {
    let mut inputs = vec![c.input(0)?, c.input(1)?];
    let beta = c.float("beta", 1.0);
    inputs.extend(c.optional(2).filter(|_| beta != 0.0));
    let operation = Operation::Gemm {
        transpose_a: c.int("transA", 0) != 0,
        transpose_b: c.int("transB", 0) != 0,
        alpha: c.float("alpha", 1.0),
        beta,
    };
    c.add(operation, &inputs)
}

/// A sum of products of two tensors: axes that both and the result have are those of a batch, axes that only both have
/// are summed.
pub(super) fn einsum(c: &mut Context<'_>) -> Result<Id> {
    let equation: String = c.text("equation", "").chars().filter(|letter| !letter.is_whitespace()).collect();
    let unsupported =
        || format!("the equation `{equation}` is not supported; two operands without repeated letters are");
    let (operands, result) = equation.split_once("->").ok_or_else(unsupported)?;
    let (left, right) = operands.split_once(',').ok_or_else(unsupported)?;
    let (a, b) = (c.input(0)?, c.input(1)?);
    let is_plain = |letters: &str| {
        letters.chars().all(|letter| letter.is_ascii_alphabetic() && letters.matches(letter).count() == 1)
    };
    // The lengths come first: they bound the letters.
    if left.len() != c.builder.rank(a)
        || right.len() != c.builder.rank(b)
        || result.len() > left.len() + right.len()
        || ![left, right, result].into_iter().all(is_plain)
    {
        return Err(unsupported());
    }
    let both: Vec<char> = left.chars().filter(|l| right.contains(*l) && result.contains(*l)).collect();
    let summed: Vec<char> = left.chars().filter(|l| right.contains(*l) && !result.contains(*l)).collect();
    let rows: Vec<char> = left.chars().filter(|l| !right.contains(*l)).collect();
    let columns: Vec<char> = right.chars().filter(|l| !left.contains(*l)).collect();
    let known = |letter: &char| result.contains(*letter);
    if !rows.iter().all(known) || !columns.iter().all(known) || result.len() != both.len() + rows.len() + columns.len()
    {
        return Err(unsupported());
    }
    let parts = [&both, &rows, &summed, &columns];
    let groups: Vec<Vec<Vec<i64>>> = parts.iter().map(|part| group(c, part, (left, a), (right, b))).collect();
    let product = |sizes: &[i64]| sizes.iter().product::<i64>();
    let shapes = |order: [usize; 2]| -> Vec<Vec<i64>> {
        let points = 0..groups[0].len();
        let shape = |point: usize| {
            [groups[0][point].clone(), order.map(|part| product(&groups[part][point])).to_vec()].concat()
        };
        points.map(shape).collect()
    };
    let (shape_a, shape_b) = (shapes([1, 2]), shapes([2, 3]));
    let a = arranged(c, a, left, &[both.clone(), rows.clone(), summed.clone()].concat(), &shape_a)?;
    let b = arranged(c, b, right, &[both.clone(), summed, columns.clone()].concat(), &shape_b)?;
    let y = c.add(Operation::MatMul, &[a, b])?;
    let full: Vec<Vec<i64>> =
        (0..groups[0].len()).map(|p| [&groups[0][p][..], &groups[1][p], &groups[3][p]].concat()).collect();
    let y = c.reshaped(y, &full)?;
    let letters: Vec<char> = [both, rows, columns].concat();
    arranged(c, y, &letters.iter().collect::<String>(), &result.chars().collect::<Vec<_>>(), &[])
}

/// Sizes of letters for each point.
fn group(c: &Context<'_>, letters: &[char], a: (&str, Id), b: (&str, Id)) -> Vec<Vec<i64>> {
    let size = |letter: &char, point: usize| {
        let ((letters, id), axis) = a.0.find(*letter).map_or_else(|| (b, b.0.find(*letter)), |axis| (a, Some(axis)));
        let axis = axis.unwrap_or(letters.len());
        c.builder.shapes(id)[point].get(axis).copied().unwrap_or(1)
    };
    (0..c.builder.points().len()).map(|point| letters.iter().map(|letter| size(letter, point)).collect()).collect()
}

/// A tensor with its axes in another order, in other shapes unless these are empty.
fn arranged(c: &mut Context<'_>, x: Id, from: &str, to: &[char], shapes: &[Vec<i64>]) -> Result<Id> {
    let order: Vec<u32> =
        to.iter().map(|letter| from.find(*letter).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)).collect();
    let x = c.transposed(x, &order)?;
    if shapes.is_empty() { Ok(x) } else { c.reshaped(x, shapes) }
}
