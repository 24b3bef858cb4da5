//! Reports of inference servers (`tributary infer serve`), and the operators' view of them.

use federation::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum number of refused versions in a report.
pub const REFUSED_MAX: usize = 10;

/// Whether `text` is a valid server name: 1 to 128 letters, digits, `-`, `_`, `.` or `:`.
#[must_use]
pub fn is_server_name(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.chars().all(is_in_server_name)
}

/// Whether a server name may contain this character.
#[must_use]
pub fn is_in_server_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.' | ':')
}

task_spec::named_enum! {
    /// Why a server does not use a version.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum RefusedBecause {
        /// On trial, too many of its requests failed.
        Errors = "errors",
        /// On trial, it was too slow.
        Slow = "slow",
        /// On trial, it predicted otherwise than the version in use too often.
        Disagreement = "disagreement",
        /// An operator went back from it.
        RolledBack = "rolled_back",
        /// Its file is not what its record says, or its record is not what it has to be.
        Damaged = "damaged",
        /// It is no model that can be served, or its parameters or scores are not finite.
        Unfit = "unfit",
        /// It was taken back, or left, before the server started last.
        Earlier = "earlier",
    }
}

/// A version that a server does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedVersion {
    pub version: u32,
    pub because: RefusedBecause,
}

/// A version on trial beside the one in use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CanaryView {
    pub version: u32,
    /// Share of requests that it answers, in percent.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100))]
    pub percent: f64,
    /// How long its trial goes on, in milliseconds from the report on.
    pub left_ms: u64,
}

/// Body of `PUT` [`crate::route::TASK_SERVER`]: what a server of models says of itself and one task's model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerReport {
    /// The version in use; absent before one is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The version on trial, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryView>,
    /// Versions that it does not use, newest first, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 10))]
    pub refused: Vec<RefusedVersion>,
    /// The time that the counts are of, in milliseconds: since its last report.
    pub over_ms: u64,
    /// Requests for the model that were answered, by whatever status; without those of whom it does not let in.
    pub requests: u64,
    /// Number of them that were answered with 429 or 5xx.
    pub errors: u64,
    /// 99th percentile of the time from a request that was read to its answer, in milliseconds; absent without requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// Number of requests that wait to be computed.
    pub queue: u64,
    /// How many servers there should be by its rule; absent before it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<u32>,
}

impl ServerReport {
    /// Checks the bounds that the type does not enforce.
    ///
    /// # Errors
    /// The defect and the valid values.
    pub fn check(&self) -> Result<(), String> {
        if self.refused.len() > REFUSED_MAX {
            return Err(format!("refused: it names at most {REFUSED_MAX} versions, the newest"));
        }
        if self.canary.is_some_and(|canary| !(0.0..=100.0).contains(&canary.percent)) {
            return Err("canary.percent: it is a number from 0 to 100".to_owned());
        }
        if self.errors > self.requests {
            return Err("errors: they are among requests, and cannot be more".to_owned());
        }
        Ok(())
    }
}

/// A server of models in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServerView {
    pub name: String,
    /// When its report came.
    pub told_at: Timestamp,
    pub report: ServerReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_hosts_and_ports() {
        for name in ["ward-7", "models-1.example.org:8500", "a", &"x".repeat(128)] {
            assert!(is_server_name(name), "{name}");
        }
        for name in ["", "ward 7", "a/b", "é", "{server}", &"x".repeat(129)] {
            assert!(!is_server_name(name), "{name}");
        }
    }

    #[test]
    fn a_report_that_no_server_makes_is_told() {
        let report = ServerReport { requests: 2, errors: 2, ..ServerReport::default() };
        assert_eq!(report.check(), Ok(()));
        let canary = |percent| Some(CanaryView { version: 2, percent, left_ms: 1 });
        assert_eq!(ServerReport { canary: canary(100.0), ..report.clone() }.check(), Ok(()));
        let refused = |count| vec![RefusedVersion { version: 1, because: RefusedBecause::Slow }; count];
        assert_eq!(ServerReport { refused: refused(10), ..report.clone() }.check(), Ok(()));
        for (wrong, word) in [
            (ServerReport { errors: 3, ..report.clone() }, "errors"),
            (ServerReport { canary: canary(100.5), ..report.clone() }, "percent"),
            (ServerReport { canary: canary(-1.0), ..report.clone() }, "percent"),
            (ServerReport { refused: refused(11), ..report.clone() }, "refused"),
        ] {
            assert!(wrong.check().unwrap_err().contains(word), "{wrong:?}");
        }
    }
}
