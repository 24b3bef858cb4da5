//! The values of a pass, in segments.
//!
//! candle's backward pass recurses along a chain of operations, and so does the release of its memory. A long chain would
//! overflow the stack. The tape cuts it into segments: a value of an earlier segment is read as a copy, which begins a new
//! chain. The backward pass takes the segments from the last on, and adds the gradient of each copy to that of the value.

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};

use crate::train::error::TrainError;
use crate::trainer::Interrupt;

/// The place of a value on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    segment: usize,
    position: usize,
}

struct Recorded {
    tensor: Tensor,
    /// The sum of the gradients from later segments.
    gradient: Option<Tensor>,
}

/// Operations with a chain of bounded length.
#[derive(Default)]
struct Segment {
    values: Vec<Recorded>,
    /// Where its chains begin: values of earlier segments, as variables.
    copies: BTreeMap<Mark, Tensor>,
}

/// The values of a pass. Without variables it keeps no operations, and copies nothing.
pub(super) struct Tape {
    /// The first one holds the variables, the last one is open.
    segments: Vec<Segment>,
}

impl Tape {
    /// A tape for functions of these variables, with their places.
    pub(super) fn new(variables: Vec<Tensor>) -> (Self, Vec<Mark>) {
        let marks = (0..variables.len()).map(|position| Mark { segment: 0, position }).collect();
        let values = variables.into_iter().map(|tensor| Recorded { tensor, gradient: None }).collect();
        let first = Segment { values, copies: BTreeMap::new() };
        (Self { segments: vec![first, Segment::default()] }, marks)
    }

    fn open(&self) -> usize {
        self.segments.len() - 1
    }

    /// Ends the segment. Values have to be read again before they are used.
    pub(super) fn cut(&mut self) {
        self.segments.push(Segment::default());
    }

    /// Records a value of the open segment.
    pub(super) fn record(&mut self, tensor: Tensor) -> Mark {
        let segment = self.open();
        let values = &mut self.segments[segment].values;
        values.push(Recorded { tensor, gradient: None });
        Mark { segment, position: values.len() - 1 }
    }

    /// A value as it was recorded.
    pub(super) fn tensor(&self, mark: Mark) -> &Tensor {
        &self.segments[mark.segment].values[mark.position].tensor
    }

    /// A value, for operations of the open segment.
    pub(super) fn read(&mut self, mark: Mark) -> Result<Tensor> {
        let (open, tensor) = (self.open(), self.tensor(mark));
        if mark.segment == open || !tensor.track_op() {
            return Ok(tensor.clone());
        }
        if let Some(copy) = self.segments[open].copies.get(&mark) {
            return Ok(copy.clone());
        }
        // A variable is no copy, but begins a chain, too.
        let copy = Var::from_tensor(tensor)?.into_inner();
        self.segments[open].copies.insert(mark, copy.clone());
        Ok(copy)
    }

    /// The gradients of the variables, given that of a value. None where the value does not depend on the variable.
    ///
    /// # Errors
    /// [`TrainError::Interrupted`] between two segments.
    pub(super) fn backward(
        mut self,
        of: Mark,
        gradient: Tensor,
        interrupt: &Interrupt,
    ) -> std::result::Result<Vec<Option<Tensor>>, TrainError> {
        self.segments[of.segment].values[of.position].gradient = Some(gradient);
        while self.segments.len() > 1 {
            let Some(Segment { values, copies }) = self.segments.pop() else { break };
            if interrupt.is_due() {
                return Err(TrainError::Interrupted);
            }
            let Some(sum) = weighted(values)? else { continue };
            let mut gradients = sum.backward()?;
            for (Mark { segment, position }, copy) in copies {
                // candle's gradients are functions of the variables, too; an earlier segment must not see that.
                let Some(gradient) = gradients.remove(&copy).map(|gradient| gradient.detach()) else { continue };
                let value = &mut self.segments[segment].values[position];
                value.gradient = Some(match value.gradient.take() {
                    Some(sum) => (sum + gradient)?,
                    None => gradient,
                });
            }
        }
        let variables = self.segments.pop().map(|first| first.values).unwrap_or_default();
        Ok(variables.into_iter().map(|variable| variable.gradient).collect())
    }
}

/// A tensor whose sum has these gradients; `None` if no value has one.
fn weighted(values: Vec<Recorded>) -> Result<Option<Tensor>> {
    let mut terms = Vec::new();
    for Recorded { tensor, gradient } in values {
        if let Some(gradient) = gradient.filter(|_| tensor.track_op()) {
            terms.push((tensor * gradient)?);
        }
    }
    let [first, rest @ ..] = &terms[..] else { return Ok(None) };
    if rest.is_empty() {
        return Ok(Some(first.clone()));
    }
    // The sum itself may overflow: only its derivatives are used.
    let mut sum = first.sum_all()?;
    for term in rest {
        sum = (sum + term.sum_all()?)?;
    }
    Ok(Some(sum))
}
