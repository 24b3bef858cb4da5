//! Views of rounds that have ended, made once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use federation::id::RoundKey;
use store::entity::round::RoundRow;
use wire::inspect::RoundView;

/// Views remembered at once: of two of the largest pages.
const REMEMBERED_MAX: usize = 1000;

/// Views of rounds that have ended. A cache: each is good for the very row that it was made for, which still changes when bytes that
/// were on their way are counted after the end; all else that a view tells of is over by then.
#[derive(Default)]
pub(crate) struct EndedRounds(Mutex<HashMap<(RoundKey, u32), (RoundRow, RoundView)>>);

impl EndedRounds {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<(RoundKey, u32), (RoundRow, RoundView)>) -> T) -> T {
        // A map has no state between two of its calls that a panic could leave behind.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The view of this round, if it has ended and was looked at.
    pub(super) fn find(&self, row: &RoundRow) -> Option<RoundView> {
        self.with(|known| {
            let (of, view) = known.get(&(row.round.key, row.round.attempt))?;
            (of == row).then(|| view.clone())
        })
    }

    /// Remembers the view of a round, if it has ended for good.
    pub(super) fn remember(&self, row: RoundRow, view: &RoundView) {
        // Who gave an update from the base before is counted anew each time.
        if !row.round.state.is_terminal() || row.round.lacks_participants() {
            return;
        }
        self.with(|known| {
            if known.len() >= REMEMBERED_MAX {
                known.clear();
            }
            known.insert((row.round.key, row.round.attempt), (row, view.clone()));
        });
    }
}
