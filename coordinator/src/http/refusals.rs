//! Refused sign-ins that the log tells of: of each token one a minute, lest whoever has a worthless token fill the log with it.

use std::collections::HashMap;
use std::time::Duration;

use federation::id::TokenId;
use federation::time::Timestamp;

use crate::guarded::Guarded;

/// How long the log says nothing more of a token.
const EVERY: Duration = Duration::from_secs(60);

/// When the log was last told of each token. There are no more than tokens.
#[derive(Default)]
pub(crate) struct Refusals(Guarded<HashMap<TokenId, Timestamp>>);

impl Refusals {
    /// Whether the log is to be told of this token now.
    pub(super) fn is_due(&self, token: TokenId, now: Timestamp) -> bool {
        self.0.with(|told| {
            let is_due = told.get(&token).is_none_or(|at| at.plus(EVERY) <= now);
            if is_due {
                told.insert(token, now);
            }
            is_due
        })
    }
}
