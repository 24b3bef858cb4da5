//! `[schedule]` of a task: when rounds open, and whether participants train within them or ahead of them (asynchronous rounds).
//!
//! Training ahead: a participant trains on the newest version on the coordinator's request and stores the update, and a *round* is a buffer
//! of finished updates (FedBuff, Nguyen et al. 2022), which passes through the same phases. [`Staleness::weight`] discounts an update that
//! started from an older version.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::named_enum;

/// Minimum weight of the oldest admitted update. If it were close to zero, a sum of one fresh update and many old ones would equal the
/// fresh one, and secure aggregation would hide nothing.
pub const LEAST_WEIGHT: f64 = 0.1;
/// Maximum staleness, in versions.
pub const MAX_STALENESS: u32 = 1000;

named_enum! {
    /// When rounds open and what is trained in them.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum Mode {
        /// A cohort is drawn, all of it trains on the same version, and the round waits for it.
        #[default]
        Sync = "sync",
        /// Participants train ahead; each period what is ready is aggregated.
        SemiSync = "semi_sync",
        /// Participants train ahead; as soon as a cohort's worth of updates is ready it is aggregated.
        Buffered = "buffered",
    }
}

/// `[schedule]` as the operator writes it. Everything except the mode is for tasks whose participants train ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleSpec {
    pub mode: Mode,
    /// `semi_sync`: time between the openings of consecutive rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Maximum number of participants that train, or wait with a finished update, at the same time. Default: twice the
    /// number with which a round opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Maximum number of versions published since an update's training began; older updates are discarded. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_staleness: Option<u32>,
    /// a: an update that is s versions behind has weight 1/(1 + a s)^p. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_a: Option<f64>,
    /// p, see `staleness_a`. Default: 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_p: Option<f64>,
    /// Maximum training time, after which another participant may train instead. Default: ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_deadline_ms: Option<u64>,
}

/// `[schedule]` of a task whose participants train ahead, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// Time between openings; `None` if a full buffer opens a round.
    pub period: Option<Duration>,
    /// Maximum number of participants that train, or wait with a finished update, at the same time.
    pub concurrency: u32,
    /// Maximum age of an update, and its weight by age.
    pub staleness: Staleness,
    /// Maximum duration of one training.
    pub training_deadline: Duration,
}

/// Maximum age of an update, and its weight by age.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Staleness {
    /// a, at least 0.
    pub a: f64,
    /// p, at least 0.
    pub p: f64,
    /// Maximum staleness, in versions.
    pub max: u32,
}

impl Staleness {
    /// Weight of an update that is `staleness` versions behind: 1/(1 + a s)^p, above 0 and at most 1.
    #[must_use]
    pub fn weight(&self, staleness: u32) -> f64 {
        (1.0 + self.a * f64::from(staleness)).powf(-self.p)
    }

    /// Whether all weights are at least [`LEAST_WEIGHT`] and at most 1.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (0.0..=1000.0).contains(&self.a)
            && (0.0..=10.0).contains(&self.p)
            && self.max <= MAX_STALENESS
            && self.weight(self.max) >= LEAST_WEIGHT
    }

    /// The agreed encoding: a and p as 64-bit floats and the maximum as 32-bit integer, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.a.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.p.to_be_bytes());
        bytes[16..].copy_from_slice(&self.max.to_be_bytes());
        bytes
    }
}

impl ScheduleSpec {
    pub(crate) fn is_silent(&self) -> bool {
        *self == Self::default()
    }
}
