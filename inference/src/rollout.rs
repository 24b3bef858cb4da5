//! Which version answers during a canary, and when the canary is rolled back.
//!
//! The canary answers a share of the keys, the stable version the others. After the trial the canary becomes the stable
//! version, unless its error rate, its latency or its disagreement with the stable version on the same inputs was too
//! high.

use std::fmt;
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::Moment;
use crate::latency::Latencies;

/// How a new version is introduced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollout {
    /// Share of keys that the canary answers, in percent; 0 activates new versions immediately.
    pub canary_percent: f64,
    /// Duration of the canary.
    pub hold: Duration,
    pub abort: Abort,
}

/// The limits of a canary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Abort {
    /// Minimum number of requests for a verdict.
    pub min_requests: u64,
    /// Maximum fraction of failed requests, 0 to 1.
    pub error_rate: f64,
    /// Maximum 99th percentile of the latency.
    pub p99: Duration,
    /// Maximum fraction of predictions, 0 to 1, whose best class differs from the stable version's for the same input.
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

/// One of two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Stable,
    Canary,
}

impl Rollout {
    /// The version that answers a request with this draw: [`draw_of`] its key, or a random number without a key.
    #[must_use]
    pub fn side(&self, draw: u64) -> Side {
        // The upper 53 bits are a fraction that a double represents exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let fraction = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        if fraction * 100.0 < self.canary_percent { Side::Canary } else { Side::Stable }
    }
}

/// The draw of a key, constant for a model: the first bytes of `SHA-256(model ‖ 0 ‖ key)`.
#[must_use]
pub fn draw_of(model: &str, key: &[u8]) -> u64 {
    let digest = digest(&SHA256, &[model.as_bytes(), &[0], key].concat());
    digest.as_ref().iter().take(8).fold(0, |draw, &byte| draw << 8 | u64::from(byte))
}

/// Statistics of the canary's requests.
#[derive(Clone, Debug)]
pub struct Watch {
    since: Moment,
    requests: u64,
    errors: u64,
    latencies: Latencies,
    compared: u64,
    disagreed: u64,
}

/// The verdict on a canary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It continues until this time.
    Hold(Moment),
    Promote,
    TakeBack(Reason),
}

/// Why a canary is rolled back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    Errors { errors: u64, requests: u64 },
    Slow { p99: Duration, limit: Duration },
    Disagrees { disagreed: u64, compared: u64 },
}

impl Reason {
    /// Name of this reason in metrics.
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
    /// Starts when the canary answers its first request.
    #[must_use]
    pub fn new(since: Moment) -> Self {
        Self { since, requests: 0, errors: 0, latencies: Latencies::default(), compared: 0, disagreed: 0 }
    }

    /// Records a request that the canary answered or failed.
    pub fn note(&mut self, took: Duration, failed: bool) {
        self.requests += 1;
        self.errors += u64::from(failed);
        self.latencies.note(took);
    }

    /// Records predictions of both versions for the same inputs.
    pub fn compare(&mut self, canary: &[u32], stable: &[u32]) {
        let differ = canary.iter().zip(stable).filter(|(one, other)| one != other).count();
        self.compared += canary.len().min(stable.len()) as u64;
        self.disagreed += differ as u64;
    }

    /// The current verdict. A canary without enough requests at the end of its time becomes the stable version.
    #[must_use]
    pub fn verdict(&self, now: Moment, rollout: &Rollout) -> Verdict {
        if let Some(reason) = self.reason(&rollout.abort) {
            return Verdict::TakeBack(reason);
        }
        let end = self.end(rollout);
        if now >= end { Verdict::Promote } else { Verdict::Hold(end) }
    }

    /// End of the canary, unless it is rolled back.
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

/// Whether this fraction exceeds the limit.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn exceeds(part: u64, whole: u64, most: f64) -> bool {
    part as f64 > most * whole as f64
}

#[cfg(test)]
mod tests;
