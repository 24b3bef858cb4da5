//! Request counts of a model since the last report.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inference::latency::Latencies;

/// Requests since the last report.
#[derive(Debug, Default)]
pub(crate) struct Traffic(Mutex<Counted>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    /// Answered requests of any status, without rejected credentials.
    pub(crate) requests: u64,
    /// Answers with 429 or 5xx.
    pub(crate) errors: u64,
    latencies: Latencies,
}

impl Counted {
    /// 99th percentile of the latency of the latest requests, measured after a request was read; `None` without
    /// requests.
    pub(crate) fn p99(&self) -> Option<Duration> {
        self.latencies.percentile(99)
    }
}

impl Traffic {
    /// Counts an answer; `took`: time since the request was read, if it was.
    pub(crate) fn note(&self, status: u16, took: Option<Duration>) {
        // Unauthenticated requests do not count.
        if matches!(status, 401 | 403) {
            return;
        }
        let mut counted = self.lock();
        counted.requests += 1;
        counted.errors += u64::from(status == 429 || status >= 500);
        if let Some(took) = took {
            counted.latencies.note(took);
        }
    }

    /// Counts since the last delivered report.
    pub(crate) fn counted(&self) -> Counted {
        self.lock().clone()
    }

    /// Marks these counts as delivered.
    pub(crate) fn told(&self, told: &Counted) {
        let mut counted = self.lock();
        counted.requests = counted.requests.saturating_sub(told.requests);
        counted.errors = counted.errors.saturating_sub(told.errors);
        counted.latencies.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_told_again_and_strangers_do_not_count() {
        let traffic = Traffic::default();
        let took = Some(Duration::from_millis(7));
        for status in [200, 200, 401, 403, 422, 429, 500, 503] {
            traffic.note(status, took.filter(|_| status == 200));
        }
        let first = traffic.counted();
        assert_eq!((first.requests, first.errors, first.p99()), (6, 3, took));
        // While the report is in transit.
        traffic.note(500, None);
        traffic.told(&first);
        let then = traffic.counted();
        assert_eq!((then.requests, then.errors, then.p99()), (1, 1, None));
    }
}
