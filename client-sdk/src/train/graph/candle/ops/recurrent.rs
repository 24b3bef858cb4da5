//! Recurrences: LSTM, GRU and RNN in ONNX's form.

use candle_core::{D, Result, Tensor};
use candle_nn::ops::sigmoid;
use graph::{Direction, Recurrence, RecurrentCell};

use crate::train::graph::candle::failure::missing;
use crate::train::graph::candle::tape::{Mark, Tape};

/// Number of positions in a segment of the tape.
const SEGMENT: usize = 64;

/// The order in which a direction visits the positions of a sequence.
#[derive(Clone, Copy)]
enum Order {
    Forward,
    Reverse,
}

impl Order {
    /// The position that is visited at a step.
    fn position(self, step: usize, count: usize) -> usize {
        match self {
            Self::Forward => step,
            Self::Reverse => count - 1 - step,
        }
    }
}

/// The tensors of a direction in a segment.
struct Weights {
    /// Weights of the input, transposed: `[input, gates * hidden]`.
    w: Tensor,
    /// Weights of the hidden state, transposed: `[hidden, gates * hidden]`.
    r: Tensor,
    w_bias: Tensor,
    r_bias: Tensor,
}

impl Weights {
    /// Reads W, R and B.
    fn read(inputs: &[Mark], direction: usize, tape: &mut Tape) -> Result<Self> {
        let [_, w, r, b, ..] = inputs else { return Err(missing()) };
        let mut read = |mark: &Mark| tape.read(*mark)?.get(direction);
        let (w, r, b) = (read(w)?, read(r)?, read(b)?);
        let gates = w.dim(0)?;
        Ok(Self { w: w.t()?, r: r.t()?, w_bias: b.narrow(0, 0, gates)?, r_bias: b.narrow(0, gates, gates)? })
    }
}

/// The state and, of an LSTM, the cell between two positions.
type States = [Tensor; 2];

/// Records the states of all positions, and the last ones.
pub(super) fn forward(recurrence: Recurrence, inputs: &[Mark], tape: &mut Tape) -> Result<Vec<Mark>> {
    let [first, ..] = inputs else { return Err(missing()) };
    let x = tape.read(*first)?;
    let (length, batch, _) = x.dims3()?;
    // Recorded here, so that a segment copies its own part.
    let parts: Vec<Mark> = (0..length)
        .step_by(SEGMENT)
        .map(|start| Ok(tape.record(x.narrow(0, start, SEGMENT.min(length - start))?)))
        .collect::<Result<_>>()?;
    let zeros = tape.record(Tensor::zeros((batch, recurrence.hidden as usize), x.dtype(), x.device())?);
    let orders: &[Order] = match recurrence.direction {
        Direction::Forward => &[Order::Forward],
        Direction::Reverse => &[Order::Reverse],
        Direction::Both => &[Order::Forward, Order::Reverse],
    };
    let (mut all, mut last) = (Vec::new(), [Vec::new(), Vec::new()]);
    for (direction, order) in orders.iter().enumerate() {
        let mut initial = |number: usize| -> Result<Mark> {
            match inputs.get(number) {
                Some(mark) => {
                    let own = tape.read(*mark)?.get(direction)?;
                    Ok(tape.record(own))
                }
                None => Ok(zeros),
            }
        };
        let mut states: [Mark; 2] = [initial(4)?, initial(5)?];
        let mut results = vec![zeros; parts.len()];
        for step in 0..parts.len() {
            let part = order.position(step, parts.len());
            tape.cut();
            let weights = Weights::read(inputs, direction, tape)?;
            let before = [tape.read(states[0])?, tape.read(states[1])?];
            let (found, after) = advance(recurrence, &weights, &tape.read(parts[part])?, before, *order)?;
            results[part] = tape.record(found);
            states = after.map(|state| tape.record(state));
        }
        all.push(results);
        last.iter_mut().zip(states).for_each(|(last, state)| last.push(state));
    }
    tape.cut();
    let mut read = |marks: &[Mark]| marks.iter().map(|mark| tape.read(*mark)).collect::<Result<Vec<_>>>();
    let sequences: Vec<Tensor> = all.iter().map(|parts| Tensor::cat(&read(parts)?, 0)).collect::<Result<_>>()?;
    let mut results = vec![Tensor::stack(&sequences, 1)?];
    let count = if recurrence.cell == RecurrentCell::Lstm { 2 } else { 1 };
    for states in &last[..count] {
        results.push(Tensor::stack(&read(states)?, 0)?);
    }
    Ok(results.into_iter().map(|result| tape.record(result)).collect())
}

/// The states of some positions, in their order, and those after the last one that is visited.
fn advance(
    recurrence: Recurrence,
    weights: &Weights,
    x: &Tensor,
    mut states: States,
    order: Order,
) -> Result<(Tensor, States)> {
    let (length, batch, inputs) = x.dims3()?;
    let gates = x.reshape((length * batch, inputs))?.matmul(&weights.w)?.broadcast_add(&weights.w_bias)?;
    let gates = gates.reshape((length, batch, ()))?;
    let mut found = vec![None; length];
    for step in 0..length {
        let position = order.position(step, length);
        let own = states[0].matmul(&weights.r)?.broadcast_add(&weights.r_bias)?;
        states = cell(recurrence, &gates.get(position)?, &own, states)?;
        found[position] = Some(states[0].clone());
    }
    Ok((Tensor::stack(&found.into_iter().flatten().collect::<Vec<_>>(), 0)?, states))
}

/// The states after a position, given its gates by the input and by the state before.
fn cell(recurrence: Recurrence, gates: &Tensor, own: &Tensor, [state, memory]: States) -> Result<States> {
    let hidden = recurrence.hidden as usize;
    let gate = |of: &Tensor, number: usize| of.narrow(D::Minus1, number * hidden, hidden);
    match recurrence.cell {
        RecurrentCell::Lstm => {
            let sums = (gates + own)?;
            let squashed = sigmoid(&sums.narrow(D::Minus1, 0, 3 * hidden)?)?;
            let memory = ((gate(&squashed, 2)? * memory)? + (gate(&squashed, 0)? * gate(&sums, 3)?.tanh()?)?)?;
            Ok([(gate(&squashed, 1)? * memory.tanh()?)?, memory])
        }
        RecurrentCell::Gru => {
            let both = |of: &Tensor| of.narrow(D::Minus1, 0, 2 * hidden);
            let squashed = sigmoid(&(both(gates)? + both(own)?)?)?;
            let candidate = (gate(gates, 2)? + (gate(&squashed, 1)? * gate(own, 2)?)?)?.tanh()?;
            let kept = (gate(&squashed, 0)? * (state - &candidate)?)?;
            Ok([(candidate + kept)?, memory])
        }
        RecurrentCell::Rnn => Ok([(gates + own)?.tanh()?, memory]),
    }
}
