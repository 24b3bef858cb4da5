//! Turns of this process's writers. A transaction that was refused because of another writer writes alone the next time, and so do
//! transactions of the same name for a while.
//!
//! Otherwise a transaction that reads many rows and changes some of them, such as a draw among thousands of check-ins, would be
//! refused for as long as others change such rows faster than it ends. Writers of other processes can still interfere.
//! Transactions of one name read and change the same tables, so conflicts recur. Each refusal costs an attempt, and an error in the
//! server's log.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::driver::{Mode, Turn};

/// Time for which transactions of a name write alone after one of them was refused.
const ALONE_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Turns {
    lock: Arc<RwLock<()>>,
    /// Time of the last refusal, by the transaction's name.
    refused: Mutex<HashMap<&'static str, Instant>>,
}

impl Turns {
    /// Waits for a turn, in the order of calls, so that every caller gets one. Reads need no turn.
    pub(super) async fn take(&self, name: &'static str, mode: Mode, was_refused: bool) -> Option<Turn> {
        if mode == Mode::Read {
            return None;
        }
        let lock = Arc::clone(&self.lock);
        match self.is_alone(name, was_refused, Instant::now()) {
            false => Some(Box::new(lock.read_owned().await)),
            true => Some(Box::new(lock.write_owned().await)),
        }
    }

    /// Whether a transaction of this name writes alone now.
    fn is_alone(&self, name: &'static str, was_refused: bool, now: Instant) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if was_refused {
            refused.insert(name, now);
        }
        refused.get(name).is_some_and(|at| now.duration_since(*at) < ALONE_FOR)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_name_that_was_refused_writes_alone_for_a_while() {
        let turns = Turns::default();
        let now = |name| turns.take(name, Mode::Write, false).now_or_never();
        drop(turns.take("draw", Mode::Write, true).await);
        let shared = now("report").unwrap();
        assert!(now("draw").is_none(), "it was refused before");
        assert!(now("report").is_some());
        drop(shared);
        let alone = now("draw").unwrap();
        assert!(now("report").is_none());
        drop(alone);
        let begun = Instant::now();
        assert!(turns.is_alone("draw", false, begun));
        assert!(!turns.is_alone("draw", false, begun + ALONE_FOR));
    }

    #[tokio::test]
    async fn whoever_was_refused_is_alone_and_those_after_it_wait() {
        let turns = Turns::default();
        let now = |mode, was_refused| {
            turns.take(if was_refused { "refused" } else { "other" }, mode, was_refused).now_or_never()
        };
        let first = now(Mode::Write, false).unwrap();
        let second = now(Mode::Write, false).unwrap();
        let mut refused = Box::pin(turns.take("refused", Mode::Write, true));
        assert!((&mut refused).now_or_never().is_none(), "two are writing");
        assert!(now(Mode::Write, false).is_none(), "it comes after the one that was refused");
        assert!(now(Mode::Read, false).unwrap().is_none() && now(Mode::Read, true).unwrap().is_none());
        drop((first, second));
        let alone = refused.now_or_never().unwrap();
        assert!(now(Mode::Write, false).is_none() && now(Mode::Write, true).is_none());
        drop(alone);
        assert!(now(Mode::Write, false).is_some());
    }
}
