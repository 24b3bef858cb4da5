//! Refused sign-ins that the log tells of: of each token, and of each account at the identity provider, one a minute, lest whoever has a
//! worthless one fill the log with it.

use std::collections::HashMap;
use std::time::Duration;

use federation::time::Timestamp;

use super::limits::Key;
use crate::guarded::Guarded;

/// How long the log says nothing more of the same.
const EVERY: Duration = Duration::from_secs(60);

/// When the log was last told of each. There are no more than tokens, and accounts that the provider has vouched for.
#[derive(Default)]
pub(crate) struct Refusals(Guarded<HashMap<Key, Timestamp>>);

impl Refusals {
    /// Whether the log is to be told of this one now.
    pub(super) fn is_due(&self, of: Key, now: Timestamp) -> bool {
        self.0.with(|told| {
            let is_due = told.get(&of).is_none_or(|at| at.plus(EVERY) <= now);
            if is_due {
                told.insert(of, now);
            }
            is_due
        })
    }
}
