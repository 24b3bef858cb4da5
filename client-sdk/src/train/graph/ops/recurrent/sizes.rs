//! Sizes of a recurrence, and where its parts are.

use graph::{Direction, Recurrence, RecurrentCell};

/// Sizes of a recurrence.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) cell: RecurrentCell,
    pub(super) length: usize,
    pub(super) batch: usize,
    pub(super) inputs: usize,
    pub(super) hidden: usize,
    /// Numbers of all gates of an example.
    pub(super) gates: usize,
    pub(super) directions: usize,
    direction: Direction,
}

impl Sizes {
    pub(super) fn of(recurrence: Recurrence, x: &[usize]) -> Self {
        let hidden = recurrence.hidden as usize;
        let gates = hidden
            * match recurrence.cell {
                RecurrentCell::Lstm => 4,
                RecurrentCell::Gru => 3,
                RecurrentCell::Rnn => 1,
            };
        let directions = match recurrence.direction {
            Direction::Forward | Direction::Reverse => 1,
            Direction::Both => 2,
        };
        Self {
            cell: recurrence.cell,
            length: x[0],
            batch: x[1],
            inputs: x[2],
            hidden,
            gates,
            directions,
            direction: recurrence.direction,
        }
    }

    /// The position at a step of a direction.
    pub(super) fn position(&self, direction: usize, step: usize) -> usize {
        let is_reverse = match self.direction {
            Direction::Forward => false,
            Direction::Reverse => true,
            Direction::Both => direction == 1,
        };
        if is_reverse { self.length - 1 - step } else { step }
    }

    /// Numbers of a state of all examples.
    pub(super) fn state(&self) -> usize {
        self.batch * self.hidden
    }

    /// Numbers of the gates of all examples and positions.
    pub(super) fn all_gates(&self) -> usize {
        self.length * self.batch * self.gates
    }

    /// Start of a state in Y.
    pub(super) fn y(&self, direction: usize, position: usize) -> usize {
        (position * self.directions + direction) * self.state()
    }

    /// Whether input and state see different gradients of the gates: a GRU multiplies between the state's product and its
    /// candidate.
    pub(super) fn has_own_gradient(&self) -> bool {
        self.cell == RecurrentCell::Gru
    }

    /// Numbers that a direction saves: its gates, and one state of each position.
    pub(super) fn saved(&self) -> usize {
        self.all_gates() + self.length * self.state()
    }
}
