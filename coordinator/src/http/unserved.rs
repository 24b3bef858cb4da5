//! Requests that fail temporarily because the database, the blobs, the disk or an authority is unavailable. Each reason is logged once,
//! however many devices retry.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use federation::time::{Clock, Timestamp};
use listener::PoisonFreeMutex;
use store::StoreError;
use wire::problem::ProblemType;

use super::reply::problem::Error;

/// Pause after which a repeated reason is logged again.
const QUIET: Duration = Duration::from_secs(60);

/// The reason of an error: its kind, and for damage the damaged object.
#[derive(PartialEq)]
struct Reason {
    kind: Discriminant<Error>,
    store: Option<Discriminant<StoreError>>,
    damaged: Option<String>,
}

impl Reason {
    fn of(error: &Error) -> Self {
        let store = if let Error::Store(cause) = error {
            Some(discriminant(cause))
        } else if let Error::NotReady { source, .. } = error {
            Some(discriminant(&**source))
        } else {
            None
        };
        let damaged = matches!(error, Error::Damaged(_)).then(|| error.to_string());
        Self { kind: discriminant(error), store, damaged }
    }
}

pub(super) struct Unserved {
    clock: Arc<dyn Clock>,
    /// When each last occurred.
    met: PoisonFreeMutex<Vec<(Reason, Timestamp)>>,
}

impl Unserved {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, met: PoisonFreeMutex::default() }
    }

    /// Logs a failed request, unless another failed recently for the same reason. Other rejections are not logged here.
    pub(super) fn tell(&self, error: &Error, instance: &str) {
        if error.kind() == ProblemType::Unavailable && self.is_news(Reason::of(error)) {
            tracing::warn!(request_id = instance, error = ?error, "request {instance} could not be served: {error}");
        }
    }

    fn is_news(&self, reason: Reason) -> bool {
        let now = self.clock.now();
        self.met.with(|met| {
            met.retain(|(_, at)| now.since(*at) < QUIET);
            match met.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, at)) => {
                    *at = now;
                    false
                }
                None => {
                    met.push((reason, now));
                    true
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use federation::time::MockClock;

    use super::*;

    #[test]
    fn a_reason_is_news_once_until_it_was_not_met_for_a_while() {
        let clock = Arc::new(MockClock::new(Timestamp(0)));
        let unserved = Unserved::new(Arc::clone(&clock) as _);
        let away = || Reason::of(&Error::Store(StoreError::BlobsAway("request 1".to_owned())));
        assert!(unserved.is_news(away()));
        assert!(unserved.is_news(Reason::of(&Error::Store(StoreError::Unreachable("connection 2".to_owned())))));
        assert!(unserved.is_news(Reason::of(&Error::Damaged("version 1".to_owned()))));
        assert!(unserved.is_news(Reason::of(&Error::Damaged("version 2".to_owned()))));
        for _ in 0..3 {
            clock.advance(QUIET / 2);
            assert!(!unserved.is_news(away()));
        }
        clock.advance(QUIET);
        assert!(unserved.is_news(away()));
        assert_eq!(unserved.met.lock().len(), 1, "what is over is forgotten");
    }
}
