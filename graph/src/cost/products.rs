//! Cost of products of matrices, and of recurrences, which are products for each position.

use super::numbers::{product, times};
use super::scratch::{Scratch, padded};
use super::view::{NodeCost, View};
use crate::attributes::{Direction, Recurrence};

pub(super) fn matmul(node: &View<'_>) -> NodeCost {
    let (a, b) = (node.shape(0), node.shape(1));
    let inner = a.last().map_or(1, |size| *size as u64);
    let columns = if b.len() < 2 { 1 } else { b.last().map_or(1, |size| *size as u64) };
    let batch = |shape: &[usize]| shape.len().saturating_sub(2);
    // Where all of A shares one B, the rows of A are one matrix.
    let is_shared = b[..batch(b)].iter().all(|&size| size == 1) && batch(b) <= batch(a);
    let rows = match a {
        _ if is_shared => node.elements(0) / inner.max(1),
        [.., rows, _] => *rows as u64,
        [] | [_] => 1,
    };
    NodeCost {
        scratch: Scratch::of_product(rows, inner, columns),
        ..of_product(node, times([product(&node.result.shape), inner]))
    }
}

pub(super) fn gemm(node: &View<'_>, transpose_a: bool) -> NodeCost {
    let result = product(&node.result.shape);
    let inner = node.size(0, usize::from(!transpose_a));
    let size = |axis: usize| node.result.shape.get(axis).map_or(1, |size| *size as u64);
    NodeCost {
        // The gradient times a factor, or the third matrix times a factor.
        temporary: times([result, 4]),
        scratch: Scratch::of_product(size(0), inner, size(1)),
        ..of_product(node, times([result, inner]))
    }
}

/// A product whose gradients of both operands cost as much.
fn of_product(node: &View<'_>, forward: u64) -> NodeCost {
    let backward = times([forward, node.gradient(0) + node.gradient(1)]);
    NodeCost { forward, backward, ..NodeCost::default() }
}

pub(super) fn recurrent(node: &View<'_>, recurrence: Recurrence) -> NodeCost {
    let directions = match recurrence.direction {
        Direction::Forward | Direction::Reverse => 1,
        Direction::Both => 2,
    };
    let (length, batch, width) = (node.size(0, 0), node.size(0, 1), node.size(0, 2));
    let (gates, hidden) = (node.size(1, 1), u64::from(recurrence.hidden));
    let rows = times([length, batch]);
    let all_gates = times([rows, gates]);
    let (of_input, of_state) = (times([directions, all_gates, width]), times([directions, all_gates, hidden]));
    let functions = times([directions, all_gates]);
    // The gradient of the state goes back through all positions, whatever else has a gradient.
    let is_trained = u64::from((0..node.inputs.len()).any(|input| node.gradient(input) == 1));
    let backward = [
        times([of_input, node.gradient(0) + node.gradient(1)]),
        times([of_state, is_trained + node.gradient(2)]),
        times([functions, 2, is_trained]),
    ];
    let states = times([rows, hidden]);
    let state = times([batch, hidden]);
    // Gradients of the gates, twice, with the earlier states; a direction at a time.
    let temporary = [all_gates, all_gates, states, times([batch, gates]), times([state, 6])];
    let scratch = Scratch::of_product(rows, width.max(hidden), gates);
    let packed = times([hidden, padded(gates)]).max(times([gates, padded(hidden)]));
    NodeCost {
        forward: [of_input, of_state, functions].into_iter().fold(0, u64::saturating_add),
        backward: backward.into_iter().fold(0, u64::saturating_add),
        saved: times([directions, all_gates.saturating_add(states), 4]),
        temporary: temporary.into_iter().fold(0, u64::saturating_add).saturating_mul(4),
        scratch: Scratch { packed, ..scratch },
    }
}
