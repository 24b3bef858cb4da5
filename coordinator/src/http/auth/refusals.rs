//! Rate limit for log entries about rejected sign-ins: one a minute for each token and each account at the identity provider, since an
//! invalid token could otherwise fill the log.

use std::collections::HashMap;
use std::time::Duration;

use federation::time::Timestamp;
use listener::{Key, PoisonFreeMutex};

/// Interval between log entries about the same token or account.
const EVERY: Duration = Duration::from_secs(60);

/// When each was last logged. Bounded by the number of tokens and of accounts verified by the provider.
#[derive(Default)]
pub(crate) struct Refusals(PoisonFreeMutex<HashMap<Key, Timestamp>>);

impl Refusals {
    /// Whether a rejection should be logged now.
    pub(in crate::http) fn is_due(&self, of: Key, now: Timestamp) -> bool {
        self.0.with(|told| {
            let is_due = told.get(&of).is_none_or(|at| at.plus(EVERY) <= now);
            if is_due {
                told.insert(of, now);
            }
            is_due
        })
    }
}
