//! Forms batches of pending requests.
//!
//! A request has one or more parts of at most [`Batching::max_batch`] examples. Parts wait in one bounded queue per
//! model. An idle worker calls [`Batcher::next`] for a batch: the parts for the target (a version of the model) of the
//! oldest part, in order of arrival. A batch is closed when it is full or its oldest part has waited
//! [`Batching::max_delay`], and immediately if no other request is being read.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::Moment;

/// Limits of batches and of the queue. All at least 1, except the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Maximum number of examples in a batch.
    pub max_batch: usize,
    /// Maximum time that a batch is held open for requests that are still being read.
    pub max_delay: Duration,
    /// Maximum number of pending parts.
    pub queue: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { max_batch: 32, max_delay: Duration::from_millis(10), queue: 100 }
    }
}

impl Batching {
    /// Splits a request of this many examples into parts.
    ///
    /// # Errors
    /// [`Refused::TooLarge`] if the queue would not hold it when it is empty.
    pub fn parts(&self, examples: usize) -> Result<impl Iterator<Item = Range<usize>> + use<>, Refused> {
        let most = self.max_batch.saturating_mul(self.queue);
        if examples > most {
            return Err(Refused::TooLarge { examples, most });
        }
        let size = self.max_batch.max(1);
        Ok((0..examples).step_by(size).map(move |start| start..examples.min(start + size)))
    }
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("a request may have at most {most} examples here, and this one has {examples}")]
    TooLarge { examples: usize, most: usize },
    #[error("{waiting} requests wait already; try again in {} s", .retry_after.as_secs().max(1))]
    Full { waiting: usize, retry_after: Duration },
}

/// A pending part of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// Number of examples of this part.
    pub examples: usize,
    /// Time at which it was queued.
    pub since: Moment,
    pub pending: T,
}

/// Parts to compute together.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch<L, T> {
    pub target: L,
    /// In order of arrival; at least one.
    pub parts: Vec<Part<T>>,
}

/// The next action of an idle worker.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<L, T> {
    Compute(Batch<L, T>),
    /// Call again at this time, or after a change.
    WaitUntil(Moment),
    /// Call again after a change.
    Nothing,
}

/// The queue of a model.
#[derive(Debug)]
pub struct Batcher<L, T> {
    limits: Batching,
    waiting: VecDeque<(L, Part<T>)>,
    /// Start times of the requests that are being read, by ascending number.
    arriving: VecDeque<(u64, Moment)>,
    arrived: u64,
    /// Durations of recent batches.
    pace: Duration,
}

impl<L: Clone + PartialEq, T> Batcher<L, T> {
    #[must_use]
    pub fn new(limits: Batching) -> Self {
        let limits =
            Batching { max_batch: limits.max_batch.max(1), queue: limits.queue.max(1), max_delay: limits.max_delay };
        Self { limits, waiting: VecDeque::new(), arriving: VecDeque::new(), arrived: 0, pace: Duration::ZERO }
    }

    /// Number of pending parts.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    #[must_use]
    pub fn limits(&self) -> Batching {
        self.limits
    }

    /// Registers a request that is being read and numbers it. [`Self::arrived`] removes it, whatever its outcome.
    pub fn arrives(&mut self, now: Moment) -> u64 {
        self.arrived += 1;
        self.arriving.push_back((self.arrived, now));
        self.arrived
    }

    /// Removes the registration of this request.
    pub fn arrived(&mut self, arrival: u64) {
        if let Ok(place) = self.arriving.binary_search_by_key(&arrival, |&(number, _)| number) {
            self.arriving.remove(place);
        }
    }

    /// The target of the oldest part.
    #[must_use]
    pub fn oldest(&self) -> Option<&L> {
        self.waiting.front().map(|(target, _)| target)
    }

    /// Checks that this many more parts fit into the queue. If it is full, drops parts whose client `is_gone`.
    ///
    /// # Errors
    /// [`Refused::Full`], with the estimated time until the pending parts are computed.
    pub fn room(&mut self, parts: usize, is_gone: impl Fn(&T) -> bool) -> Result<(), Refused> {
        let is_full = |waiting: usize| waiting + parts > self.limits.queue;
        if is_full(self.waiting.len()) {
            self.waiting.retain(|(_, part)| !is_gone(&part.pending));
        }
        if is_full(self.waiting.len()) {
            return Err(Refused::Full { waiting: self.waiting.len(), retry_after: self.time_to_empty() });
        }
        Ok(())
    }

    /// Queues all parts of a request, or none.
    ///
    /// # Errors
    /// [`Self::room`]'s.
    pub fn offer(
        &mut self,
        now: Moment,
        target: &L,
        parts: impl ExactSizeIterator<Item = (usize, T)>,
        is_gone: impl Fn(&T) -> bool,
    ) -> Result<(), Refused> {
        self.room(parts.len(), is_gone)?;
        self.waiting.extend(parts.map(|(examples, pending)| (target.clone(), Part { examples, since: now, pending })));
        Ok(())
    }

    /// The next action of an idle worker. Drops parts whose client `is_gone`.
    pub fn next(&mut self, now: Moment, is_gone: impl Fn(&T) -> bool) -> Next<L, T> {
        self.waiting.retain(|(_, part)| !is_gone(&part.pending));
        let Some((target, first)) = self.waiting.front() else { return Next::Nothing };
        let due = first.since + self.limits.max_delay;
        let ((count, is_full), target) = (self.fitting(target), target.clone());
        if !is_full && now < due {
            // A request that takes longer than the delay to be read delays no batch.
            let newest = self.arriving.iter().map(|&(_, since)| since + self.limits.max_delay).max();
            if let Some(newest) = newest.filter(|&newest| newest > now) {
                return Next::WaitUntil(due.min(newest));
            }
        }
        Next::Compute(self.take(target, count))
    }

    /// Records the duration of a batch.
    pub fn computed(&mut self, took: Duration) {
        self.pace = (self.pace * 7 + took) / 8;
    }

    /// Estimated time until all pending parts are computed.
    fn time_to_empty(&self) -> Duration {
        let examples: usize = self.waiting.iter().map(|(_, part)| part.examples).sum();
        let batches = u32::try_from(examples.div_ceil(self.limits.max_batch)).unwrap_or(u32::MAX);
        self.pace.saturating_mul(batches)
    }

    /// How many of the target's oldest parts fit into a batch, and whether the batch is full.
    fn fitting(&self, target: &L) -> (usize, bool) {
        let (mut count, mut examples) = (0, 0);
        for (_, part) in self.waiting.iter().filter(|(of, _)| of == target) {
            if count > 0 && examples + part.examples > self.limits.max_batch {
                return (count, true);
            }
            (count, examples) = (count + 1, examples + part.examples);
        }
        (count, examples >= self.limits.max_batch)
    }

    /// Removes the target's first parts.
    fn take(&mut self, target: L, count: usize) -> Batch<L, T> {
        let mut parts = Vec::with_capacity(count);
        // Rotates the remaining parts once, which preserves their order.
        for _ in 0..self.waiting.len() {
            let Some((of, part)) = self.waiting.pop_front() else { break };
            if parts.len() < count && of == target {
                parts.push(part);
            } else {
                self.waiting.push_back((of, part));
            }
        }
        Batch { target, parts }
    }
}

#[cfg(test)]
mod tests;
