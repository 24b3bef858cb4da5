//! Recurrences.

use super::inputs::{Inputs, of};
use crate::attributes::{Direction, Recurrence, RecurrentCell};
use crate::element::Element;
use crate::shapes::TensorType;

/// Maximum number of positions that a recurrence visits.
pub(crate) const MAX_STEPS: usize = 1 << 14;

pub(super) fn recurrent(recurrence: Recurrence, inputs: &Inputs<'_>) -> Result<Vec<TensorType>, String> {
    let states = match recurrence.cell {
        RecurrentCell::Lstm => 2,
        RecurrentCell::Gru | RecurrentCell::Rnn => 1,
    };
    let all = inputs.between(4, 4 + states)?;
    all.iter().try_for_each(|tensor| of(tensor, Element::F32))?;
    let [length, batch, width] = all[0].shape[..] else {
        return Err(format!("takes [length, batch, inputs], not {:?}", all[0].shape));
    };
    if length > MAX_STEPS {
        return Err(format!("visits {length} positions; at most {MAX_STEPS} are allowed"));
    }
    let hidden = recurrence.hidden as usize;
    let directions = match recurrence.direction {
        Direction::Forward | Direction::Reverse => 1,
        Direction::Both => 2,
    };
    let rows = hidden.saturating_mul(match recurrence.cell {
        RecurrentCell::Lstm => 4,
        RecurrentCell::Gru => 3,
        RecurrentCell::Rnn => 1,
    });
    let expected = [
        ("W", vec![directions, rows, width]),
        ("R", vec![directions, rows, hidden]),
        ("B", vec![directions, rows.saturating_mul(2)]),
        ("the initial state", vec![directions, batch, hidden]),
        ("the initial cell", vec![directions, batch, hidden]),
    ];
    for (tensor, (name, shape)) in all[1..].iter().zip(&expected) {
        if tensor.shape != *shape {
            return Err(format!("takes {name} of the shape {shape:?}, not {:?}", tensor.shape));
        }
    }
    let mut results = vec![TensorType::f32(vec![length, directions, batch, hidden])];
    results.extend((0..states).map(|_| TensorType::f32(vec![directions, batch, hidden])));
    Ok(results)
}
