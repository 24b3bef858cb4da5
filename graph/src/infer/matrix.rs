//! Products of matrices.

use super::inputs::{Inferred, Inputs, broadcast, finite, of};
use crate::element::Element;
use crate::shapes::TensorType;

pub(super) fn matmul(inputs: &Inputs<'_>) -> Inferred {
    let [a, b] = inputs.exactly()?;
    of(a, Element::F32)?;
    of(b, Element::F32)?;
    let unequal = || format!("shapes {:?} and {:?} have no product", a.shape, b.shape);
    let (mut shape, inner, rows) = match a.shape[..] {
        [] => return Err(unequal()),
        [inner] => (Vec::new(), inner, None),
        [ref batch @ .., rows, inner] => (batch.to_vec(), inner, Some(rows)),
    };
    let columns = match b.shape[..] {
        [] => return Err(unequal()),
        [ref batch @ .., other, columns] if other == inner => {
            shape = broadcast(&shape, batch)?;
            Some(columns)
        }
        [other] if other == inner => None,
        [_] | [.., _, _] => return Err(unequal()),
    };
    shape.extend(rows);
    shape.extend(columns);
    Ok(TensorType::f32(shape))
}

pub(super) fn gemm(inputs: &Inputs<'_>, transposed: [bool; 2], factors: [f32; 2]) -> Inferred {
    let all = inputs.between(2, 3)?;
    all.iter().try_for_each(|tensor| of(tensor, Element::F32))?;
    factors.iter().try_for_each(|factor| finite("a factor", *factor))?;
    let matrix = |index: usize| match all[index].shape[..] {
        [rows, columns] if transposed[index] => Ok([columns, rows]),
        [rows, columns] => Ok([rows, columns]),
        _ => Err(format!("takes matrices, not the shape {:?}", all[index].shape)),
    };
    let ([rows, inner], [other, columns]) = (matrix(0)?, matrix(1)?);
    if inner != other {
        return Err(format!("the matrices are {rows} by {inner} and {other} by {columns}: they have no product"));
    }
    let shape = vec![rows, columns];
    if let Some(c) = all.get(2)
        && broadcast(&c.shape, &shape)? != shape
    {
        return Err(format!("C has the shape {:?}, which does not broadcast to {shape:?}", c.shape));
    }
    Ok(TensorType::f32(shape))
}
