//! Turns of this process's writers: whoever another one was in the way of writes alone the next time.
//!
//! A transaction that reads many rows and changes some of them, as a draw among thousands of check-ins does, would otherwise
//! be refused as long as others keep changing such rows faster than it ends. Those of other processes still may.

use std::sync::Arc;

use tokio::sync::RwLock;

use crate::driver::{Mode, Turn};

#[derive(Default)]
pub(super) struct Turns(Arc<RwLock<()>>);

impl Turns {
    /// Waits for a turn, in the order of calls, so that nobody waits for ever. Whoever only reads needs none.
    pub(super) async fn take(&self, mode: Mode, was_refused: bool) -> Option<Turn> {
        let lock = Arc::clone(&self.0);
        match (mode, was_refused) {
            (Mode::Read, _) => None,
            (Mode::Write, false) => Some(Box::new(lock.read_owned().await)),
            (Mode::Write, true) => Some(Box::new(lock.write_owned().await)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn whoever_was_refused_is_alone_and_those_after_it_wait() {
        let turns = Turns::default();
        let now = |mode, was_refused| turns.take(mode, was_refused).now_or_never();
        let first = now(Mode::Write, false).unwrap();
        let second = now(Mode::Write, false).unwrap();
        let mut refused = Box::pin(turns.take(Mode::Write, true));
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
