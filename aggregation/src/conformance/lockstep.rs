//! A test device made of two: every call goes to both, and every buffer is compared after every call.

use std::io::{Read, Write};

use secure_agg::mask::MaskPlan;

use crate::robust::{Inputs, RobustStatistics};
use crate::{Accumulator, AggregationError, Aggregator, Effort, Shape};

/// Runs two devices side by side.
///
/// # Panics
/// Every call, if the two differ.
pub struct Lockstep<A, B> {
    name: String,
    left: A,
    right: B,
}

impl<A: Aggregator, B: Aggregator> Lockstep<A, B> {
    pub fn new(left: A, right: B) -> Self {
        Self { name: format!("lockstep of {} and {}", left.name(), right.name()), left, right }
    }
}

impl<A: Aggregator, B: Aggregator> Aggregator for Lockstep<A, B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
        let (left, right) = (self.left.begin(shape), self.right.begin(shape));
        agree(&self.name, "begin", &left, &right);
        Ok(Box::new(Pair { name: self.name.clone(), left: left?, right: right? }))
    }

    fn unmask_slice(&self, plan: &MaskPlan, offset: u64, sum: &[u32], out: &mut [u32]) -> Result<(), AggregationError> {
        let mut other = out.to_vec();
        let left = self.left.unmask_slice(plan, offset, sum, out);
        agree(&self.name, "unmask_slice", &left, &self.right.unmask_slice(plan, offset, sum, &mut other));
        left?;
        compare(&self.name, "unmask_slice", out, &other);
        Ok(())
    }
}

impl<A: Aggregator, B: Aggregator> RobustStatistics for Lockstep<A, B> {
    fn median(&self, inputs: Inputs<'_>) -> Result<Vec<i32>, AggregationError> {
        self.same("median", self.left.median(inputs), self.right.median(inputs))
    }

    fn trimmed_mean(&self, inputs: Inputs<'_>, trim: usize) -> Result<Vec<i32>, AggregationError> {
        self.same("trimmed_mean", self.left.trimmed_mean(inputs, trim), self.right.trimmed_mean(inputs, trim))
    }

    fn gram(&self, inputs: Inputs<'_>) -> Result<Vec<i64>, AggregationError> {
        self.same("gram", self.left.gram(inputs), self.right.gram(inputs))
    }
}

impl<A, B> Lockstep<A, B> {
    fn same<T: PartialEq>(
        &self,
        call: &str,
        left: Result<Vec<T>, AggregationError>,
        right: Result<Vec<T>, AggregationError>,
    ) -> Result<Vec<T>, AggregationError> {
        agree(&self.name, call, &left, &right);
        let (left, right) = (left?, right?);
        assert!(left == right, "{}: {call}", self.name);
        Ok(left)
    }
}

struct Pair {
    name: String,
    left: Box<dyn Accumulator>,
    right: Box<dyn Accumulator>,
}

impl Pair {
    /// Compares the outcomes of one call, then the sums.
    fn after(
        &mut self,
        call: &str,
        left: Result<(), AggregationError>,
        right: Result<(), AggregationError>,
    ) -> Result<(), AggregationError> {
        agree(&self.name, call, &left, &right);
        match (self.left.partial(), self.right.partial()) {
            (Ok(left), Ok(right)) => compare(&self.name, call, &left, &right),
            (Err(_), Err(_)) => {}
            (Ok(_), Err(error)) => panic!("{}: after {call}, the right alone has no sum: {error}", self.name),
            (Err(error), Ok(_)) => panic!("{}: after {call}, the left alone has no sum: {error}", self.name),
        }
        left
    }
}

/// Checks that two outcomes are equal; errors are compared by their text.
fn agree<T>(name: &str, call: &str, left: &Result<T, AggregationError>, right: &Result<T, AggregationError>) {
    let said = |outcome: &Result<T, AggregationError>| outcome.as_ref().err().map(ToString::to_string);
    assert_eq!(said(left), said(right), "{name}: {call}");
}

fn compare(name: &str, call: &str, left: &[u32], right: &[u32]) {
    assert_eq!(left.len(), right.len(), "{name}: lengths after {call}");
    if let Some(index) = left.iter().zip(right).position(|(left, right)| left != right) {
        panic!("{name}: after {call}, word {index} is {:#x} and {:#x}", left[index], right[index]);
    }
}

impl Accumulator for Pair {
    fn shape(&self) -> Shape {
        assert_eq!(self.left.shape(), self.right.shape(), "{}: shape", self.name);
        self.left.shape()
    }

    fn summing(&self) -> Effort {
        let (left, right) = (self.left.summing(), self.right.summing());
        Effort { device: self.name.clone(), took: left.took + right.took }
    }

    fn add_packed(&mut self, packed: &[u8]) -> Result<(), AggregationError> {
        let (left, right) = (self.left.add_packed(packed), self.right.add_packed(packed));
        self.after("add_packed", left, right)
    }

    fn add_stream(&mut self, packed: &mut dyn Read, length: u64) -> Result<(), AggregationError> {
        // A stream can be read only once: the left device reads it, and a recording of it is replayed to the right one,
        // ending with the same error.
        let mut seen = Recorder { stream: packed, bytes: Vec::new(), failure: None };
        let left = self.left.add_stream(&mut seen, length);
        let mut replay = Replay { bytes: &seen.bytes, failure: seen.failure };
        let right = self.right.add_stream(&mut replay, length);
        self.after("add_stream", left, right)
    }

    fn merge(&mut self, words: &[u32]) -> Result<(), AggregationError> {
        let (left, right) = (self.left.merge(words), self.right.merge(words));
        self.after("merge", left, right)
    }

    fn partial(&mut self) -> Result<Vec<u32>, AggregationError> {
        let (left, right) = (self.left.partial(), self.right.partial());
        agree(&self.name, "partial", &left, &right);
        let words = left?;
        compare(&self.name, "partial", &words, &right?);
        Ok(words)
    }

    fn write_partial(&mut self, out: &mut dyn Write) -> Result<(), AggregationError> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let outcome = self.left.write_partial(&mut left);
        agree(&self.name, "write_partial", &outcome, &self.right.write_partial(&mut right));
        assert_eq!(left, right, "{}: write_partial", self.name);
        outcome?;
        out.write_all(&left).map_err(AggregationError::Write)
    }

    fn unmask_at(self: Box<Self>, plan: &MaskPlan, offset: u64) -> Result<Vec<u32>, AggregationError> {
        let (left, right) = (self.left.unmask_at(plan, offset), self.right.unmask_at(plan, offset));
        agree(&self.name, "unmask_at", &left, &right);
        let words = left?;
        compare(&self.name, "unmask_at", &words, &right?);
        Ok(words)
    }
}

struct Recorder<'a> {
    stream: &'a mut dyn Read,
    bytes: Vec<u8>,
    failure: Option<std::io::ErrorKind>,
}

impl Read for Recorder<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.stream.read(buffer).inspect_err(|error| self.failure = Some(error.kind()))?;
        self.bytes.extend_from_slice(&buffer[..got]);
        Ok(got)
    }
}

struct Replay<'a> {
    bytes: &'a [u8],
    failure: Option<std::io::ErrorKind>,
}

impl Read for Replay<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match (self.bytes.read(buffer)?, self.failure) {
            (0, Some(kind)) if !buffer.is_empty() => Err(kind.into()),
            (got, _) => Ok(got),
        }
    }
}
