//! Planned operations, earliest first; operations at the same moment run in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::clock::Moment;

/// Operations in the order of time.
pub struct Queue<T> {
    order: BinaryHeap<Reverse<(Moment, u64)>>,
    operations: HashMap<u64, T>,
    planned: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), operations: HashMap::new(), planned: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds an operation at a time.
    pub fn plan(&mut self, at: Moment, operation: T) {
        self.planned += 1;
        self.order.push(Reverse((at, self.planned)));
        self.operations.insert(self.planned, operation);
    }

    /// Removes the next operation and its time.
    pub fn pop(&mut self) -> Option<(Moment, T)> {
        let Reverse((at, number)) = self.order.pop()?;
        Some((at, self.operations.remove(&number)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;

    #[test]
    fn earlier_first_and_then_as_planned() {
        let mut queue = Queue::default();
        for (at, device) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
            queue.plan(Moment(at), Operation::Return { device });
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(at, operation)| match operation {
                Operation::Return { device } => (at.0, device),
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(order, [(3, 2), (3, 4), (5, 1), (5, 3)]);
    }
}
