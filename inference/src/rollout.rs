//! Which version answers whom while a new one is tried, and when the new one is taken back.
//!
//! A share of the keys is answered by the new version for a while; the others by the stable one. Then the new one becomes the
//! stable one, unless it failed too often, was too slow, or disagreed with the stable version on the same inputs too often.

use std::fmt;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::Moment;
use crate::latency::Latencies;

/// How a new version is introduced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollout {
    /// Share of keys that the new version answers, in percent; 0 has it answer all of them at once.
    pub canary_percent: f64,
    /// How long it is tried.
    pub hold: Duration,
    pub abort: Abort,
}

/// What a new version is taken back for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Abort {
    /// Nothing is concluded from fewer requests than this.
    pub min_requests: u64,
    /// Largest share of failed requests, 0 to 1.
    pub error_rate: f64,
    /// Longest 99th percentile of the time to an answer.
    pub p99: Duration,
    /// Largest share of predictions, 0 to 1, whose best class is not the stable version's for the same input.
    pub disagreement: f64,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { canary_percent: 0.0, hold: Duration::from_secs(600), abort: Abort::default() }
    }
}

impl Default for Abort {
    fn default() -> Self {
        Self { min_requests: 50, error_rate: 0.01, p99: Duration::from_millis(250), disagreement: 0.2 }
    }
}

/// Which of two versions answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Stable,
    Canary,
}

impl Rollout {
    /// Who answers a request with this draw: [`draw_of`] a key, or any number for a request without one.
    #[must_use]
    pub fn side(&self, draw: u64) -> Side {
        // The upper 53 bits are a fraction that a double has exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let fraction = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        if fraction * 100.0 < self.canary_percent { Side::Canary } else { Side::Stable }
    }
}

/// The draw of a key, always the same for a model: the beginning of `SHA-256(model ‖ 0 ‖ key)`.
#[must_use]
pub fn draw_of(model: &str, key: &[u8]) -> u64 {
    let digest = digest(&SHA256, &[model.as_bytes(), &[0], key].concat());
    digest.as_ref().iter().take(8).fold(0, |draw, &byte| draw << 8 | u64::from(byte))
}

/// What became of the canary's requests so far.
#[derive(Clone, Debug)]
pub struct Watch {
    since: Moment,
    requests: u64,
    errors: u64,
    latencies: Latencies,
    compared: u64,
    disagreed: u64,
}

/// What is to become of the canary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It is tried until this moment.
    Hold(Moment),
    Promote,
    TakeBack(Reason),
}

/// Why a new version is taken back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Errors { errors: u64, requests: u64 },
    Slow { p99: Duration, limit: Duration },
    Disagrees { disagreed: u64, compared: u64 },
}

impl Reason {
    /// As metrics have it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Errors { .. } => "errors",
            Self::Slow { .. } => "slow",
            Self::Disagrees { .. } => "disagreement",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errors { errors, requests } => write!(f, "{errors} of its {requests} requests failed"),
            Self::Slow { p99, limit } => {
                write!(f, "its 99th percentile is {} ms, over {} ms", p99.as_millis(), limit.as_millis())
            }
            Self::Disagrees { disagreed, compared } => {
                write!(f, "{disagreed} of {compared} predictions are not the stable version's")
            }
        }
    }
}

impl Watch {
    /// Begins when the canary answers its first requests.
    #[must_use]
    pub fn new(since: Moment) -> Self {
        Self { since, requests: 0, errors: 0, latencies: Latencies::default(), compared: 0, disagreed: 0 }
    }

    /// Notes a request that the canary answered, or failed to.
    pub fn note(&mut self, took: Duration, failed: bool) {
        self.requests += 1;
        self.errors += u64::from(failed);
        self.latencies.note(took);
    }

    /// Notes predictions of both versions for the same inputs.
    pub fn compare(&mut self, canary: &[u32], stable: &[u32]) {
        let differ = canary.iter().zip(stable).filter(|(one, other)| one != other).count();
        self.compared += canary.len().min(stable.len()) as u64;
        self.disagreed += differ as u64;
    }

    /// What is to become of the canary now. One without enough requests by the end of its time becomes the stable version: nothing
    /// speaks against it.
    #[must_use]
    pub fn verdict(&self, now: Moment, rollout: &Rollout) -> Verdict {
        if let Some(reason) = self.reason(&rollout.abort) {
            return Verdict::TakeBack(reason);
        }
        let end = self.end(rollout);
        if now >= end { Verdict::Promote } else { Verdict::Hold(end) }
    }

    /// Until when the canary is tried, unless it is taken back.
    #[must_use]
    pub fn end(&self, rollout: &Rollout) -> Moment {
        self.since.saturating_add(rollout.hold)
    }

    fn reason(&self, abort: &Abort) -> Option<Reason> {
        let Self { requests, errors, compared, disagreed, .. } = *self;
        if requests >= abort.min_requests {
            if exceeds(errors, requests, abort.error_rate) {
                return Some(Reason::Errors { errors, requests });
            }
            if let Some(p99) = self.latencies.percentile(99).filter(|&p99| p99 > abort.p99) {
                return Some(Reason::Slow { p99, limit: abort.p99 });
            }
        }
        let is_other = compared >= abort.min_requests && exceeds(disagreed, compared, abort.disagreement);
        is_other.then_some(Reason::Disagrees { disagreed, compared })
    }
}

/// Whether this share is larger than it may be.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn exceeds(part: u64, whole: u64, most: f64) -> bool {
    part as f64 > most * whole as f64
}

#[cfg(test)]
mod tests;
