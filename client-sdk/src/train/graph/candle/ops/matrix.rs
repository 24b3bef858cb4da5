//! Products of matrices.

use candle_core::{D, Result, Tensor};

/// A matrix as a product of candle takes it: its rows or its columns lie one after the other.
fn operand(x: &Tensor) -> Result<Tensor> {
    if x.rank() == 2 && x.is_fortran_contiguous() { Ok(x.clone()) } else { x.contiguous() }
}

/// The product of matrices in the last two axes; a vector is a row or column.
pub(super) fn matmul([a, b]: [&Tensor; 2], result: &[usize]) -> Result<Tensor> {
    let a = if a.rank() == 1 { a.unsqueeze(0)? } else { a.clone() };
    let b = if b.rank() == 1 { b.unsqueeze(1)? } else { b.clone() };
    let (inner, columns) = (b.dim(D::Minus2)?, b.dim(D::Minus1)?);
    let is_shared = b.elem_count() == inner * columns && b.rank() <= a.rank();
    let product = if is_shared {
        // All rows of A times one matrix.
        let b = if b.rank() == 2 { operand(&b)? } else { b.reshape((inner, columns))? };
        a.reshape(((), inner))?.matmul(&b)?
    } else {
        a.contiguous()?.broadcast_matmul(&b.contiguous()?)?
    };
    product.reshape(result)
}

/// `alpha * A B + beta * C`.
pub(super) fn gemm([a, b]: [&Tensor; 2], c: Option<&Tensor>, [alpha, beta]: [f32; 2]) -> Result<Tensor> {
    let scaled = |tensor: &Tensor, factor: f32| {
        if factor == 1.0 { Ok(tensor.clone()) } else { tensor.affine(factor.into(), 0.0) }
    };
    let product = scaled(&operand(a)?.matmul(&operand(b)?)?, alpha)?;
    match c {
        Some(c) => product.broadcast_add(&scaled(c, beta)?),
        None => Ok(product),
    }
}
